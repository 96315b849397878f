package blackbox

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/test/harness"
)

// picky is a way to the simulator on which look-ups of some payments fail.
type picky struct {
	URL   string
	mu    sync.Mutex
	fails map[string]int // status, by payment; "" is every payment
	asked map[string]int // look-ups, by payment
}

func newPicky(t *testing.T, simulator string) *picky {
	t.Helper()
	target, err := url.Parse(simulator)
	if err != nil {
		t.Fatal(err)
	}
	p := &picky{fails: map[string]int{}, asked: map[string]int{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := p.look(r); status != 0 {
			http.Error(w, "{}", status)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	p.URL = web.URL
	return p
}

// look counts a look-up and answers the status that it fails with, or 0.
func (p *picky) look(r *http.Request) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method != http.MethodGet {
		return 0
	}
	ref := r.URL.Query().Get("payment_ref")
	p.asked[ref]++
	if status, all := p.fails[""]; all {
		return status
	}
	return p.fails[ref]
}

func (p *picky) fail(status int, refs ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ref := range refs {
		p.fails[ref] = status
	}
}

func (p *picky) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.fails)
}

// lookedAt is how often payments were looked up, all of them where none is named.
func (p *picky) lookedAt(refs ...string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(refs) == 0 {
		for _, times := range p.asked {
			n += times
		}
	}
	for _, ref := range refs {
		n += p.asked[ref]
	}
	return n
}

// lost makes n refunds that the provider executed without telling, each on an order of its own, named prefix-0 and so
// on.
func (p *paying) lost(prefix string, n int) (ids, refs []string) {
	p.t.Helper()
	ids = names(prefix+"-", n)
	payments := make([]harness.Payment, n)
	for i, id := range ids {
		payments[i] = harness.Payment{OrderID: id, Cents: 10000}
		refs = append(refs, p.Ref(id))
	}
	p.Pay(payments...)
	p.provider.Fault("drop_after")
	together(n, func(i int) { want(p.t, p.Refund(ids[i], ids[i], 4000), "pending") })
	p.provider.Heal()
	return ids, refs
}

// dueAt makes operations due at a time and as old as that, with no lease.
func (p *paying) dueAt(ids []string, due, age string) {
	p.t.Helper()
	p.Exec(`UPDATE refund_operations
		SET lease_until = '-infinity', next_check_at = clock_timestamp() - $2::text::interval,
		created_at = clock_timestamp() - $3::text::interval WHERE operation_id = ANY ($1)`, ids, due, age)
}

// inState counts operations.
func (p *paying) inState(ids []string, state string) (n int) {
	p.t.Helper()
	p.Scan(&n, `SELECT count(*) FROM refund_operations WHERE operation_id = ANY ($1) AND state = $2`, ids, state)
	return n
}

// rowsOf is every row of operations, as text.
func (p *paying) rowsOf(ids []string) (rows string) {
	p.t.Helper()
	p.Scan(&rows, `SELECT coalesce(string_agg(to_jsonb(o)::text, E'\n' ORDER BY operation_id), '')
		FROM refund_operations o
		WHERE operation_id = ANY ($1)`, ids)
	return rows
}

// run is refundd reconcile with an environment of its own, whatever it exits with.
func (p *paying) run(flags ...string) harness.Result {
	p.t.Helper()
	return harness.Command(p.t, p.Service.DB.ServiceURL,
		append([]string{"reconcile", "--listing-lag", listingLag.String()}, flags...)...)
}

// summary is what a run printed.
func (p *paying) summary(r harness.Result) (s harness.Summary) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(r.Stdout), &s, json.RejectUnknownMembers(true)); err != nil {
		p.t.Errorf("exits %d and prints %q: %v\n%s", r.ExitCode, r.Stdout, err, r.Stderr)
	}
	return s
}

// lastSuccess is when a run was last through, as the metric tells.
func (p *paying) lastSuccess() float64 {
	p.t.Helper()
	time.Sleep(1100 * time.Millisecond) // scrapes within a second are answered alike
	for _, s := range p.Service.Servers[0].Metrics(p.t) {
		if s.Name == "refundd_reconciliation_last_success_timestamp_seconds" {
			return s.Value
		}
	}
	p.t.Error("no metric of the last success")
	return 0
}

