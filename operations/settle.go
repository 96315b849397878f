package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

// Why a human's decision, or a wish to look at once, is refused.
var (
	// ErrResolutionConflict reports a decision about an operation that does not wait for one, or that was decided
	// otherwise.
	ErrResolutionConflict = errors.New("operation does not wait for this resolution")
	// ErrProviderDisagrees reports a decision that the provider's books contradict.
	ErrProviderDisagrees = errors.New("provider disagrees")
)

// Decision is a human's word on an operation that needs attention.
type Decision struct {
	TenantID         string
	OperationID      string
	Succeeded        bool // else it failed
	Evidence         string
	ProviderRefundID *string // as the person names it: a claim, kept as evidence
	// decide although the provider can not be asked, or its books may lag or contradict themselves
	Override   bool
	Actor      string  // the API key that decides
	ResolvedBy *string // the name that it gave
}

// Reconcile looks an operation up at its provider now, in any state, and answers it as it then stands, also where the
// provider could not be reached. While somebody works on it it is a Refusal of ErrInProgress.
func (e *Engine) Reconcile(ctx context.Context, tenantID, operationID string) (Operation, error) {
	op, err := e.Refund(ctx, tenantID, operationID)
	if err != nil || e.providerOf(op) == nil {
		return op, err // without a provider there is nothing to ask, and without one that is configured nobody
	}
	return e.whileLeased(ctx, op, ActorOperator, func(ctx context.Context, l Lease) (Operation, error) {
		l.probe = true // where our credentials are refused, the row stays as it is
		r, err := e.Pursue(ctx, l)
		return r.Operation, err
	})
}

// Resolve carries out a human's decision. It asks the provider first, whatever its breaker says: a decision against its
// books is refused, changes nothing, and makes reconciliation, which will record what they prove, due at once. Where it
// answers no error the decision stands.
func (e *Engine) Resolve(ctx context.Context, d Decision) (Operation, error) {
	op, err := e.Refund(ctx, d.TenantID, d.OperationID)
	if err != nil {
		return op, err
	}
	if op.State != StateNeedsAttention {
		return e.resolvedAlike(ctx, d, op)
	}
	return e.whileLeased(ctx, op, d.Actor, func(ctx context.Context, l Lease) (Operation, error) {
		if l.State != StateNeedsAttention {
			op, err := e.giveBack(ctx, l, nil) // somebody settled it since it was read; it may have been decided alike
			if err != nil {
				return op, err
			}
			return e.resolvedAlike(ctx, d, op)
		}
		return e.resolve(ctx, d, l)
	})
}

// whileLeased does act under the operation's lease, and goes on with it if the caller leaves.
func (e *Engine) whileLeased(ctx context.Context, op Operation, who string,
	act func(context.Context, Lease) (Operation, error)) (
	Operation, error,
) {
	return detached(ctx, e, func(ctx context.Context) (Operation, error) {
		states := []State{StateReserved, StatePending, StateSucceeded, StateFailed, StateNeedsAttention}
		l, err := e.takeOne(ctx, operationKey{op.TenantID, op.OperationID}, states, 0, "", who)
		switch {
		case err != nil:
			return op, err
		case l == nil:
			return op, &Refusal{Err: ErrInProgress, Operation: &op, RetryAfter: leaseRetry}
		}
		return act(ctx, *l)
	})
}

// resolve decides under the lease, after a fresh look at the provider's books.
func (e *Engine) resolve(ctx context.Context, d Decision, l Lease) (Operation, error) {
	if wait := l.lagLeft; wait > 0 && !d.Override {
		return e.giveBack(ctx, l, &Refusal{Err: ErrInProgress, Operation: &l.Operation, RetryAfter: wait})
	}
	f := e.lookup(ctx, l)
	failpoint("settle.looked")
	switch {
	case d.contradicts(f):
		f.noted = true
		r := e.record(ctx, f)
		if r.err != nil {
			return l.Operation, r.err
		}
		return r.operation, refuse(ErrProviderDisagrees, &r.operation)
	case f.unreachable() && !d.Override:
		return e.giveBack(ctx, l,
			&Refusal{Err: ErrProviderUnavailable, Operation: &l.Operation, RetryAfter: e.config.BreakerOpen})
	}
	r := e.record(ctx, d.fact(l, f))
	switch {
	case r.err != nil:
		return r.operation, r.err
	// too late, by the lease: it is to be looked at again
	case r.change.stale && r.operation.State == StateNeedsAttention:
		return r.operation, &Refusal{Err: ErrInProgress, Operation: &r.operation, RetryAfter: leaseRetry}
	case r.change.stale:
		return e.resolvedAlike(ctx, d, r.operation)
	}
	return r.operation, nil
}

