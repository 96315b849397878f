package reconcile

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"refundd/operations"
	"refundd/provider/simulator"
)

// neighbour is another provider, whose look-ups fail by their payment: with a status, or for ever at 0.
type neighbour struct {
	mu     sync.Mutex
	status map[string]int // by payment
	asked  []string       // payments, in order
}

// newNeighbour makes a provider "other" beside the bench's own, and answers how an engine is told of it.
func newNeighbour(t *testing.T) (*neighbour, func(*operations.Config)) {
	t.Helper()
	server, err := simulator.New(simulator.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	n := &neighbour{status: map[string]int{}}
	web := httptest.NewServer(n.before(server))
	client, err := simulator.NewClient(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { web.Close(); _ = server.Close() })
	return n, func(c *operations.Config) {
		c.Providers["other"] = operations.ProviderSetup{Provider: client, KeyRetention: simulator.KeyRetention,
			MaxKeyLength: simulator.MaxKeyLength}
	}
}

func (n *neighbour) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		ref := r.URL.Query().Get("payment_ref")
		status, fails := n.status[ref]
		n.asked = append(n.asked, ref)
		n.mu.Unlock()
		switch {
		case !fails:
			next.ServeHTTP(w, r)
		case status == 0:
			<-r.Context().Done()
		default:
			http.Error(w, "{}", status)
		}
	})
}

