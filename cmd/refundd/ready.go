package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"refundd/internal/pgtx"
	"refundd/migrations"
	"refundd/operations"
)

// readiness knows whether a write can succeed now. However many ask, Postgres is asked once a second at most.
type readiness struct {
	pool *pgxpool.Pool
	turn *semaphore.Weighted // whoever asks Postgres holds it
	at   time.Time           // when Postgres was asked last
	last error               // what it said
}

const readinessLasts = time.Second

func newReadiness(pool *pgxpool.Pool) *readiness {
	return &readiness{pool: pool, turn: semaphore.NewWeighted(1)}
}

// check is nil while a refund could be written: by the primary, to tables as new as this program, that its login may
// change, and to the standbys that the primary waits for.
func (r *readiness) check(ctx context.Context) error {
	if err := r.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.turn.Release(1)
	if !r.at.IsZero() && time.Since(r.at) < readinessLasts {
		return r.last
	}
	r.last = pgtx.Do(ctx, r.pool, func(tx *pgtx.Tx) error {
		version, _, err := migrations.Version(ctx, tx)
		if err != nil {
			return err
		}
		if version < migrations.Latest() {
			return fmt.Errorf("%w: version %d of %d", migrations.ErrSchemaOlder, version, migrations.Latest())
		}
		return operations.CanWrite(ctx, tx)
	})
	r.at = time.Now()
	return r.last
}
