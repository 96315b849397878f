package operations

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"

	"refundd/internal/pgtx"
)

// How long an outcome in hand waits until it is offered to the database again; the wait doubles up to the most.
const (
	firstOffer = 100 * time.Millisecond
	lastOffer  = time.Second
)

// record takes a fact through tx 2, in company of others. It belongs to the operation, not to a caller: the end of ctx
// ends nothing, and it is offered to the database until the lease ends, since whoever finds the lease run out has to
// ask the provider again. What the database refuses for good is set aside.
func (e *Engine) record(ctx context.Context, f fact) recorded {
	for wait := firstOffer; ; wait = min(2*wait, lastOffer) {
		r := e.offer(ctx, f)
		_, told := errors.AsType[*Refusal](r.err)
		switch {
		case r.err == nil, told:
			return r
		case refusedForGood(r.err):
			return e.setAside(ctx, f, r.err)
		case errors.Is(r.err, ErrOverloaded), !f.lease.alive(e.config.Lease - wait):
			return recorded{operation: f.lease.Operation, err: r.err}
		}
		time.Sleep(wait)
	}
}

// offer takes a fact through tx 2 once.
func (e *Engine) offer(ctx context.Context, f fact) recorded {
	ctx = context.WithoutCancel(ctx)
	lane := orderLane(f.lease.Operation.ledgerEntry().OrderKey)
	r, err := e.records.Do(ctx, lane, &f)
	if errors.Is(err, errHeld) {
		r, err = e.patientRecords.Do(ctx, lane, &f)
	}
	if err != nil {
		return recorded{err: err}
	}
	return r
}

// setAside records, instead of a fact that the database refuses, that there was one. The operation backs off as after
// any attempt that brought nothing, and reaches a human at the same age, with what was found in its history. A person
// whose decision is refused is told so, and nothing else changes.
func (e *Engine) setAside(ctx context.Context, f fact, why error) recorded {
	if f.source == sourceHuman {
		f = fact{lease: f.lease, source: sourceLookup, kind: ErrorNotSent, silent: true}
	}
	f.detail = merged(f.detail, "not_recorded", callLabel(f.result, f.kind))
	f.result = ProviderResult{RequestID: f.result.RequestID}
	if f.kind != ErrorNotSent {
		f.kind = ErrorUnknown
	}
	r := e.offer(ctx, f)
	if r.err != nil {
		r.operation = f.lease.Operation
	}
	r.err = why
	return r
}

// refusedForGood tells whether the database would refuse the same again: a constraint, a trigger or a privilege does.
func refusedForGood(err error) bool {
	switch code := pgtx.SQLState(err); {
	case errors.Is(err, ErrDatabaseUnavailable), errors.Is(err, ErrDeadlineExceeded), errors.Is(err, ErrOverloaded):
		return false
	case pgerrcode.IsInsufficientResources(code), pgerrcode.IsOperatorIntervention(code), pgerrcode.IsSystemError(code):
		return false
	}
	return true
}
