package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/test/harness"
)

const cents = 700

// mood is how the provider misbehaves while refundd is killed.
type mood struct {
	name    string
	fault   string // its mode; "" for none
	delay   time.Duration
	timeout time.Duration // of a call to the provider
	harness.Patience
	asksMost bool // of the protocol: where few moods are to do, it is one of them
}

const (
	settleDelay = 300 * time.Millisecond
	failDelay   = 500 * time.Millisecond
	hangDelay   = 600 * time.Millisecond
	callTimeout = 3 * time.Second        // until when a send counts as running, though its sender was killed
	lag         = 200 * time.Millisecond // of the provider's listing, as refundd is told
)

func moods() []mood {
	const timeout = callTimeout
	list := []mood{{name: "none", timeout: timeout}}
	for _, fault := range []string{"error_before", "error_after", "drop_before", "drop_after", "refuse", "decline",
		"lookup_down"} {
		list = append(list, mood{name: fault, fault: fault, timeout: timeout, asksMost: fault == "drop_after" ||
			fault == "decline"})
	}
	return append(list,
		mood{name: "hang", fault: "hang", delay: hangDelay, timeout: hangDelay / 2, asksMost: true},
		mood{name: "pending", fault: "pending", delay: settleDelay, timeout: timeout,
			Patience: harness.Patience{ToSucceed: settleDelay}},
		mood{name: "fail_later", fault: "fail_later", delay: failDelay, timeout: timeout,
			Patience: harness.Patience{ToFail: failDelay},
			asksMost: true},
		mood{name: "lookup_lag", fault: "lookup_lag", delay: time.Hour, timeout: timeout},
	)
}

// world is a service and a provider of one mood, and the operations that are to be caught in it.
type world struct {
	harness.History
	harness.Patience
	t        *testing.T
	mood     mood
	service  *harness.Service
	provider harness.Provider
	tenant   *harness.Tenant
	reached  map[string]int // fail points that a kill found operations at, by road and place
}

func newWorld(t *testing.T, m mood, atStripe bool) *world {
	t.Helper()
	flags := []string{"--listing-lag", lag.String(), "--provider-breaker-failures", "1000000", "--pool-size", "6"}
	w := &world{t: t, mood: m, Patience: m.Patience, reached: map[string]int{}}
	if atStripe {
		w.service = harness.NewAtStripe(t, flags...)
		w.provider = w.service.Stripe
	} else {
		w.service = harness.NewPaying(t, flags...)
		w.provider = w.service.Simulator
	}
	w.tenant = w.service.OpenTenant(t)
	w.misbehave()
	return w
}

// misbehave puts the provider in its mood.
func (w *world) misbehave() {
	if w.mood.fault != "" {
		w.provider.Fault(w.mood.fault, harness.After(w.mood.delay))
	}
}

// linger puts it in its mood and makes it take its time over it, so that a kill finds requests at the provider.
func (w *world) linger() {
	switch w.mood.fault {
	case "error_before", "error_after", "drop_before", "drop_after", "refuse":
		w.provider.Fault(w.mood.fault, harness.After(hangDelay))
	default:
		w.provider.Fault("hang", harness.After(hangDelay))
	}
}

// hurry ends the lingering.
func (w *world) hurry() {
	if w.mood.fault != "hang" {
		w.provider.Fault("hang", harness.Times(0))
	}
	w.misbehave()
}

// Processes that are to be killed hold their leases until time is moved, and never come back to an operation by
// themselves.
func (w *world) doomedFlags(place string) []string {
	timeout := w.mood.timeout
	if place == out {
		timeout = callTimeout
	}
	return append(slices.Clone(w.service.Flags), "--provider-timeout", timeout.String(), "--lease", "15m",
		"--backoff-min", "1h")
}

// out is where a request is at the provider: no fail point is needed to kill refundd there.
const out = "out"

func failpoint(place string) []string {
	if place == out {
		return nil
	}
	return []string{"REFUNDD_FAILPOINT=" + place + ":1:wait=/nowhere"}
}

// doomServer lets callers ask for operations, some of them again, at a server until each has reached the place or an
// answer, and kills it there.
func (w *world) doomServer(place string, new, old []*cell) {
	w.t.Helper()
	cells := slices.Concat(new, old)
	w.free(old)
	before := w.provider.Requests()
	server := harness.ServeIn(w.t, w.service.DB.ServiceURL, failpoint(place), w.doomedFlags(place)...)
	c := w.tenant.ClientOf(server)
	var answers sync.WaitGroup
	var mu sync.Mutex
	answered := 0
	for _, cell := range cells {
		answers.Go(func() {
			if _, heard := w.Ask(w.t, c, cell.operation, cell.operation, cents, time.Minute); heard {
				mu.Lock()
				defer mu.Unlock()
				answered++
			}
		})
	}
	w.await("serve", place, before, cells, server.Process, func() int {
		mu.Lock()
		defer mu.Unlock()
		return answered
	})
	server.Kill()
	answers.Wait()
}

