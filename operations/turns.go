package operations

import (
	"context"

	"github.com/jackc/pgx/v5"

	"refundd/internal/batch"
	"refundd/internal/pgtx"
)

// turn is a transaction that may have to wait for a lock.
type turn func(ctx context.Context) (any, error)

// inTurn runs body in a transaction that locks an order, or what refers to one. It waits for somebody else's lock for a
// moment only; who has to wait for longer does so one after another in each lane, so that they hold few of the pool's
// connections.
func inTurn[T any](ctx context.Context, e *Engine, lane batch.Lane,
	body func(context.Context, *pgtx.Tx) (T, error)) (T, error) {
	done, err := pgtx.InTx(ctx, e.config.Pool, func(tx *pgtx.Tx) (T, error) {
		if err := hurry(ctx, tx); err != nil {
			var none T
			return none, err
		}
		return body(ctx, tx)
	})
	if !pgtx.StaysLocked(err) {
		return done, err
	}
	waited, err := inCompany(ctx, e.turns, lane, func(ctx context.Context) (any, error) {
		return pgtx.InTx(ctx, e.config.Pool, func(tx *pgtx.Tx) (T, error) { return body(ctx, tx) })
	})
	done, _ = waited.(T) // the zero T where nothing came of it
	return done, err
}

// hurry bounds the transaction's waits for locks, in its first round trip.
func hurry(ctx context.Context, tx *pgtx.Tx) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('lock_timeout', '100ms', true)`)
	return tx.SendBatch(ctx, b).Close()
}

// takeTurns runs one turn after another. A lock that is not free for the first one costs those behind it no wait of
// their own.
func takeTurns(ctx context.Context, turns []turn) []batch.Result[any] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	results := make([]batch.Result[any], len(turns))
	for i, take := range turns {
		if i > 0 && pgtx.StaysLocked(results[i-1].Err) {
			results[i].Err = results[i-1].Err
			continue
		}
		results[i].Out, results[i].Err = take(ctx)
	}
	return results
}
