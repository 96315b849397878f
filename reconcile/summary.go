package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"refundd/operations"
)

// Summary is what a run did. Claimed counts every operation that it asked its provider about, those included that had
// an outcome before and keep it. The operation that a run moved is counted by where to; one that it did not move and
// that has no end yet is pending where its provider says so, and still unknown otherwise.
type Summary struct {
	Claimed              int64
	Succeeded            int64
	Failed               int64
	Pending              int64 // accepted by the provider, its final word is to come
	Resent               int64 // requests that were sent (again)
	NeedsAttention       int64 // that this run put in front of a human
	StillUnknown         int64
	OldestUnknownSeconds int64 // age, after the run, of the oldest operation that is reserved or pending
	// operations whose finding was not recorded, and providers that were not asked about all that is due
	Errors     int64
	DurationMS int64
	// refunds with an end of which the provider's books show several, or another amount or currency
	Contradicted int64
}

// tally counts and logs decisions while a run makes them.
type tally struct {
	log *slog.Logger
	mu  sync.Mutex
	sum Summary
}

func (t *tally) summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}

func (t *tally) claimed(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Claimed += int64(n)
}

// faulty counts the faults of a run as a whole, and joins them; nil where there are none.
func (t *tally) faulty(all []error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept faults
	for _, fault := range all {
		if _, silent := errors.AsType[*ProviderFault](fault); silent {
			t.sum.Errors++
		}
		if fault != nil {
			kept = append(kept, fault)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// decided counts and logs one operation's. What is as it was before it was claimed is neither.
func (t *tally) decided(r operations.Pursuit, err error) {
	t.count(r, err)
	if r.Untaken && err == nil {
		return
	}
	level, o := slog.LevelInfo, r.Operation
	attributes := []any{
		slog.String("tenant_id", o.TenantID), slog.String("operation_id", o.OperationID), slog.String("order_id",
			o.OrderID),
		slog.String("provider", deref(o.Provider)), slog.String("from_state", string(r.From)), slog.String("to_state",
			string(o.State)),
		slog.Bool("moved", r.Moved), slog.Bool("resent", r.Resent), slog.String("kind", string(r.Kind)),
		slog.String("failure_code", deref(o.FailureCode)),
	}
	switch {
	case err != nil:
		level = slog.LevelError
		attributes = append(attributes, slog.String("error", cause(err)))
	case r.Contradicted, r.Moved && o.State == operations.StateNeedsAttention:
		level = slog.LevelWarn
	}
	t.log.Log(context.Background(), level, "operation reconciled", attributes...)
}

func (t *tally) count(r operations.Pursuit, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Resent {
		t.sum.Resent++
	}
	if r.Contradicted {
		t.sum.Contradicted++
	}
	if err != nil {
		t.sum.Errors++
	}
	switch state := r.Operation.State; {
	case r.Untaken:
		t.sum.Claimed--
	case r.Moved && state == operations.StateSucceeded:
		t.sum.Succeeded++
	case r.Moved && state == operations.StateFailed:
		t.sum.Failed++
	case r.Moved && state == operations.StateNeedsAttention:
		t.sum.NeedsAttention++
	case err != nil:
	case state == operations.StatePending && (r.Moved || !r.Unknown):
		t.sum.Pending++
	case state == operations.StateReserved, state == operations.StatePending, state == operations.StateNeedsAttention:
		t.sum.StillUnknown++
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
