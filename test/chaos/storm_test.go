package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestStorm_EveryAnswerWasTrueAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	storm(t, false)
}

func storm(t *testing.T, atStripe bool) {
	t.Helper()
	seed := *seed
	if seed == 0 {
		seed = rand.Uint64N(1e9)
	}
	t.Logf("go test ./test/chaos -chaos.seed=%d -chaos.duration=%v", seed, *duration)
	w := newWorld(t, atStripe)
	w.storm(seed)
	w.calm()
	w.judge()
}

type world struct {
	callers
	t         *testing.T
	cluster   *embedpg.Server
	service   *harness.Service
	provider  harness.Provider
	alive     sync.Mutex // the provider is
	all       []*slot    // servers first
	did       tally
	forgotten map[string]bool // operations whose keys the provider forgot
}

func newWorld(t *testing.T, atStripe bool) *world {
	t.Helper()
	cluster := testdb.Start(t, embedpg.Options{Durable: true})
	s := &harness.Service{DB: testdb.NewIn(t, cluster)}
	var provider harness.Provider
	if atStripe {
		s.Stripe = harness.NewStripe(t)
		provider = s.Stripe
	} else {
		s.Simulator = harness.Simulate(t, 0)
		provider = s.Simulator
	}
	s.Flags = flags(provider)
	w := &world{t: t, cluster: cluster, service: s, provider: provider, did: tally{n: map[string]int{}},
		forgotten: map[string]bool{}}
	for i := range 2 {
		w.all = append(w.all, &slot{t: t, name: fmt.Sprint("server ", i), did: &w.did,
			start: func() (*harness.Process, string, error) {
				server, err := harness.TryServe(t, s.DB.ServiceURL, nil,
					append(flags(provider), "--request-timeout", "3s")...)
				return server.Process, server.URL, err
			}})
	}
	for i := range 2 {
		w.all = append(w.all, &slot{t: t, name: fmt.Sprint("reconciler ", i), did: &w.did,
			start: func() (*harness.Process, string, error) {
				args := append([]string{"reconcile", "--every", "300ms", "--concurrency", "8"}, flags(provider)...)
				return harness.Spawn(t, s.DB.ServiceURL, nil, args...), "", nil
			}})
	}
	for _, slot := range w.all {
		slot.fill(t.Context())
	}
	w.callers = callers{t: t, tenant: s.OpenTenant(t), slots: w.all[:2]}
	w.tenant.Pay(payments()...)
	return w
}

// storm lets everything happen at once.
func (w *world) storm(seed uint64) {
	w.t.Helper()
	storm, over := context.WithTimeout(w.t.Context(), 4**duration)
	defer over()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() { w.call(storm, newDice(seed, fmt.Sprint("caller ", i))) })
	}
	for _, slot := range w.all {
		all.Go(func() { slot.torment(storm, newDice(seed, slot.name), &w.callers) })
	}
	all.Go(func() { tempt(storm, newDice(seed, "provider"), w.provider, &w.alive, &w.did) })
	all.Go(func() { outage(w.t, storm, newDice(seed, "postgres"), &w.callers, w.cluster, &w.did) })
	all.Go(func() {
		rest(storm, *duration)
		w.progress(storm, max(0, 60-w.moved.Load())) // whatever the machine is worth
		over()
	})
	all.Go(func() { w.age(storm, newDice(seed, "time")) })
	if s := w.service.Stripe; s != nil {
		all.Go(func() { announce(storm, newDice(seed, "events"), s, &w.callers, &w.did) })
	}
	all.Wait()
}

// age lets a day pass for reservations whose key the provider may know, so that it forgets it. Nobody is suspended
// meanwhile: whoever sleeps between the send gate and the wire sleeps for less than the margin that the gate leaves.
func (w *world) age(storm context.Context, d dice) {
	for {
		rest(storm, d.between(5*time.Second, 10*time.Second))
		if storm.Err() != nil {
			return
		}
		for _, slot := range w.all {
			slot.mu.Lock()
		}
		w.did.add("forgotten")
		w.forget()
		for _, slot := range w.all {
			slot.mu.Unlock()
		}
	}
}

func (w *world) forget() {
	ids, err := w.someIDs(`UPDATE refund_operations SET provider_key_expires_at = clock_timestamp() - interval '1 hour'
		WHERE state = 'reserved' AND not_sent < attempts - 1 RETURNING operation_id`)
	if err != nil {
		return // there is no database just now
	}
	time.Sleep(2 * lease) // what was let through the gate before is over
	w.alive.Lock()
	defer w.alive.Unlock()
	for _, id := range ids {
		w.forgotten[id] = true
		w.provider.ForgetKey(w.tenant.ProviderKey(id))
	}
}

