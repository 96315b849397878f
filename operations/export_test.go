package operations

import (
	"context"
	"slices"
	"sync"
	"time"

	"refundd/internal/batch"
)

// Waiting is how many refunds wait for their transaction.
func (e *Engine) Waiting() int { return e.waiting() }

// MaySend asks the gate in front of every request to the provider.
func (e *Engine) MaySend(ctx context.Context, l Lease) (bool, error) {
	_, open, err := e.maySend(ctx, l)
	return open, err
}

// Aged is the lease as a process finds it that was stopped for d after taking it.
func (l Lease) Aged(d time.Duration) Lease {
	l.taken, l.lastSend = l.taken.Add(-d), l.lastSend.Add(-d)
	return l
}

// AgedOnTheWall is the lease after a suspension during which the monotonic clock stood still.
func (l Lease) AgedOnTheWall(d time.Duration) Lease {
	l.taken.Wall, l.lastSend.Wall = l.taken.Wall.Add(-d), l.lastSend.Wall.Add(-d)
	return l
}

// Hold keeps tx 1 from beginning until release is called, so that all that is submitted meanwhile shares one batch: but
// for the first refund, which leads a batch of its own. It closes begun.
func (e *Engine) Hold() (begun <-chan struct{}, release func()) {
	held, first := make(chan struct{}), make(chan struct{})
	var once sync.Once
	e.claims = batch.New(batch.Limits{Size: batchSize, AtOnce: 1, Queue: e.config.MaxQueue},
		func(ctx context.Context, calls []*call) []batch.Result[claimed] {
			once.Do(func() { close(first) })
			<-held
			return e.claimAll(ctx, calls)
		})
	return first, func() { close(held) }
}

// Accompany lets no refund be claimed alone: a request that is refused goes beside each batch.
func (e *Engine) Accompany() {
	accompanied := func(run func(context.Context, []*call) []batch.Result[claimed]) func(context.Context,
		[]*call) []batch.Result[claimed] {
		return func(ctx context.Context, calls []*call) []batch.Result[claimed] {
			r := Request{TenantID: "stranger", OperationID: calls[0].OperationID, OrderID: "none", AmountCents: 1}
			stranger := &call{Request: r, ctx: ctx, key: operationKey{r.TenantID, r.OperationID},
				refundID: calls[0].refundID}
			return run(ctx, append(slices.Clone(calls), stranger))[:len(calls)]
		}
	}
	e.claims = batch.New(claimLimits(e.config.MaxQueue), accompanied(e.claimAll))
	e.patient = batch.New(patientLimits(e.config.Pool), accompanied(e.claimPatiently))
}