// contradicts tells whether the provider's books say otherwise. A refund that is pending there may still be paid; books
// that contradict themselves show something of ours, of which only an override may say what became of it.
func (d Decision) contradicts(f fact) bool {
	switch {
	case f.kind == ErrorContradictory:
		return !d.Override
	case d.Succeeded:
		return f.is(OutcomeDeclined)
	}
	return f.is(OutcomeSucceeded) || f.is(OutcomePending)
}

// unreachable tells whether the provider's books could not be read.
func (f fact) unreachable() bool {
	return f.kind == ErrorUnknown || f.kind == ErrorNotSent || f.kind == ErrorMisconfigured
}

// fact is the decision as tx 2 takes it, with what the look at the provider showed. The refund's name at the provider
// is what was seen there, never what a person says.
func (d Decision) fact(l Lease, seen fact) fact {
	f := fact{
		lease: l, source: sourceHuman, override: d.Override,
		unchecked: d.Override && (seen.unreachable() || seen.kind == ErrorNotFound && l.lagLeft > 0),
		detail: merged(nil, "evidence", d.Evidence, "resolved_by", deref(d.ResolvedBy),
			"claimed_provider_refund_id", deref(d.ProviderRefundID),
			detailShows, callLabel(seen.result, seen.kind), detailShown, seen.shown),
	}
	if d.Override {
		f.detail["override"] = "true"
	}
	f.result = ProviderResult{Outcome: OutcomeSucceeded, ProviderRefundID: seen.result.ProviderRefundID}
	if !d.Succeeded {
		f.result.Outcome, f.result.DeclineCode = OutcomeDeclined, FailureResolvedByOperator
	}
	return f
}

// giveBack frees a lease that came to nothing, and answers why.
func (e *Engine) giveBack(ctx context.Context, l Lease, why error) (Operation, error) {
	r := e.record(ctx, fact{lease: l, source: sourceLookup, kind: ErrorNotSent, silent: true})
	if r.err != nil {
		return l.Operation, r.err
	}
	return r.operation, why
}

// resolvedAlike answers a decision about an operation that has an end: the same again where a human ended it so.
func (e *Engine) resolvedAlike(ctx context.Context, d Decision, op Operation) (Operation, error) {
	var alike bool
	err := e.query(ctx, func(rows pgx.Rows) (err error) {
		alike, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
		return err
	}, `SELECT coalesce((SELECT detail->>'outcome' = $4 FROM operation_events
			WHERE tenant_id = $1 AND operation_id = $2 AND kind = $3 AND NOT detail ? 'stale'
				ORDER BY seq DESC LIMIT 1), false)`,
		d.TenantID, d.OperationID, string(sourceHuman), string(d.fact(Lease{}, fact{}).result.Outcome))
	if err != nil {
		return op, fmt.Errorf("read resolution: %w", err)
	}
	ended := StateFailed
	if d.Succeeded {
		ended = StateSucceeded
	}
	if !alike || op.State != ended {
		return Operation{}, refuse(ErrResolutionConflict, &op)
	}
	return op, nil
}

// errPreview rolls a preview back.
var errPreview = errors.New("preview")

// Preview looks a due operation up and answers what Resolve would make of it, without sending and without recording.
func (e *Engine) Preview(ctx context.Context, l Lease) (Pursuit, error) {
	if l.sends {
		return Pursuit{Operation: l.Operation, From: l.State, Resent: true, Unknown: true}, nil
	}
	f := e.lookup(ctx, l)
	if l.inVain(f) {
		return Pursuit{Operation: l.Operation, From: l.State, Untaken: true, Kind: f.kind}, nil
	}
	var r recorded
	err := pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) error {
		held, err := e.lockForRecord(ctx, tx, []*fact{&f}, true)
		if err != nil {
			return err
		}
		row, err := held.row(&f)
		if err != nil {
			return fmt.Errorf("preview: %w", err)
		}
		row.leased = true // as it would be in a run
		c := row.decide(f, held.remainders[row.ledgerEntry().OrderKey])
		r = recorded{operation: c.apply(row.Operation, held.at), change: c, moved: row.State != c.state}
		return errPreview
	})
	if !errors.Is(err, errPreview) {
		return Pursuit{Operation: l.Operation, From: l.State, Unknown: true}, err
	}
	return l.pursuit(f, r, r.change.resend), nil
}
