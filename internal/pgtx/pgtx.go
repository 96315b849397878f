// Package pgtx runs transactions on Postgres, whoever configured it.
//
// Its promises:
//
//   - A body of pure SQL runs in one READ COMMITTED transaction on the primary. Its limits and settings go with BEGIN in the
//     round trip of its first statement: no setting of the database, the role, the URL or the shell weakens a promise or
//     changes an answer, in any query mode of pgx. Our tables are in the schema public.
//   - What Do, InTx and Read answer without an error is durable: on disk, and on the synchronous standbys where there are any,
//     whoever wrote it. A COMMIT whose wait for them is cut short, by us or anybody else, is no success.
//   - A fault that is not the work's own (a connection that broke, a plan or a session older than what it speaks of, a
//     deadlock, a server that is starting or has become a standby) runs the body again on another connection, a bounded number
//     of times. All connections go at once where one has turned out to be of the past: nobody waits for each to be tried.
//   - A connection that was forgotten on the way to Postgres, so that neither end hears of the other, is found out within
//     seconds: no message of ours waits for longer, and the body runs again on another connection.
//   - What stays unreachable, or can not work for want of disk, memory or anything else of its own, is ErrUnavailable, and
//     ErrDeadline where the caller's time ended first. Whether the transaction committed may then be unknown: a body finds
//     again what an earlier run of it committed.
//
// A whole server that is made read-only (ALTER SYSTEM SET default_transaction_read_only) is taken for one that was
// fenced off. The same default of a database or a role is one of the settings that change nothing.
//
// Nothing here needs a session of its own: it all works behind PgBouncer in transaction mode.
package pgtx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/spans"
)

var (
	// ErrUnavailable reports that Postgres could not be reached, was lost before it answered, or can not make durable
	// what it was asked to.
	ErrUnavailable = errors.New("database unavailable")
	// ErrDeadline reports that the context ended before the outcome was known.
	ErrDeadline = errors.New("deadline exceeded")
)

// InTx runs body in a transaction and returns what it returns.
func InTx[T any](ctx context.Context, pool *pgxpool.Pool, body func(tx *Tx) (T, error)) (T, error) {
	return inTx(ctx, pool, settled, body)
}

// Loosely is InTx for what may be lost with the server. Its COMMIT waits for no disk and no standby, but it is durable
// before whatever is committed after it.
func Loosely[T any](ctx context.Context, pool *pgxpool.Pool, body func(tx *Tx) (T, error)) (T, error) {
	return inTx(ctx, pool, loose, body)
}

// Do is InTx for a body that returns nothing.
func Do(ctx context.Context, pool *pgxpool.Pool, body func(tx *Tx) error) error {
	return do(ctx, pool, terms{name: "transaction", begin: readWrite, settings: settled}, body)
}

// Kept is InTx for the statements of each refund's road, which are run so often that planning them would cost more than
// they do: their plans are kept. Such a statement must leave Postgres no choice; test/growth watches over that.
func Kept[T any](ctx context.Context, pool *pgxpool.Pool, body func(tx *Tx) (T, error)) (T, error) {
	return inTx(ctx, pool, kept, body)
}

// ReadKept is Read in the same manner.
func ReadKept(ctx context.Context, pool *pgxpool.Pool, queue func(b *pgx.Batch)) error {
	return read(ctx, pool, terms{name: "read", begin: readWrite, settings: kept}, queue)
}

// Read runs the queued statements, which only read, in a transaction of one round trip.
func Read(ctx context.Context, pool *pgxpool.Pool, queue func(b *pgx.Batch)) error {
	return read(ctx, pool, terms{name: "read", begin: readWrite, settings: settled}, queue)
}

// Query is Read of one statement.
func Query(ctx context.Context, pool *pgxpool.Pool, collect func(pgx.Rows) error, sql string, args ...any) error {
	return Read(ctx, pool, func(b *pgx.Batch) { b.Queue(sql, args...).Query(collect) })
}

// Glimpse is Read for what need not be durable: it does not wait for standbys.
func Glimpse(ctx context.Context, pool *pgxpool.Pool, queue func(b *pgx.Batch)) error {
	return read(ctx, pool, terms{name: "glimpse", begin: readWrite, settings: glimpsed}, queue)
}

// Snapshot runs body, which only reads and may take its time, on one moment's state of the database, also of a standby.
func Snapshot(ctx context.Context, pool *pgxpool.Pool, body func(tx *Tx) error) error {
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	return do(ctx, pool, terms{name: "snapshot", begin: begin, settings: snapshot, patient: true}, body)
}

func inTx[T any](ctx context.Context, pool *pgxpool.Pool, settings string, body func(tx *Tx) (T, error)) (T, error) {
	var result T
	err := do(ctx, pool, terms{name: "transaction", begin: readWrite, settings: settings}, func(tx *Tx) (err error) {
		result, err = body(tx)
		return err
	})
	return result, err
}

func read(ctx context.Context, pool *pgxpool.Pool, t terms, queue func(b *pgx.Batch)) error {
	return do(ctx, pool, t, func(tx *Tx) error {
		b := &pgx.Batch{}
		queue(b)
		return tx.CommitWith(ctx, b)
	})
}

func do(ctx context.Context, pool *pgxpool.Pool, t terms, body func(tx *Tx) error) error {
	ctx, span := spans.Start(ctx, t.name)
	defer span.End()
	err := again(ctx, func() error { return once(ctx, pool, t, body) })
	if err != nil {
		span.Failed(kind(err))
	}
	return err
}

// kind is what an error is called in a span: its SQLSTATE, or which of ours it is.
func kind(err error) string {
	switch state := SQLState(err); {
	case state != "":
		return state
	case errors.Is(err, ErrDeadline):
		return "deadline"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	}
	return "other"
}
