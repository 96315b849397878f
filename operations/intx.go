package operations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// settings are a transaction's limits and how its statements are planned. They go with BEGIN: PgBouncer refuses start-up
// parameters, and a session's settings would be another client's in transaction mode. Set-based statements keep one generic
// plan, since planning each anew costs more than running it; and because a plan that is kept was made when the tables were
// as small as they ever are, it may not read any of them from end to end.
const settings = `
	SELECT set_config('statement_timeout', '5s', true), set_config('lock_timeout', '3s', true),
		set_config('idle_in_transaction_session_timeout', '5s', true), set_config('plan_cache_mode', 'force_generic_plan', true),
		set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// plansLast is how long a connection keeps its plans. One that was made while a table was empty may take any of its indexes
// for as good as the primary key, and would walk it for ever after.
const plansLast = 10 * time.Second

// queueSettings queues the settings, and where plans have become old the end of them. Behind a pooler they may be the plans
// of any of its connections, which then get new ones as well.
func queueSettings(conn *pgx.Conn, b *pgx.Batch) {
	b.Queue(settings)
	const renewed = "plans renewed"
	kept := conn.PgConn().CustomData()
	if at, ok := kept[renewed].(time.Time); ok && time.Since(at) < plansLast {
		return
	}
	kept[renewed] = time.Now()
	b.Queue("DISCARD PLANS")
}

// readAtOnce runs the queued statements, which only read, in one round trip. What is sent at once is one transaction, even
// without BEGIN and COMMIT.
func readAtOnce(ctx context.Context, pool *pgxpool.Pool, queue func(*pgx.Batch)) error {
	return onConn(ctx, pool, func(conn *pgxpool.Conn) error {
		b := &pgx.Batch{}
		queueSettings(conn.Conn(), b)
		queue(b)
		return conn.SendBatch(ctx, b).Close()
	})
}

// InTx runs body in a READ COMMITTED transaction. A deadlock or a lost connection runs it again, a bounded number of times:
// body is pure SQL, and a claim that committed unheard is found again by its refund_id. What stays unreachable is
// ErrDatabaseUnavailable; where ctx ended first it is ErrDeadlineExceeded.
func InTx(ctx context.Context, pool *pgxpool.Pool, body func(tx pgx.Tx) error) error {
	return inTransaction(ctx, pool, func(tx *transaction) error { return body(tx) })
}

// inTransaction is InTx for a body that may end the transaction itself.
func inTransaction(ctx context.Context, pool *pgxpool.Pool, body func(tx *transaction) error) error {
	return onConn(ctx, pool, func(conn *pgxpool.Conn) error {
		tx := &transaction{conn: conn.Conn()}
		if err := body(tx); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
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
			return fmt.Errorf("%w: %s", ErrDeadlineExceeded, err.Error()) // not wrapped: the database is not at fault
		case waitedTooLong(err):
			return fmt.Errorf("%w: %w", ErrDatabaseUnavailable, err) // somebody else's lock; nothing is wrong with the work
		case !transient(err):
			return err
		case try == tries:
			return fmt.Errorf("%w: %w", ErrDatabaseUnavailable, err)
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
		return fmt.Errorf("%w: acquire connection: %w", ErrDatabaseUnavailable, err)
	}
	defer conn.Release()
	err = act(conn)
	if err != nil && conn.Conn().IsClosed() {
		return fmt.Errorf("%w: %w", ErrDatabaseUnavailable, err)
	}
	return err
}

// transient tells whether the same work may succeed on another try: the connection broke (08), a deadlock (40P01), a
// serialization failure (40001), or a server that is starting, stopping, full or a standby.
func transient(err error) bool {
	if errors.Is(err, ErrDatabaseUnavailable) {
		return true
	}
	switch code := sqlState(err); code {
	case "40001", "40P01", "57P01", "57P02", "57P03", "53300", "25006", "25P03":
		return true
	default:
		return strings.HasPrefix(code, "08")
	}
}

// poisoned tells whether one row of a batch may have spoilt it for the others: Postgres refused what it would refuse again,
// such as bad data (class 22), a constraint (class 23) or whatever a trigger raises, or a wait reached its limit.
func poisoned(err error) bool {
	return waitedTooLong(err) || sqlState(err) != "" && !transient(err)
}

// waitedTooLong tells a lock (55P03) or a statement (57014) that reached its limit.
func waitedTooLong(err error) bool {
	return staysLocked(err) || sqlState(err) == "57014"
}

// staysLocked tells a lock that somebody else holds for longer than we wait.
func staysLocked(err error) bool { return sqlState(err) == "55P03" }

// sqlState answers Postgres's five-character code for err, or the empty string where err is not Postgres's.
func sqlState(err error) string { return refusalOf(err).Code }

// constraintOf names the constraint that err is about, or is empty.
func constraintOf(err error) string { return refusalOf(err).ConstraintName }

// refusalOf is what Postgres said, empty where err is not Postgres's.
func refusalOf(err error) pgconn.PgError {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return *said
	}
	return pgconn.PgError{}
}