func TestA57_TheBreakerIsOpen_WhatWasNotAskedIsNoAnswer(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	provider := newPicky(t, p.provider.URL)
	failing, refs := p.lost("F", 10)
	healthy, _ := p.lost("H", 150)
	p.dueAt(failing, "2 hours", "73 hours")
	p.dueAt(healthy, "1 hour", "73 hours")
	provider.fail(500, refs...)
	for run := 0; p.inState(healthy, "succeeded") < len(healthy) && run < 3; run++ {
		if r := p.run("--simulator-url", provider.URL); r.ExitCode != 0 && r.ExitCode != 3 {
			t.Errorf("exits %d: %s", r.ExitCode, r.Stderr)
		}
		if n := p.inState(healthy, "needs_attention"); n != 0 {
			t.Fatalf("%d healthy operations were escalated", n)
		}
	}
	if n := p.inState(healthy, "succeeded"); n != len(healthy) {
		t.Errorf("%d of %d healthy operations are settled", n, len(healthy))
	}
	if n := p.inState(failing, "needs_attention"); n != len(failing) { // these were asked, for long enough
		t.Errorf("%d of %d that were asked in vain for 73 hours are in front of a human", n, len(failing))
	}
	p.Service.Audit(t)
}

// The breaker of a server is open: a human's look goes past it, a caller's retry changes no row.
func TestA57_TheBreakerIsOpen_AHumansLookGoesPastIt(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-breaker-open", "1h", "--provider-breaker-failures", "5")
	p.provider.Fault("refuse", harness.Times(1))
	p.refund("never-sent", "P9", "pending")
	p.provider.Fault("error_before", harness.Times(4))
	for i := range 4 {
		p.refund(fmt.Sprint("K", i), fmt.Sprint("P", i), "pending")
	}
	want(t, p.Refund("new", "P5", 4000), "provider_unavailable")
	all := []string{"K0", "K1", "K2", "K3", "never-sent"}
	p.dueAt(all, "1 hour", "1 hour")
	before := p.rowsOf(all)
	for _, id := range all[:4] {
		p.refund(id, "P"+id[1:], "pending")
	}
	p.refund("never-sent", "P9", "pending")
	if after := p.rowsOf(all); after != before {
		t.Errorf("a retry while the breaker is open changed the rows:\n%s\n%s", before, after)
	}
	p.provider.Refund(p.ProviderKey("K0"),
		harness.Fields{"payment_ref": p.Ref("P0"), "amount_cents": 4000, "currency": "EUR",
			"metadata": map[string]string{"tenant_id": p.ID, "operation_id": "K0"}})
	p.dueAt(all, "1 hour", "73 hours")
	for _, id := range all {
		want(t, p.Post(harness.RefundPath(id)+"/reconcile", harness.Fields{}), "200")
		if n := p.attempts(id)["lookup"]; n != 1 {
			t.Errorf("a human looks at %s, and the provider is asked %d times", id, n)
		}
	}
	p.stands("K0", "succeeded", "")
	for _, id := range all[1:] { // all of them were looked at
		p.stands(id, "needs_attention", "outcome_overdue")
	}
	p.executed("K0")
	p.Service.Audit(t)
}

// Where nobody can be asked, a human's look leaves the row as it is.
func TestA57_TheProviderIsNotConfigured_AHumansLookChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.provider.Fault("drop_after", harness.Times(1))
	p.refund("K", "P0", "pending")
	p.dueAt([]string{"K"}, "1 hour", "73 hours")
	before := p.rowsOf([]string{"K"})
	refusing := newPicky(t, p.provider.URL)
	refusing.fail(401, "")
	for _, flags := range [][]string{{"--simulator-url="}, {"--simulator-url", refusing.URL},
		{"--simulator-url", "http://127.0.0.1:1"}} {
		elsewhere := p.ClientOf(p.Service.AddServer(t, flags...))
		a := elsewhere.Post(harness.RefundPath("K")+"/reconcile", harness.Fields{})
		if r := harness.Read[harness.Refund](t, a); r.State != "reserved" {
			t.Errorf("%v: answered %s", flags, a.Body)
		}
		if after := p.rowsOf([]string{"K"}); after != before {
			t.Errorf("%v: a look that asked nobody changed the row:\n%s\n%s", flags, before, after)
		}
	}
	p.lookUp("K")
	p.stands("K", "succeeded", "")
}

