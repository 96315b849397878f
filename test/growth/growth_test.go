// Package growth lets empty, just analysed tables grow under a service that runs, and holds it against its promise:
// each statement that it sends finds what it is asked for by key, whatever the tables were when its plan was made; and
// by a key that begins with the tenant, so that the tables may be spread over several by tenant.
package growth

import (
	"strings"
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) {
	harness.Build.Race = false
	testdb.Main(harness.Run(m))
}

const (
	// rows that a node looks at: none of the tour asks for more than what one look-ahead of webhooks takes
	most    = 120
	dropped = 20 // rows that it looks at in vain
)

// tiny are the tables that do not grow with the refunds.
var tiny = map[string]bool{"tenants": true, "restores": true, "schema_migrations": true, "webhook_endpoints": true}

// acrossTenants are the indexes, and the table, that are read for all tenants at once, and why. Where tenants are
// spread over machines, each machine reads its own.
var acrossTenants = map[string]string{
	"api_keys_secret_hash_key":              "the key says which tenant calls",
	"api_keys_pkey":                         "when a key was used last",
	"orders_provider_payment_key":           "one payment belongs to one order of one tenant",
	"refund_operations_provider_refund_key": "one refund of a provider's settles one operation",
	"refund_operations_due_idx":             "reconciliation takes what is due",
	"refund_operations_recheck_idx":         "reconciliation takes what is due",
	"refund_operations_held_idx":            "a metric counts what is held",
	"refund_operations_contradicted_idx":    "a metric counts what is wrong",
	"orders_over_refunded_idx":              "a metric counts what is wrong",
	"escalations_open_idx":                  "a metric counts what is open",
	"webhook_endpoints_turn_idx":            "whose turn it is to be sent to",
	"webhook_endpoints":                     "a metric counts all",
	"webhook_events_unnumbered_idx":         "which tenant has events to be numbered",
	"webhook_streams_pkey":                  "a metric tells how far webhooks are behind",
}

func TestA77_KeptStatementsReadWhatTheyAreAskedFor(t *testing.T) {
	p := newPlans(t)
	s := start(t, p)
	tours := []*tourist{newTourist(t, s), newTourist(t, s)}
	for _, u := range tours {
		u.Load([]string{u.busy}, 1_000_000)
	}
	all := func() {
		for _, u := range tours {
			u.goRound()
		}
	}
	walkAgain := plant(t, p, tours[0].ID)
	all()
	all()
	p.executions(t, false)
	grow(t, p, 30000, tours[0].ID, tours[1].ID)
	all()
	walkAgain()
	found := p.executions(t, true)
	visitedAll(t, tours[0])
	b := p.books(t)
	caught, kept := false, 0
	for _, e := range found {
		if !e.ofService {
			continue
		}
		faults := b.faults(e)
		if sumsOnce(e) {
			faults = nil
		}
		if strings.Contains(e.SQL, planted) {
			caught = caught || e.kept && len(faults) > 0
			continue
		}
		if e.kept {
			kept++
		}
		for _, why := range faults {
			t.Errorf("%s\n%s", why, e)
		}
		for _, why := range b.strays(e) {
			t.Errorf("not by tenant: %s\n%s", why, e)
		}
	}
	if !caught {
		t.Error("a statement that walks a tenant's whole index is not caught")
	}
	holdKept(t, found)
	t.Logf("%d executions, %d with plans from before", len(found), kept)
}

// sumsOnce reports whether a statement sums refunds that it will never read again.
func sumsOnce(e execution) bool { return strings.Contains(e.SQL, "refund_hours") }

// visitedAll holds the tour against the contract.
func visitedAll(t *testing.T, u *tourist) {
	t.Helper()
	doc, err := harness.Document()
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !u.visited[method+" "+path] {
				t.Errorf("%s %s was not called", method, path)
			}
		}
	}
}

const planted = "/* planted */"

// plant keeps a statement that is right while there is little, and returns what runs it again.
func plant(t *testing.T, p *plans, tenant string) func() {
	t.Helper()
	conn, err := p.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	for _, sql := range []string{"SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run := func() {
		if _, err := conn.Exec(t.Context(), planted+` SELECT FROM refund_operations
			WHERE tenant_id = $1 AND provider_key = $2`, tenant, "none"); err != nil {
			t.Fatal(err)
		}
	}
	run()
	return run
}

// holdKept holds that most statements ran in a session that had run them before: which one they meet is chance.
func holdKept(t *testing.T, found []execution) {
	t.Helper()
	kept := map[string]bool{}
	for _, e := range found {
		kept[e.SQL] = kept[e.SQL] || e.kept
	}
	var anew []string
	for sql, once := range kept {
		if !once {
			anew = append(anew, "\n  "+strings.Join(strings.Fields(sql), " "))
		}
	}
	if len(anew)*4 > len(kept) {
		t.Errorf("%d of %d statements never ran with a plan from before:%s", len(anew), len(kept),
			strings.Join(anew, ""))
	}
}
