package operations

import (
	"context"
	"errors"
	"time"

	"refundd/internal/pgtx"
)

const (
	batchSize     = 200              // refunds in one transaction
	claimers      = 2                // transactions at once: a few large ones beat many small ones
	readers       = 1                // read-only look-ups of keys at once
	gatekeepers   = 1                // look-ups of what may be sent at once
	recorders     = 2                // transactions that record outcomes at once
	batchDeadline = 20 * time.Second // a batch belongs to many callers: no single one's deadline ends it
)

// execute takes calls through tx 1 until each has its answer.
func (e *Engine) execute(calls []*call) {
	for _, c := range calls {
		e.metrics.wait.Observe(time.Since(c.queued).Seconds())
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchDeadline)
	defer cancel()
	for rest := present(calls); len(rest) > 0; {
		e.metrics.size.Observe(float64(len(rest)))
		rest = e.attempt(ctx, rest)
	}
}

// attempt runs calls through tx 1 and answers them; those that it returns are to be judged again.
func (e *Engine) attempt(ctx context.Context, calls []*call) []*call {
	again, err := e.tx1(ctx, calls)
	if err == nil {
		return again
	}
	if pgtx.Poisoned(err) && len(calls) > 1 {
		e.metrics.split.Inc()
		e.oneByOne(ctx, calls)
		return nil
	}
	for _, c := range calls {
		c.refuse(err)
	}
	return nil
}

// tx1 runs one transaction for calls. Once it has committed they are answered, but for those that it returns: they are to be
// judged again. On an error none is answered.
func (e *Engine) tx1(ctx context.Context, calls []*call) (again []*call, err error) {
	var verdicts []verdict
	began := time.Now()
	for _, c := range calls {
		if c.began.IsZero() {
			c.began = began
		}
	}
	err = pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) (err error) {
		verdicts, err = e.claim(ctx, tx, calls)
		return err
	})
	if err != nil {
		return nil, err
	}
	failpoint("reserve.committed")
	return e.conclude(ctx, calls, verdicts), nil
}

// oneByOne runs the calls of a batch that one of them spoilt. An order that stays locked costs its calls one wait in all,
// not one each.
func (e *Engine) oneByOne(ctx context.Context, calls []*call) {
	locked := make(map[OrderKey]error)
	for _, c := range calls {
		orderKey := c.orderKey()
		if err := locked[orderKey]; err != nil {
			c.refuse(err)
			continue
		}
		for rest := []*call{c}; len(rest) > 0; {
			again, err := e.tx1(ctx, rest)
			if err != nil {
				c.refuse(err)
			}
			if pgtx.StaysLocked(err) {
				locked[orderKey] = err
			}
			rest = again
		}
	}
}

// conclude answers calls after their transaction committed. A lost race is answered from the winner's row, by the same check
// as any replay. Who was refused for money because of a call of its order that lost is judged again, and so is a lost call
// whose winner never committed.
func (e *Engine) conclude(ctx context.Context, calls []*call, verdicts []verdict) (again []*call) {
	var lost []*call
	short := make(map[OrderKey]struct{}) // orders whose remainder was judged smaller than it is
	for i, c := range calls {
		orderKey := c.orderKey()
		_, misjudged := short[orderKey]
		switch v := verdicts[i]; {
		case v.stored != nil && v.stored.RefundID == c.refundID && v.stored.State == StateReserved:
			e.proceed(c, *v.stored, v.order)
		case v.stored != nil:
			e.replay(c, *v.stored)
		case v.refused == nil:
			lost = append(lost, c)
			short[orderKey] = struct{}{}
		case misjudged && errors.Is(v.refused, ErrAmountExceedsRefundable):
			again = append(again, c)
		default:
			c.refuse(v.refused)
		}
	}
	return append(again, e.concludeLost(ctx, lost)...)
}

func (e *Engine) concludeLost(ctx context.Context, lost []*call) (again []*call) {
	if len(lost) == 0 {
		return nil
	}
	known, err := readOperations(ctx, e.config.Pool, keysOf(lost))
	for _, c := range lost {
		op, claimed := known[c.key]
		switch {
		case err != nil:
			c.refuse(err)
		case claimed:
			e.replay(c, op)
		default:
			again = append(again, c)
		}
	}
	return again
}
