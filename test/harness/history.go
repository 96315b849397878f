package harness

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Told is one answer that a caller got about a refund.
type Told struct {
	Operation    string
	Cents        int64     // that the caller asked for; 0 where it asked for nothing
	Began, Ended time.Time // of the exchange
	Says         string
	Moved        string
	Refund       *Refund // where the answer was no problem
}

// History is all that callers were told. Its methods may be called from any goroutine.
type History struct {
	mu  sync.Mutex
	all []Told
}

// All is what was told so far.
func (h *History) All() []Told {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Told(nil), h.all...)
}

// Ask refunds once and takes down the answer, if one comes within wait.
func (h *History) Ask(t testing.TB, c Client, operation, order string, cents int64, wait time.Duration) (said Told,
	heard bool) {
	t.Helper()
	said = Told{Operation: operation, Cents: cents, Began: time.Now()}
	a, err := c.Try(Request{Method: http.MethodPost, Path: "/v1/refunds", Valid: true, Wait: wait,
		Body: JSON(Fields{"operation_id": operation, "order_id": order, "amount_cents": cents})})
	if err != nil {
		return said, false
	}
	if said.Says = a.Says(); a.Status < 300 {
		r := Read[Receipt](t, a)
		said.Moved, said.Refund = r.MoneyMoved, &r.Refund
	} else {
		said.Moved = Read[Problem](t, a).MoneyMoved
	}
	return h.add(said), true
}

// Look reads a refund once and takes down the answer, if one comes within wait.
func (h *History) Look(t testing.TB, c Client, operation string, wait time.Duration) {
	t.Helper()
	said := Told{Operation: operation, Began: time.Now()}
	a, err := c.Try(Request{Method: http.MethodGet, Path: RefundPath(operation), Valid: true, Wait: wait})
	if err != nil {
		return
	}
	if said.Says = a.Code(); a.Status < 300 {
		r := Read[Refund](t, a)
		said.Says, said.Moved, said.Refund = r.State, r.MoneyMoved, &r
	} else {
		said.Moved = Read[Problem](t, a).MoneyMoved
	}
	h.add(said)
}

func (h *History) add(said Told) Told {
	said.Ended = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, said)
	return said
}

// Patience is how long the provider takes for what it does later, with refunds that it executes until a time; for ever
// where none is set.
type Patience struct {
	ToSucceed, ToFail time.Duration
	Until             time.Time
}

// succeeded is when the money moved.
func (p Patience) succeeded(paid Executed) time.Time {
	if !p.Until.IsZero() && paid.CreatedAt.After(p.Until) {
		return paid.CreatedAt
	}
	return paid.CreatedAt.Add(p.ToSucceed)
}

// slack is how far apart "executed" and "answered" may be noted though they were in order: the same clock, two
// processes.
const slack = 5 * time.Millisecond

// Hold holds what was told against the provider's books, by keys: every "yes" and every "no" must have been true when
// it was said, and the receipts of one refund must be one receipt.
func (h *History) Hold(t testing.TB, books map[string]Executed, key func(operation string) string, p Patience) {
	t.Helper()
	receipts := map[string]Refund{}
	for _, said := range h.All() {
		paid, executed := books[key(said.Operation)]
		switch {
		case said.Moved == "yes" && (!executed || p.succeeded(paid).After(said.Ended.Add(slack))):
			t.Errorf("%s: told %s at %v, and the provider's books show %+v", said.Operation, said.Says,
				said.Ended, paid)
		case said.Moved == "yes" && said.Refund != nil && said.Refund.AmountCents != paid.AmountCents:
			t.Errorf("%s: told that %d moved, and the provider's books show %+v", said.Operation,
				said.Refund.AmountCents, paid)
		case said.Moved == "no" && executed && said.untrue(paid, p):
			t.Errorf("%s: told %s, asked at %v and answered at %v, and the provider had executed it: %+v",
				said.Operation, said.Says, said.Began, said.Ended, paid)
		}
		if said.Moved != "yes" || said.Refund == nil {
			continue
		}
		if first, known := receipts[said.Operation]; known && !cmp.Equal(first, *said.Refund) {
			t.Errorf("%s has two receipts: %s", said.Operation, cmp.Diff(first, *said.Refund))
		}
		receipts[said.Operation] = *said.Refund
	}
}

// untrue tells whether "no money moved" was a lie: it had moved and not come back. A failure is final: whatever was
// executed before the answer makes it untrue. Another refusal may have been overtaken by a second caller's request
// while it travelled, and of a conflict it is said of the refund that was asked for.
func (said Told) untrue(paid Executed, p Patience) bool {
	at := said.Began
	switch said.Says {
	case "refund_declined", "failed":
		at = said.Ended
	case "operation_id_conflict":
		if paid.AmountCents != said.Cents {
			return false
		}
	}
	if !p.succeeded(paid).Before(at.Add(-slack)) {
		return false
	}
	return paid.Status != "failed" || paid.CreatedAt.Add(p.ToFail).After(said.Ended.Add(slack))
}
