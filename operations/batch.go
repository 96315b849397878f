package operations

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/batch"
	"refundd/internal/pgtx"
)

// batchSize is how many refunds share a transaction.
const batchSize = 200

// batchDeadline ends a batch: it belongs to many callers, so that no single one's deadline does.
const batchDeadline = 20 * time.Second

// patience is how long a transaction keeps others of its kind from beginning beside it: somebody else's lock, a slow
// disk or a dead connection is nothing to wait for.
const patience = 250 * time.Millisecond

// claimsBeside is how many refunds have to wait for another transaction to begin while one commits. Each has a fixed
// price, of some ten refunds; but while one waits for the disk the processors are free.
const claimsBeside = 40

// How much is done at once. A few large transactions beat many small ones; what follows a reservation is limited by
// those.
var (
	gateLimits   = batch.Limits{Name: "batch of leases", Size: batchSize, AtOnce: 2, Patience: patience}
	recordLimits = batch.Limits{Name: "batch of outcomes", Size: batchSize, AtOnce: 4, Patience: patience}
)

func readLimits(queue int) batch.Limits {
	return batch.Limits{Name: "batch of reads", Size: batchSize, AtOnce: 2, Patience: patience, Queue: queue}
}

func claimLimits(queue int) batch.Limits {
	return batch.Limits{
		Name: "batch of refunds", Size: batchSize, AtOnce: 3, Beside: claimsBeside, Patience: patience, Queue: queue,
	}
}

// waiting is how many refunds wait for a transaction.
func (e *Engine) waiting() int { return e.claims.Waiting() + e.patient.Waiting() }

// patientLimits are of work that waits for somebody else's lock, of one order at a time: it holds few of the pool's
// connections, so that those who need not wait always have some, and one tenant does not hold them all.
func patientLimits(pool *pgxpool.Pool) batch.Limits {
	share := max(1, int(pool.Config().MaxConns)/6)
	return batch.Limits{Name: "batch of one order", Size: batchSize, AtOnce: share, PerOwner: max(1, share-1),
		Beside: 1, Alone: true}
}

// apart does work in company, and where one piece of it may have spoilt it for the others, apart.
func apart[In, Out any](e *Engine, work []In, run func([]In) ([]batch.Result[Out], error)) []batch.Result[Out] {
	return batch.Apart(work, runsApart, func(err error) bool {
		if !spoilt(err) {
			return false
		}
		e.metrics.split.Inc()
		return true
	}, run)
}

// inRounds does work in which keys may repeat: no key comes twice in one round. What repeats one sees what became of
// it, in the next round, unless alike answers it from that.
func inRounds[In comparable, Out any](
	work []In, key func(In) operationKey, run func([]In) []batch.Result[Out],
	alike func(again, before In, answered batch.Result[Out]) (batch.Result[Out], bool),
) []batch.Result[Out] {
	results := make(map[In]batch.Result[Out], len(work))
	for rest := work; len(rest) > 0; {
		var now, later []In
		latest := make(map[operationKey]In, len(rest))
		for _, in := range rest {
			if _, again := latest[key(in)]; again {
				later = append(later, in)
				continue
			}
			latest[key(in)] = in
			now = append(now, in)
		}
		for i, r := range run(now) {
			results[now[i]] = r
		}
		rest = slices.DeleteFunc(later, func(in In) bool {
			before := latest[key(in)]
			told, answered := alike(in, before, results[before])
			if answered {
				results[in] = told
			}
			return answered
		})
	}
	ordered := make([]batch.Result[Out], len(work))
	for i, in := range work {
		ordered[i] = results[in]
	}
	return ordered
}

// runsApart is how many transactions a batch may become in which something is wrong: enough to find two culprits among
// 200.
const runsApart = 32

// spoilt reports whether one row may have spoilt a batch for the others: Postgres refused it, for whatever reason but
// that nobody is served now, or a row could not be read.
func spoilt(err error) bool {
	code := pgtx.SQLState(err)
	switch {
	// an order costs its calls one wait in all, and where a key is locked each waits for itself
	case pgtx.StaysLocked(err):
		return false
	case pgtx.Poisoned(err):
		return !pgerrcode.IsInsufficientResources(code)
	case errors.Is(err, ErrDeadlineExceeded):
		return false
	// said by the server of our statement, perhaps by a trigger of its owner's
	case errors.Is(err, ErrDatabaseUnavailable):
		return pgerrcode.IsConnectionException(code) || code == pgerrcode.SerializationFailure ||
			code == pgerrcode.ReadOnlySQLTransaction
	default:
		return true
	}
}

// inCompany has work done together with what others want at the same time.
func inCompany[In, Out any](ctx context.Context, g *batch.Group[In, Out], lane batch.Lane, work In) (Out, error) {
	out, err := g.Do(ctx, lane, work)
	// The transaction ends when the last of its callers has left: whether that or the caller's own end is noticed first
	// says nothing.
	if left := ctx.Err(); left != nil && (errors.Is(err, left) || errors.Is(err, ErrDeadlineExceeded)) {
		err = ErrDeadlineExceeded
	}
	return out, err
}

func (k operationKey) lane() batch.Lane { return batch.Lane{Owner: k.TenantID, Name: k.OperationID} }

func orderLane(k OrderKey) batch.Lane { return batch.Lane{Owner: k.TenantID, Name: k.OrderID} }

// readAll looks keys up: nil where nothing claimed one.
func (e *Engine) readAll(ctx context.Context, keys []operationKey) []batch.Result[*Operation] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	return apart(e, keys, func(keys []operationKey) ([]batch.Result[*Operation], error) {
		known, err := readOperations(ctx, e.config.Pool, keys)
		if err != nil {
			return nil, err
		}
		results := make([]batch.Result[*Operation], len(keys))
		for i, key := range keys {
			if op, found := known[key]; found {
				results[i].Out = &op
			}
		}
		return results, nil
	})
}