// load enters n reservations of a provider, due since a time, of which the provider knows nothing and whose keys it may
// have forgotten: each costs a look-up and nothing else.
func (b *bench) load(provider, prefix string, n int, due string) []string {
	b.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	b.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents, provider,
		provider_payment_ref)
		SELECT 'acme', id, 'EUR', 100, 1, $2, id FROM unnest($1::text[]) AS id`, ids, provider)
	b.exec(`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
		currency, state,
			provider, provider_key, provider_key_expires_at, attempts, last_send_ended, next_check_at)
		SELECT 'acme', id, $4, gen_random_uuid(), id, 1, 'EUR', 'reserved', $2, 'acme:' || id, now(), 1, now(),
			now() - $3::text::interval
		FROM unnest($1::text[]) AS id`, ids, provider, due, operations.Fingerprint("o", 1))
	return ids
}

func (b *bench) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if _, err := fmt.Sscan(b.text(sql, args...), &n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func TestRun_OneProviderHangs_TheOthersAreNotDelayed(t *testing.T) {
	other, beside := newNeighbour(t)
	b := newBench(t, 0, beside, func(c *operations.Config) { c.ProviderTimeout = 4 * time.Second })
	for _, id := range b.load("other", "hangs", 100, "2 hours") {
		other.status[id] = 0
	}
	b.loseAnswers(100)
	b.exec(`UPDATE refund_operations SET next_check_at = now() - interval '1 hour' WHERE provider = 'simulator'`)
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s, err := b.job.Run(t.Context()); s.Succeeded != 100 {
			t.Errorf("%+v (%v)", s, err)
		}
	}()
	b.eventually("all of the provider that answers", func() bool {
		return b.text(`SELECT count(*) FROM refund_operations WHERE state = 'succeeded'`) == "100"
	})
	select {
	case <-ended:
		t.Errorf("the other provider did not hang")
	default:
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	<-ended
}

func TestRun_OfAProviderThatNobodyKnows_FailsAndWorksOnTheOthers(t *testing.T) {
	b := newBench(t, 0)
	b.loseAnswers(3)
	strange := b.load("stripe", "strange", 2, "1 hour")
	old := func() {
		b.exec(`UPDATE refund_operations SET created_at = now() - interval '1 year' WHERE provider = 'stripe'`)
	}
	old()
	before := b.text(`SELECT jsonb_agg(to_jsonb(o) ORDER BY operation_id) FROM refund_operations o
		WHERE provider = 'stripe'`)
	for name, run := range map[string]func() (Summary, error){
		"run":     func() (Summary, error) { return b.job.Run(t.Context()) },
		"dry run": func() (Summary, error) { return b.job.DryRun(t.Context()) },
	} {
		s, err := run()
		fault, ok := errors.AsType[*ProviderFault](err)
		if !ok || fault.Provider != "stripe" || s.Errors != 1 || s.NeedsAttention != 0 {
			t.Errorf("%s: %+v (%v)", name, s, err)
		}
	}
	if n := b.text(`SELECT count(*) FROM refund_operations WHERE state = 'succeeded'`); n != "3" {
		t.Errorf("%s of 3 others are settled", n)
	}
	if after := b.text(`SELECT jsonb_agg(to_jsonb(o) ORDER BY operation_id) FROM refund_operations o
		WHERE provider = 'stripe'`); after != before {
		t.Errorf("what nobody was asked about changed:\n%s\n%s", before, after)
	}
	if row := b.text(`SELECT error FROM reconciliation_runs`); !strings.Contains(row,
		`provider "stripe" is not configured`) {
		t.Errorf("the run's row says %q", row)
	}
	if told := scraped(t, b.db.Pool); told[`refundd_reconciliation_last_success_timestamp_seconds`] != 0 {
		t.Error("the run counts as a success")
	}
	b.exec(`UPDATE refund_operations SET lease_until = now() + interval '1 minute'
		WHERE operation_id = ANY ($1)`, strange)
	b.runs(b.job, Summary{}) // somebody who knows it works on them
}

// What has no end is looked at before what is only looked at now and then, which gets a share all the same, however
// much of the other there is.
func TestRun_OneAtATime_LooksAtWhatHasNoEndFirst(t *testing.T) {
	other, beside := newNeighbour(t)
	b := newBench(t, 0, beside)
	open := b.load("other", "open", 70, "1 hour")
	settled := b.load("other", "settled", 30, "2 hours")
	b.exec(`UPDATE refund_operations SET state = 'needs_attention' WHERE operation_id = ANY ($1)`, settled)
	s, err := b.newJob(Config{Engine: b.engine, Workers: 1}).Run(t.Context())
	if err != nil || s.Claimed != 100 || len(other.asked) != 100 {
		t.Fatalf("%+v (%v), %d asked", s, err, len(other.asked))
	}
	share := func(asked []string) (n int) {
		for _, ref := range asked {
			if slices.Contains(settled, ref) {
				n++
			}
		}
		return n
	}
	if !slices.Contains(open, other.asked[0]) {
		t.Errorf("%s was looked at first", other.asked[0])
	}
	if n := share(other.asked[:40]); n < 5 || n > 15 {
		t.Errorf("of the first 40, %d have an end or a human", n)
	}
}

func TestRun_ManyThatFail_BackOffByThemselves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failing, healthy int
		status           int
		front, back      bool
	}{
		"in front":              {300, 50, 500, true, false},
		"behind":                {300, 50, 500, false, true},
		"on both sides":         {120, 50, 503, true, true},
		"in front and refused":  {100, 50, 429, true, false},
		"in front, not for us":  {100, 50, 403, true, false},
		"one in front, not for": {1, 50, 401, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			other, beside := newNeighbour(t)
			b := newBench(t, 0, beside)
			bad, good := b.load("other", "bad", c.failing, "3 hours"), b.load("other", "good", c.healthy, "2 hours")
			if c.back {
				behind := bad
				if c.front {
					behind = bad[:len(bad)/2]
				}
				b.exec(`UPDATE refund_operations SET next_check_at = now() - interval '1 hour'
					WHERE operation_id = ANY ($1)`, behind)
			}
			for _, id := range bad {
				other.status[id] = c.status
			}
			s, err := b.job.Run(t.Context())
			if n := b.count(`SELECT count(*) FROM refund_operations WHERE attempts = 2
				AND operation_id = ANY ($1)`, good); n != len(good) {
				t.Errorf("%d of %d healthy ones were looked at: %+v (%v)", n, len(good), s, err)
			}
			asked := b.count(`SELECT count(*) FROM refund_operations WHERE attempts = 2 AND next_check_at > now()
				AND operation_id = ANY ($1)`, bad)
			untouched := b.count(`SELECT count(*) FROM refund_operations WHERE attempts = 1 AND next_check_at < now()
				AND operation_id = ANY ($1)`, bad)
			if asked+untouched != len(bad) || asked == 0 || (err == nil) != (untouched == 0) {
				t.Errorf("%d of the others back off, %d were not asked: %v", asked, untouched, err)
			}
			if s.Claimed != int64(asked+len(good)) {
				t.Errorf("%d were claimed, want %d", s.Claimed, asked+len(good))
			}
		})
	}
}

// A provider that is out of reach is asked about few, which the run admits.
func TestRun_OfASilentProvider_EndsSoonAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		most   int // operations that are asked about
		says   string
	}{
		"down":      {500, 200, "does not answer"},
		"busy":      {429, 30, "does not answer"},
		"forbidden": {401, 0, "refuses our credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			other, beside := newNeighbour(t)
			b := newBench(t, 0, beside)
			for _, id := range b.load("other", "K", 400, "1 hour") {
				other.status[id] = c.status
			}
			s, err := b.job.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || s.Claimed > int64(c.most) || s.Errors != 1 ||
				len(other.asked) > 200 {
				t.Errorf("%+v after asking %d times (%v)", s, len(other.asked), err)
			}
			if n := b.count(`SELECT count(*) FROM refund_operations WHERE attempts > 1`); n != int(s.Claimed) {
				t.Errorf("%d were touched and %d claimed", n, s.Claimed)
			}
			dry, err := b.job.DryRun(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || dry.Claimed > int64(c.most) || dry.Errors != 1 {
				t.Errorf("a dry run: %+v (%v)", dry, err)
			}
		})
	}
}

// All of a few were asked in vain: that is an answer to none of them, and no fault of the run.
func TestRun_AllWereAskedInVain_IsNoFault(t *testing.T) {
	other, beside := newNeighbour(t)
	b := newBench(t, 0, beside)
	for _, id := range b.load("other", "K", 5, "1 hour") {
		other.status[id] = 500
	}
	b.runs(b.job, Summary{Claimed: 5, StillUnknown: 5})
	b.runs(b.job, Summary{})
}

// Where the connection is refused nobody is there to be asked.
func TestRun_NobodyListens_EndsSoon(t *testing.T) {
	b := newBench(t, 0, func(c *operations.Config) {
		nobody := httptest.NewServer(http.NotFoundHandler())
		client, err := simulator.NewClient(nobody.URL)
		nobody.Close()
		if err != nil {
			panic(err)
		}
		c.Providers["other"] = operations.ProviderSetup{Provider: client, KeyRetention: simulator.KeyRetention,
			MaxKeyLength: simulator.MaxKeyLength}
	})
	b.load("other", "K", 100, "1 hour")
	s, err := b.job.Run(t.Context())
	if err == nil || s.Claimed > 30 {
		t.Errorf("%+v (%v)", s, err)
	}
}

func TestTold_IsWhyARunWasNoSuccess(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		sum Summary
		err error
	}{
		"":                        {Summary{StillUnknown: 3}, nil},
		"2 outcomes not recorded": {Summary{Errors: 2}, nil},
		"interrupted":             {Summary{}, faults{errInterrupted}},
		`provider "a" is not there, and refunds of it are due`: {Summary{Errors: 1},
			faults{&ProviderFault{"a", "is not there"}}},
		`claim: database unavailable; provider "a" is not there, and refunds of it are due; 1 outcomes not recorded`: {Summary{Errors: 2},
			faults{fmt.Errorf("%w due: %w", errClaim, operations.ErrDatabaseUnavailable),
				&ProviderFault{"a", "is not there"}}},
	} {
		if diff := gocmp.Diff(want, whyNoSuccess(c.sum, c.err)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
