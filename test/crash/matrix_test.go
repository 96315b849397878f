package crash

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
)

// The roads to a fail point.
const (
	first = "first" // a caller's first request
	again = "again" // a caller's retry of a reservation without an outcome
	job   = "job"   // reconciliation
)

// The places of each road: between every two steps of the protocol.
var (
	firstPlaces = []string{"reserve.uncommitted", "reserve.committed", "send.begun", "send.admitted", out,
		"send.answered",
		"record.uncommitted", "record.committed"}
	againPlaces = []string{"resolve.begun", "lookup.answered", "record.uncommitted", "record.committed",
		"resend.decided", "send.begun",
		"send.admitted", out, "send.answered"}
	serverPlaces = []string{"reserve.uncommitted", "reserve.committed", "resolve.begun", "lookup.answered",
		"resend.decided", "send.begun",
		"send.admitted", out, "send.answered", "record.uncommitted", "record.committed"}
)

// cell is one operation that a kill finds at one place, in one mood of the provider.
type cell struct {
	operation string
	road      string
	place     string
	lost      bool // before the retry or the job: it was sent and its answer lost, else it was never sent
	forgotten bool // after the kill: the provider has forgotten its key
	asks      bool // after the kill: its caller asks again, else reconciliation finds out
}

func cells() []*cell {
	var all []*cell
	for _, c := range []struct {
		road   string
		places []string
		lost   []bool
	}{{first, firstPlaces, []bool{false}}, {again, againPlaces, []bool{false, true}}, {job, againPlaces,
		[]bool{false, true}}} {
		for _, place := range c.places {
			for _, lost := range c.lost {
				for _, forgotten := range []bool{false, true} {
					for _, asks := range []bool{false, true} {
						if c.road != first && lost != (forgotten != asks) {
							continue // half of what is possible: each pair of choices is there
						}
						all = append(all, &cell{operation: fmt.Sprint("K", len(all)), road: c.road, place: place,
							lost:      lost,
							forgotten: forgotten, asks: asks})
					}
				}
			}
		}
	}
	return all
}

func pick(all []*cell, wanted func(*cell) bool) []*cell {
	var some []*cell
	for _, c := range all {
		if wanted(c) {
			some = append(some, c)
		}
	}
	return some
}

// Kill −9 at every place, on every road, in the moods of the provider; then the provider recovers, callers ask again,
// reconciliation runs, and everybody's books agree.
func TestMatrix_KillEverywhere_ProviderExecutesOnceAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	all := moods()
	if fewMoods {
		all = slices.DeleteFunc(all, func(m mood) bool { return !m.asksMost })
	}
	matrix(t, all, false)
}

func matrix(t *testing.T, moods []mood, atStripe bool) {
	t.Helper()
	var mu sync.Mutex
	reached := map[string]int{}
	size := 0
	t.Run("moods", func(t *testing.T) {
		for _, m := range moods {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, m, atStripe)
				all := cells()
				w.run(all)
				mu.Lock()
				defer mu.Unlock()
				size += len(all)
				for place, n := range w.reached {
					reached[place] += n
				}
			})
		}
	})
	total := 0
	for _, place := range sortedKeys(reached) {
		t.Logf("%4d operations were killed at %s", reached[place], place)
		total += reached[place]
	}
	t.Logf("%d cells, %d operations killed at a place, those included that were left without an outcome on purpose",
		size, total)
	for by, places := range map[string][]string{"serve": serverPlaces, "reconcile": againPlaces} {
		for _, place := range places {
			if reached[by+" "+place] == 0 {
				t.Errorf("no kill of %s found an operation at %s", by, place)
			}
		}
	}
}

func (w *world) run(all []*cell) {
	w.t.Helper()
	w.pay(all)
	w.strike(all)
	steady := w.service.AddServer(w.t, "--provider-timeout", w.mood.timeout.String())
	c := w.tenant.ClientOf(steady)
	asking := pick(all, func(c *cell) bool { return c.asks })
	w.askAll(c, asking) // most leases still live
	if w.mood.delay > 0 && w.mood.delay < time.Minute {
		time.Sleep(w.mood.delay) // what was scheduled at the provider happens
	}
	w.forget(pick(all, func(c *cell) bool { return c.forgotten }))
	if strings.HasPrefix(w.mood.name, "lookup") {
		w.service.Due(w.t)
		w.service.Reconcile(w.t, "--provider-timeout", w.mood.timeout.String())
	}
	w.provider.Heal()
	w.Until = time.Now()
	w.free(asking)
	w.askAll(c, asking)
	w.settle("--provider-timeout", w.mood.timeout.String())
	w.judge(c, all)
}

