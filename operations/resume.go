package operations

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"refundd/internal/pgtx"
)

// resumeRest is how long a lease must have been free before a caller's retry takes it: retries in a hurry do not hammer
// a provider that does not know.
const resumeRest = time.Second

// sendReserved asks the provider for what the call has reserved, unless its books are to be read first, and answers
// with what came of it. The call to the provider belongs to the operation: the request that began it may end before.
func (e *Engine) sendReserved(c *call, claimed claimed) (Receipt, error) {
	op := *claimed.own
	l := Lease{
		Operation: op, State: op.State, layer: c.Layer, number: c.Attempt, attempts: 1, sends: !claimed.lookFirst,
		paymentRef: claimed.paymentRef, account: claimed.account, takenAt: op.CreatedAt, taken: c.began,
		lastSend: c.began.Add(e.config.ProviderTimeout), attemptedFor: ActorCaller,
	}
	var permit permit
	if p := e.providerOf(op); p != nil {
		l.providerKey, permit = p.setup.key(c.key), p.breaker.admission()
	}
	return e.untilKnown(c, op, func(ctx context.Context) (Pursuit, error) {
		if l.sends {
			return e.send(ctx, l, permit, false)
		}
		return e.pursue(ctx, l, permit)
	})
}

// resume takes up a reservation whose lease is free, as reconciliation would. Where somebody is faster, or was there
// less than resumeRest ago, the row is the answer, and so it is where nothing may be sent.
func (e *Engine) resume(c *call, op Operation) (Receipt, error) {
	p := e.permitted(Lease{Operation: op}, nil)
	if p == nil {
		return c.pending(op), nil
	}
	return e.untilKnown(c, op, func(ctx context.Context) (Pursuit, error) {
		l, err := e.takeOne(ctx, c.key, []State{StateReserved}, resumeRest, c.Layer, ActorCaller)
		if err == nil && l != nil {
			l.number, l.ref = c.Attempt, c.Ref
			return e.pursue(ctx, *l, p)
		}
		p.drop()
		if err != nil {
			return Pursuit{Operation: op}, err
		}
		known, err := readOperations(ctx, e.config.Pool, []operationKey{c.key})
		if err != nil {
			return Pursuit{Operation: op}, err
		}
		return Pursuit{Operation: known[c.key], untouched: true}, nil
	})
}

// untilKnown answers the call with what act finds out about its operation op; where the caller leaves before, or
// nothing is found out, with what is known: the key is reserved, and reconciliation will find out.
func (e *Engine) untilKnown(c *call, op Operation, act func(context.Context) (Pursuit, error)) (Receipt, error) {
	r, err := detached(c.ctx, e, func(ctx context.Context) (Pursuit, error) {
		r, err := act(ctx)
		if err != nil {
			e.config.Logger.Error("provider outcome not recorded", slog.String("operation_id", op.OperationID),
				slog.String("tenant_id", op.TenantID), slog.String("sqlstate", pgtx.SQLState(err)),
				slog.Bool("database_unavailable", errors.Is(err, ErrDatabaseUnavailable)))
		}
		return r, err
	})
	if err != nil {
		return c.pending(op), nil
	}
	return c.pursued(r)
}

// pursued is what the call is told of what became of its operation.
func (c *call) pursued(r Pursuit) (Receipt, error) {
	receipt, err := c.answer(r.Operation)
	op := r.Operation
	switch {
	case r.Moved && op.State == StateSucceeded:
		receipt = Receipt{Status: StatusProcessed, Operation: op}
	case op.State == StateSucceeded:
		receipt.Status, receipt.Replayed = StatusAlreadyProcessed, true
	case r.Moved && op.State == StateFailed:
		err = &Refusal{Err: ErrDeclined, Operation: &op}
	case op.State == StateReserved && !r.untouched:
		receipt, err = c.pending(op), nil // whoever has the lease now, this call ends without an outcome
		receipt.RetryAfter = max(receipt.RetryAfter, r.retryAfter)
	}
	return receipt, err
}
