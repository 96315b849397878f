package pgtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	tries     = 4
	firstWait = 20 * time.Millisecond // doubles: 140 ms in all, for a pooler that moves to another server
	renewals  = 3                     // tries that cost none: on a connection of the past
)

// again runs act until it succeeds, has a fault of its own, or was tried often enough.
func again(ctx context.Context, act func() error) error {
	wait := firstWait
	for try, renewed := 1, 0; ; {
		err := act()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && (transient(err) || errors.Is(err, ctx.Err())):
			// The database's error is not wrapped: it is not at fault.
			return fmt.Errorf("%w: %w: %s", ErrDeadline, ctx.Err(), err.Error())
		case errors.Is(err, errWorn) && renewed < renewals:
			renewed++
			continue
		case hopeless(err):
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
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
		try++
	}
}

// errWorn reports a connection that was there before, and that what went wrong may be its age.
var errWorn = errors.New("the connection is of the past")

// once runs body in one transaction on one connection. Whatever goes wrong on a connection that then turns out to be
// closed is the connection's fault, whatever the error says; and where one has turned out to be of the past, so are the
// others that were opened before it was found out.
func once(ctx context.Context, pool *pgxpool.Pool, t terms, body func(*Tx) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: acquire connection: %w", ErrUnavailable, err)
	}
	defer conn.Release()
	tx := newTx(conn.Conn(), t)
	used, age, idle := tx.session.takeUp()
	if used && idle > doubtful {
		if err := ping(ctx, conn); err != nil {
			pool.Reset()
			return fmt.Errorf("%w: %w: %w", errWorn, ErrUnavailable, err)
		}
	}
	err = tx.run(ctx, body)
	tx.unguard()
	tx.session.putDown()
	closed := conn.Conn().IsClosed()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUncertain):
		if closed {
			pool.Reset() // nobody else is to wait for an answer that does not come
		}
		return err
	case closed && used, ofThePast(err) && age > fresh:
		pool.Reset()
		err = fmt.Errorf("%w: %w", errWorn, err)
	}
	if closed {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// doubtful is for how long a connection is not used that a firewall may have forgotten meanwhile: it is to answer
// within a second before anything depends on it. pgxpool asks without a limit, one connection after another.
const (
	doubtful  = time.Second
	pingLimit = time.Second
)

func ping(ctx context.Context, conn *pgxpool.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	return conn.Ping(ctx)
}

// fresh is how young a connection is that can not be blamed for what Postgres says on it.
const fresh = time.Second

func (t *Tx) run(ctx context.Context, body func(*Tx) error) error {
	if err := body(t); err != nil {
		return errors.Join(err, t.Rollback(ctx))
	}
	return t.Commit(ctx)
}