func (w *world) pay(all []*cell) {
	payments := make([]harness.Payment, len(all))
	for i, c := range all {
		payments[i] = harness.Payment{OrderID: c.operation, Cents: 2 * cents}
	}
	w.tenant.Pay(payments...)
}

// strike kills servers and jobs with the cells' operations at their places.
func (w *world) strike(all []*cell) {
	w.t.Helper()
	w.doomServer("send.admitted", pick(all, func(c *cell) bool { return c.road != first && !c.lost }), nil)
	w.doomServer("send.answered", pick(all, func(c *cell) bool { return c.road != first && c.lost }), nil)
	for _, place := range serverPlaces {
		if place == out {
			w.linger()
		}
		w.doomServer(place,
			pick(all, func(c *cell) bool { return c.road == first && c.place == place }),
			pick(all, func(c *cell) bool { return c.road == again && c.place == place }))
		if jobs := pick(all, func(c *cell) bool { return c.road == job && c.place == place }); len(jobs) > 0 {
			w.free(jobs)
			w.doomJob(place, jobs)
		}
		if place == out {
			w.hurry()
		}
	}
}

// askAll lets the callers of the cells ask once.
func (w *world) askAll(c harness.Client, cells []*cell) {
	w.t.Helper()
	var callers sync.WaitGroup
	for lane := range 4 {
		callers.Go(func() {
			for i := lane; i < len(cells); i += 4 {
				w.Ask(w.t, c, cells[i].operation, cells[i].operation, cents, time.Minute)
			}
		})
	}
	callers.Wait()
}

// judge holds the world at rest against the provider's books, and against what everybody was told.
func (w *world) judge(c harness.Client, all []*cell) {
	w.t.Helper()
	rows, books := w.rows(), w.provider.Ledger()
	for _, cell := range all {
		paid, executed := books[w.tenant.ProviderKey(cell.operation)]
		r, reserved := rows[cell.operation]
		switch {
		case r.State == "needs_attention":
			w.wantEvidence(c, cell, r)
		case reserved && !executed && w.mood.fault != "decline":
			w.t.Errorf("%+v: %+v, though nothing kept it from being executed", *cell, r)
		case executed && paid.AmountCents != cents:
			w.t.Errorf("%+v: executed as %+v", *cell, paid)
		}
		w.wantTruth(c, cell, r, reserved)
	}
	w.settle()
	rows = w.rows()
	for key := range w.provider.Requests() {
		if _, ours := rows[strings.TrimPrefix(key, w.tenant.ID+":")]; !ours {
			w.t.Errorf("the provider was asked with the key %q", key)
		}
	}
	w.Hold(w.t, w.provider.Ledger(), w.tenant.ProviderKey, w.Patience)
	w.service.Audit(w.t)
}

// wantEvidence wants a human to be told why, and nothing that the service could have found out by itself.
func (w *world) wantEvidence(c harness.Client, cell *cell, r row) {
	w.t.Helper()
	timeline := string(c.Get(harness.RefundPath(cell.operation) + "/events").Body)
	if !cell.forgotten || r.FailureCode != "provider_key_expired" ||
		!strings.Contains(timeline, `"failure_code":"provider_key_expired"`) ||
		!strings.Contains(timeline, `"not_found"`) {
		w.t.Errorf("%+v needs attention: %+v, with the evidence %s", *cell, r, timeline)
	}
}

// wantTruth wants the same operation, asked for once more, to be answered as it stands.
func (w *world) wantTruth(c harness.Client, cell *cell, r row, reserved bool) {
	w.t.Helper()
	says := map[string]string{"succeeded": "already_processed", "failed": "refund_declined",
		"needs_attention": "operation_needs_attention"}[r.State]
	if !reserved {
		says = "processed" // the kill came before the reservation, and nobody asked since
	}
	said, _ := w.Ask(w.t, c, cell.operation, cell.operation, cents, time.Minute)
	if said.Says != says {
		w.t.Errorf("%+v is %+v, and its caller is told %s", *cell, r, said.Says)
	}
}