// doomJob lets reconciliation find operations until each has reached the place or was decided, and kills it there.
func (w *world) doomJob(place string, cells []*cell) {
	w.t.Helper()
	before := w.provider.Requests()
	job := harness.Spawn(w.t, w.service.DB.ServiceURL, failpoint(place),
		append([]string{"reconcile"}, w.doomedFlags(place)...)...)
	w.await("reconcile", place, before, cells,
		job, func() int { return strings.Count(job.Logs.Text(), `"operation reconciled"`) })
	job.Kill()
}

// await waits until every cell is at the place or through, or nothing more arrives: where operations take turns, the
// first ones at the place keep the others from it.
func (w *world) await(by, place string, before map[string]int, cells []*cell, p *harness.Process, through func() int) {
	w.t.Helper()
	arrived, last := 0, time.Now()
	for began := time.Now(); ; time.Sleep(3 * time.Millisecond) {
		n := 0
		if place == out {
			now := w.provider.Requests()
			for _, c := range cells {
				if key := w.tenant.ProviderKey(c.operation); now[key] > before[key] {
					n++
				}
			}
		} else {
			n = strings.Count(p.Logs.Text(), "failpoint "+place)
		}
		if n > arrived {
			arrived, last = n, time.Now()
		}
		quiet := 250 * time.Millisecond
		if arrived < 2 { // all of them in one batch, or the second on its way
			quiet = 2 * time.Second
		}
		turns := takesTurns(place) && arrived > 0 && time.Since(last) > quiet
		if arrived+through() >= len(cells) || turns || p.Ended() {
			break
		}
		if time.Since(began) > time.Minute {
			w.t.Fatalf("%s: %d arrive, %d are through, of %d\n%s", place, arrived, through(), len(cells), p.Logs.Text())
		}
	}
	w.reached[by+" "+place] += arrived
}

// takesTurns tells whether operations reach a place a batch at a time.
func takesTurns(place string) bool {
	return strings.HasPrefix(place, "reserve.") || strings.HasPrefix(place, "record.")
}

func operationsOf(cells []*cell) []string {
	ids := make([]string, len(cells))
	for i, c := range cells {
		ids[i] = c.operation
	}
	return ids
}

// free lets time pass for these operations alone: whoever had their leases lost them, and reconciliation is due for
// them.
func (w *world) free(cells []*cell) {
	w.t.Helper()
	ids := operationsOf(cells)
	w.tenant.Exec(`UPDATE refund_operations SET lease_until = CASE WHEN operation_id = ANY ($1) THEN '-infinity'
		ELSE lease_until END,
		next_check_at = CASE WHEN operation_id = ANY ($1) THEN '-infinity'::timestamptz ELSE 'infinity' END`, ids)
}

// forget lets a day pass after which the provider has forgotten the keys of these operations.
func (w *world) forget(cells []*cell) {
	w.t.Helper()
	w.tenant.Exec(`UPDATE refund_operations SET provider_key_expires_at = clock_timestamp() - interval '1 hour'
		WHERE operation_id = ANY ($1)`, operationsOf(cells))
	for _, c := range cells {
		w.provider.ForgetKey(w.tenant.ProviderKey(c.operation))
	}
}

// row is where an operation stands.
type row struct {
	State       string
	FailureCode string
}

func (w *world) rows() map[string]row { return rowsOf(w.t, w.service) }

func rowsOf(t *testing.T, s *harness.Service) map[string]row {
	t.Helper()
	found, err := s.DB.Owner.Query(t.Context(), `SELECT operation_id, state, coalesce(failure_code, '')
		FROM refund_operations`)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	var id string
	var r row
	if _, err := pgx.ForEachRow(found,
		[]any{&id, &r.State, &r.FailureCode}, func() error { rows[id] = r; return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

// unrest tells what keeps the world from rest: operations without an end, or another end than the provider's books
// show.
func (w *world) unrest(rows map[string]row, books map[string]harness.Executed) []string {
	var open []string
	for id, r := range rows {
		paid, executed := books[w.tenant.ProviderKey(id)]
		switch {
		case r.State == "reserved", r.State == "pending",
			executed && paid.Status != r.State,
			!executed && r.State == "succeeded":
			open = append(open, fmt.Sprintf("%s is %s %s, the provider's books show %q", id, r.State, r.FailureCode,
				paid.Status))
		}
	}
	return slices.Sorted(slices.Values(open))
}

// settle reconciles until nothing is open.
func (w *world) settle(flags ...string) {
	w.t.Helper()
	var open []string
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(lag) {
		w.service.Due(w.t)
		w.service.Reconcile(w.t, flags...)
		if open = w.unrest(w.rows(), w.provider.Ledger()); len(open) == 0 {
			return
		}
	}
	w.t.Errorf("reconciliation does not come to rest: %s", strings.Join(open, "\n"))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