func TestA58_FailingLookUpsInFront_TheOthersSettleInTheFirstRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failing, status int
		bothEnds        bool
	}{
		"one": {1, 500, false}, "120": {120, 500, false}, "120 at both ends": {120, 503, true},
		"120 that are forbidden": {120, 403, false}, "120 that are refused": {120, 429, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaying(t)
			provider := newPicky(t, p.provider.URL)
			failing, refs := p.lost("F", c.failing)
			healthy, _ := p.lost("H", 100)
			p.dueAt(failing, "2 hours", "2 hours")
			p.dueAt(healthy, "1 hour", "1 hour")
			if c.bothEnds {
				p.dueAt(failing[:60], "1 minute", "1 hour")
			}
			provider.fail(c.status, refs...)
			r := p.run("--simulator-url", provider.URL)
			if n := p.inState(healthy, "succeeded"); r.ExitCode != 0 || n != len(healthy) {
				t.Errorf("the first run exits %d and settles %d of %d: %s", r.ExitCode, n, len(healthy), r.Stdout)
			}
			var later int
			p.Scan(&later, `SELECT count(*) FROM refund_operations WHERE operation_id = ANY ($1) AND state = 'reserved'
				AND next_check_at > clock_timestamp() AND lease_until <= clock_timestamp()`, failing)
			if n := provider.lookedAt(refs...); n < c.failing || later != c.failing {
				t.Errorf("of %d that fail, %d were asked and %d back off", c.failing, n, later)
			}
			provider.heal()
			p.reconcile()
			if n := p.inState(failing, "succeeded"); n != c.failing {
				t.Errorf("%d of %d are settled once they can be looked at", n, c.failing)
			}
		})
	}
}

// A provider that is down altogether is given a rest, and the run says so.
func TestA58_TheProviderIsDown_TheRunAsksFewAndIsNoSuccess(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	provider := newPicky(t, p.provider.URL)
	all, _ := p.lost("K", 300)
	p.dueAt(all, "1 hour", "73 hours")
	provider.fail(500, "")
	r := p.run("--simulator-url", provider.URL)
	asked := provider.lookedAt()
	if r.ExitCode != 1 || asked == 0 || asked > 200 {
		t.Errorf("exits %d after asking %d times: %s", r.ExitCode, asked, r.Stderr)
	}
	if n := p.inState(all, "needs_attention"); n != asked {
		t.Errorf("%d were asked and %d escalated", asked, n)
	}
	var touched int
	p.Scan(&touched, `SELECT count(*) FROM refund_operations WHERE attempts > 1`)
	if touched != asked {
		t.Errorf("%d were asked and %d touched", asked, touched)
	}
	if at := p.lastSuccess(); at != 0 {
		t.Errorf("the run counts as a success, at %v", at)
	}
	provider.heal()
	p.reconcile()
	if n := p.inState(all, "succeeded"); n != len(all) {
		t.Errorf("%d of %d are settled", n, len(all))
	}
}

func TestA63_NobodyCanBeAsked_TheRunFailsAndClaimsNothing(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	ids, _ := p.lost("K", 10)
	p.reconcile() // a success to be proud of
	since := p.lastSuccess()
	if since == 0 {
		t.Error("no run was a success")
	}
	more, _ := p.lost("L", 10)
	settled := p.rowsOf(ids)
	p.dueAt(more, "1 hour", "73 hours")
	before := p.rowsOf(more)
	refusing := newPicky(t, p.provider.URL)
	refusing.fail(401, "")
	for name, flags := range map[string][]string{
		"cron's empty environment": nil, "401": {"--simulator-url", refusing.URL},
		"a dry run of nothing": {"--dry-run"}, "a dry run with 401": {"--dry-run", "--simulator-url", refusing.URL},
	} {
		r := p.run(flags...)
		s := p.summary(r)
		if r.ExitCode != 1 || s.Claimed != 0 || s.NeedsAttention != 0 || s.StillUnknown != 0 || s.Errors != 1 {
			t.Errorf("%s: exits %d, prints %s, says %s", name, r.ExitCode, r.Stdout, r.Stderr)
		}
		if after := p.rowsOf(more); after != before {
			t.Errorf("%s: the rows changed:\n%s\n%s", name, before, after)
		}
	}
	if n := refusing.lookedAt(); n > 20 {
		t.Errorf("credentials that were refused are shown %d times", n)
	}
	var faults int
	p.Scan(&faults, `SELECT count(*) FROM reconciliation_runs WHERE error LIKE '%simulator%' AND errors = 1
		AND claimed = 0 AND finished_at IS NOT NULL`)
	if faults != 2 {
		t.Errorf("%d runs say why they were none", faults)
	}
	if at := p.lastSuccess(); at != since {
		t.Errorf("the last success was at %v, and is said to be at %v", since, at)
	}
	if p.rowsOf(ids) != settled {
		t.Error("settled rows changed")
	}
	p.reconcile()
	if n := p.inState(more, "succeeded"); n != len(more) {
		t.Errorf("%d of %d are settled", n, len(more))
	}
}

// Scan reads one value as the database's owner.
func (p *paying) Scan(value any, sql string, args ...any) {
	p.t.Helper()
	if err := p.Service.DB.Owner.QueryRow(context.Background(), sql, args...).Scan(value); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}
