package crash

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

// told is one answer that a caller got about an operation.
type told struct {
	operation    string
	began, ended time.Time // of the exchange
	says         string
	moved        string
	refund       *harness.Refund // where the answer was no problem
}

// history is all that callers were told.
type history struct {
	mu  sync.Mutex
	all []told
}

// hear takes down what an answer says of an operation.
func (h *history) hear(t *testing.T, operation string, began time.Time, a harness.Answer) told {
	said := told{operation: operation, began: began, ended: time.Now(), says: a.Says()}
	if a.Status < 300 {
		r := harness.Read[harness.Receipt](t, a)
		said.moved, said.refund = r.MoneyMoved, &r.Refund
	} else {
		said.moved = harness.Read[harness.Problem](t, a).MoneyMoved
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, said)
	return said
}

// ask refunds once and takes down the answer; no answer is none.
func (h *history) ask(t *testing.T, c harness.Client, operation, order string, cents int64, wait time.Duration) (said told, heard bool) {
	began := time.Now()
	a, err := c.Try(harness.Request{Method: http.MethodPost, Path: "/v1/refunds", Valid: true, Wait: wait,
		Body: harness.JSON(harness.Fields{"operation_id": operation, "order_id": order, "amount_cents": cents})})
	if err != nil {
		return told{operation: operation, began: began}, false
	}
	return h.hear(t, operation, began, a), true
}

// patience is how long the provider takes for what it does later, with refunds that it executes until a time.
type patience struct {
	toSucceed, toFail time.Duration
	until             time.Time
}

// succeeded is when the money moved.
func (p patience) succeeded(paid harness.Executed) time.Time {
	if paid.CreatedAt.After(p.until) {
		return paid.CreatedAt
	}
	return paid.CreatedAt.Add(p.toSucceed)
}

// slack is how far apart "executed" and "answered" may be noted though they were in order: the same clock, two processes.
const slack = 5 * time.Millisecond

// hold holds what was told against the provider's books.
func (h *history) hold(t *testing.T, books map[string]harness.Executed, key func(operation string) string, p patience) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	receipts := map[string]harness.Refund{}
	for _, said := range h.all {
		paid, executed := books[key(said.operation)]
		switch {
		case said.moved == "yes" && (!executed || p.succeeded(paid).After(said.ended.Add(slack))):
			t.Errorf("%s: told %s at %v, and the provider's books show %+v", said.operation, said.says, said.ended, paid)
		case said.moved == "no" && executed && said.untrue(paid, p):
			t.Errorf("%s: told %s, asked at %v and answered at %v, and the provider had executed it: %+v",
				said.operation, said.says, said.began, said.ended, paid)
		}
		if said.moved != "yes" || said.refund == nil {
			continue
		}
		if first, known := receipts[said.operation]; known && !cmp.Equal(first, *said.refund) {
			t.Errorf("%s has two receipts: %s", said.operation, cmp.Diff(first, *said.refund))
		}
		receipts[said.operation] = *said.refund
	}
}

// untrue tells whether "no money moved" was a lie: it had moved and not come back. A decline is final: whatever was executed
// before the answer makes it untrue. Another refusal may have been overtaken by a second caller's request while it travelled.
func (said told) untrue(paid harness.Executed, p patience) bool {
	at := said.began
	if said.says == "refund_declined" {
		at = said.ended
	}
	if !p.succeeded(paid).Before(at.Add(-slack)) {
		return false
	}
	return paid.Status != "failed" || paid.CreatedAt.Add(p.toFail).After(said.ended.Add(slack))
}