func (w *world) someIDs(sql string) ([]string, error) {
	rows, err := w.service.DB.Owner.Query(w.t.Context(), sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// calm lets the operations end: all is well again, and time passes.
func (w *world) calm() {
	w.t.Helper()
	w.provider.Heal()
	w.service.DB.Owner.Reset()
	time.Sleep(2 * lease) // what hangs at the provider, and whoever slept, comes to its end
	var open []string
	for began := time.Now(); time.Since(began) < 40*time.Second; time.Sleep(listingLag) {
		w.service.Due(w.t)
		r := harness.Command(w.t, w.service.DB.ServiceURL, append([]string{"reconcile"}, w.service.Flags...)...)
		if r.ExitCode != 0 && r.ExitCode != 3 {
			w.t.Errorf("refundd reconcile exits %d: %s", r.ExitCode, r.Stderr)
		}
		if open = w.open(w.rows(), w.provider.Ledger()); len(open) == 0 {
			return
		}
	}
	w.t.Errorf("reconciliation does not come to rest: %s", strings.Join(open, "\n"))
}

// row is where an operation stands.
type row struct {
	Operation, RefundID, State, FailureCode string
	Cents                                   int64
}

func (w *world) rows() map[string]row {
	w.t.Helper()
	found, err := w.service.DB.Owner.Query(w.t.Context(), `SELECT operation_id, refund_id::text, state,
		coalesce(failure_code, ''), amount_cents FROM refund_operations`)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(found, pgx.RowToStructByPos[row])
	if err != nil {
		w.t.Fatal(err)
	}
	rows := make(map[string]row, len(all))
	for _, r := range all {
		rows[r.Operation] = r
	}
	return rows
}

// open tells which operations have no end, or another one than the provider's books show.
func (w *world) open(rows map[string]row, books map[string]harness.Executed) []string {
	var open []string
	for id, r := range rows {
		paid, executed := books[w.tenant.ProviderKey(id)]
		switch {
		case r.State == "failed" && !executed, executed && paid.Status == r.State:
		case r.State == "needs_attention" && !executed && w.forgotten[id]:
		default:
			open = append(open, fmt.Sprintf("%+v, the provider's books show %q", r, paid.Status))
		}
	}
	return open
}

// judge holds everything against everything.
func (w *world) judge() {
	w.t.Helper()
	rows, books := w.rows(), w.provider.Ledger()
	for _, e := range books {
		id := strings.TrimPrefix(e.Key, w.tenant.ID+":")
		if r, ours := rows[id]; !ours || r.Cents != e.AmountCents {
			w.t.Errorf("the provider executed %+v, and our books show %+v", e, r)
		}
	}
	for _, said := range w.All() {
		r, kept := rows[said.Operation]
		if said.Refund != nil && (!kept || r.RefundID != said.Refund.RefundID) {
			w.t.Errorf("%+v was told, and our books show %+v", said, r)
		}
	}
	w.Hold(w.t, books, w.tenant.ProviderKey, harness.Patience{ToFail: failDelay})
	w.service.Audit(w.t)
	for _, slot := range w.all {
		for _, p := range slot.former {
			for _, sign := range []string{"DATA RACE", "panic:", "fatal error:"} {
				if text := p.Logs.Text(); strings.Contains(text, sign) {
					w.t.Errorf("%s: %s", slot.name, text)
				}
			}
		}
	}
	w.report(rows, books)
}

// report tells what the storm was worth.
func (w *world) report(rows map[string]row, books map[string]harness.Executed) {
	w.t.Helper()
	states, answers := tally{n: map[string]int{}}, tally{n: map[string]int{}}
	for _, r := range rows {
		states.add(strings.TrimSpace(r.State + " " + r.FailureCode))
	}
	for _, said := range w.All() {
		answers.add(said.Says)
	}
	requests := 0
	for _, n := range w.provider.Requests() {
		requests += n
	}
	w.t.Logf("done to it: %v", &w.did)
	w.t.Logf("operations: %v", &states)
	w.t.Logf("the provider executed %d of %d requests", len(books), requests)
	w.t.Logf("answers: %v, and %d exchanges without one", &answers, w.silent.Load())
	if len(books) < 20 {
		w.t.Errorf("only %d refunds were executed: the storm proves nothing", len(books))
	}
}
