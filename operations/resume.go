package operations

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"

	"refundd/internal/pgtx"
)

// resumeRest is how long a lease must have been free before a caller's retry takes it: retries in a hurry do not hammer a
// provider that does not know.
const resumeRest = time.Second

// proceed sends what the call has reserved. The call to the provider belongs to the operation: the request that began it may
// end before.
func (e *Engine) proceed(c *call, op Operation, order Order) {
	l := Lease{
		Operation: op, State: op.State, layer: c.Layer, number: c.Attempt, attempts: 1, sends: true, paymentRef: deref(order.ProviderPaymentRef),
		takenAt: op.CreatedAt, taken: c.began, attemptedFor: ActorCaller,
	}
	if p := e.providerOf(op); p != nil {
		l.providerKey = p.setup.key(c.key)
	}
	permit := c.permit
	c.permit = nil
	e.detach(c, op, func(ctx context.Context) (Resolution, error) { return e.send(ctx, l, permit, false) })
}

// resume takes up a reservation whose lease is free, as reconciliation would. Where somebody is faster, or was there less than
// resumeRest ago, the row is the answer.
func (e *Engine) resume(c *call, op Operation) {
	if p := e.providerOf(op); p == nil || p.breaker.circuit.State() == gobreaker.StateOpen {
		c.answer <- answer{receipt: c.pending(op)}
		return
	}
	e.detach(c, op, func(ctx context.Context) (Resolution, error) {
		l, err := e.takeOne(ctx, c.key, []State{StateReserved}, resumeRest, c.Layer, ActorCaller)
		if err != nil {
			return Resolution{Operation: op}, err
		}
		if l != nil {
			l.number = c.Attempt
			return e.Resolve(ctx, *l)
		}
		known, err := readOperations(ctx, e.config.Pool, []operationKey{c.key})
		if err != nil {
			return Resolution{Operation: op}, err
		}
		return Resolution{Operation: known[c.key], untouched: true}, nil
	})
}

// detach lets act go on after its caller has left, and answers the caller with what came of it.
func (e *Engine) detach(c *call, op Operation, act func(context.Context) (Resolution, error)) {
	c.reserved.Store(&op)
	err := e.detached.run(func() {
		ctx, cancel := context.WithTimeout(context.Background(), e.config.Lease)
		defer cancel()
		r, err := act(ctx)
		if err != nil {
			// Nothing is known that was not known before: the key is reserved, and reconciliation will find out.
			e.config.Logger.Error("provider outcome not recorded", slog.String("operation_id", op.OperationID),
				slog.String("tenant_id", op.TenantID), slog.String("sqlstate", pgtx.SQLState(err)),
				slog.Bool("database_unavailable", errors.Is(err, ErrDatabaseUnavailable)))
			c.answer <- answer{receipt: c.pending(op)}
			return
		}
		c.conclude(r)
	})
	if err != nil {
		c.answer <- answer{receipt: c.pending(op)}
	}
}

// conclude answers the call with what became of its operation.
func (c *call) conclude(r Resolution) {
	receipt, err := c.judge(r.Operation)
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
	}
	c.answer <- answer{receipt, err}
}
