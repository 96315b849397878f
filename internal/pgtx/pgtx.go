// Package pgtx runs transactions on Postgres, whoever configured it.
//
// Its promises: a body of pure SQL runs in one READ COMMITTED transaction, whose limits and settings go with BEGIN in the
// round trip of its first statement; a fault that is not the work's own (a connection that broke, a deadlock, a server that is
// starting or has become a standby) runs the body again on another connection, a bounded number of times; what stays
// unreachable, or can not work for want of disk, memory or anything else of its own, is ErrUnavailable, and ErrDeadline where the caller's time ended first. Whether a transaction committed may
// then be unknown: a body finds again what an earlier run of it committed.
//
// Nothing here needs a session of its own: it all works behind PgBouncer in transaction mode.
package pgtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrUnavailable reports that Postgres could not be reached, or was lost before it answered.
	ErrUnavailable = errors.New("database unavailable")
	// ErrDeadline reports that the context ended before the outcome was known.
	ErrDeadline = errors.New("deadline exceeded")
)

// InTx runs body in a transaction and answers what it returns.
func InTx[T any](ctx context.Context, pool *pgxpool.Pool, body func(tx *Tx) (T, error)) (T, error) {
	var result T
	err := Do(ctx, pool, func(tx *Tx) (err error) {
		result, err = body(tx)
		return err
	})
	return result, err
}

// Do is InTx for a body that answers nothing.
func Do(ctx context.Context, pool *pgxpool.Pool, body func(tx *Tx) error) error {
	return onConn(ctx, pool, func(conn *pgxpool.Conn) error {
		tx := &Tx{conn: conn.Conn()}
		if err := body(tx); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	})
}

// Read runs the queued statements, which only read, in a transaction of one round trip.
func Read(ctx context.Context, pool *pgxpool.Pool, queue func(b *pgx.Batch)) error {
	return Do(ctx, pool, func(tx *Tx) error {
		b := &pgx.Batch{}
		queue(b)
		return tx.CommitWith(ctx, b)
	})
}

const (
	tries     = 4
	firstWait = 20 * time.Millisecond // doubles: 140 ms in all, for a pooler that moves to another server
)

// onConn runs act on a connection of the pool, and again on another one while its fault is transient.
func onConn(ctx context.Context, pool *pgxpool.Pool, act func(*pgxpool.Conn) error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := once(ctx, pool, act)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && (transient(err) || errors.Is(err, ctx.Err())):
			return fmt.Errorf("%w: %s", ErrDeadline, err.Error()) // not wrapped: the database is not at fault
		case waitedTooLong(err):
			return fmt.Errorf("%w: %w", ErrUnavailable, err) // somebody else's lock; nothing is wrong with the work
		case crippled(err):
			return fmt.Errorf("%w: %w", ErrUnavailable, err) // until somebody mends it: trying at once again is of no use
		case !transient(err):
			return err
		case try == tries:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait *= 2
		}
	}
}

// once runs act on one connection. Whatever goes wrong on a connection that then turns out to be closed is the
// connection's fault, whatever the error says.
func once(ctx context.Context, pool *pgxpool.Pool, act func(*pgxpool.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: acquire connection: %w", ErrUnavailable, err)
	}
	defer conn.Release()
	err = act(conn)
	if err != nil && conn.Conn().IsClosed() {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
