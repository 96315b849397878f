package operations

import (
	"context"
	"errors"
	"time"

	"refundd/internal/batch"
)

// batchSize is how many refunds share a transaction.
const batchSize = 200

// batchDeadline ends a batch: it belongs to many callers, so that no single one's deadline does.
const batchDeadline = 20 * time.Second

// patience is how long a transaction keeps others of its kind from beginning beside it: somebody else's lock, a slow disk or
// a dead connection is nothing to wait for.
const patience = 250 * time.Millisecond

// How much is done at once. A few large transactions beat many small ones; what follows a reservation is limited by those.
var (
	askLimits  = batch.Limits{Size: batchSize, AtOnce: 2, Patience: patience}
	noteLimits = batch.Limits{Size: batchSize, AtOnce: 4, Patience: patience}
)

func readLimits(queue int) batch.Limits {
	return batch.Limits{Size: batchSize, AtOnce: 2, Patience: patience, Queue: queue}
}

func claimLimits(queue int) batch.Limits {
	return batch.Limits{Size: batchSize, AtOnce: 3, Patience: patience, Queue: queue}
}

// inCompany has work done together with what others want at the same time.
func inCompany[In, Out any](ctx context.Context, g *batch.Group[In, Out], lane batch.Lane, work In) (Out, error) {
	out, err := g.Do(ctx, lane, work)
	if err != nil && errors.Is(err, ctx.Err()) {
		err = ErrDeadlineExceeded
	}
	return out, err
}

func (k operationKey) lane() batch.Lane { return batch.Lane{Owner: k.TenantID, Name: k.OperationID} }

func orderLane(k OrderKey) batch.Lane { return batch.Lane{Owner: k.TenantID, Name: k.OrderID} }

// failed is the result of every piece of work that err came of.
func failed[Out any](n int, err error) []batch.Result[Out] {
	results := make([]batch.Result[Out], n)
	for i := range results {
		results[i].Err = err
	}
	return results
}

// readAll looks keys up: nil where nothing claimed one.
func (e *Engine) readAll(ctx context.Context, keys []operationKey) []batch.Result[*Operation] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	known, err := readOperations(ctx, e.config.Pool, keys)
	if err != nil {
		return failed[*Operation](len(keys), err)
	}
	results := make([]batch.Result[*Operation], len(keys))
	for i, key := range keys {
		if op, found := known[key]; found {
			results[i].Out = &op
		}
	}
	return results
}
