package pgtx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is a pgx.Tx that begins with its first statement: BEGIN, the settings and a first batch are one round trip.
type Tx struct {
	conn         *pgx.Conn
	begun, ended bool
}

// opening queues what a transaction begins with, and answers how many statements that is.
func (t *Tx) opening(b *pgx.Batch) int {
	t.begun = true
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	queueSettings(t.conn, b)
	return b.Len()
}

func (t *Tx) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	b := &pgx.Batch{}
	t.opening(b)
	return t.conn.SendBatch(ctx, b).Close()
}

// SendBatch sends b, behind the opening where it is the transaction's first. An error is met again by whoever reads the results.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.begun {
		return t.conn.SendBatch(ctx, b)
	}
	all := &pgx.Batch{}
	opening := t.opening(all)
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	results := t.conn.SendBatch(ctx, all)
	for range opening {
		_, _ = results.Exec()
	}
	return results
}

func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.conn.Query(ctx, sql, args...)
}

func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.begin(ctx); err != nil {
		return failed{err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

// failed is the row of a query that was not sent.
type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// CommitWith sends b and the transaction's end in one round trip: what is wrong with a row must be an error of its statement.
func (t *Tx) CommitWith(ctx context.Context, b *pgx.Batch) error {
	b.Queue(commit).Exec(committed)
	if err := t.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	t.ended = true
	return nil
}

const commit = "commit"

// Commit is an error where Postgres rolled back instead, as it does after a failed statement.
func (t *Tx) Commit(ctx context.Context) error {
	if !t.begun || t.ended {
		return nil
	}
	tag, err := t.conn.Exec(ctx, commit)
	if err != nil {
		return err
	}
	return committed(tag)
}

// committed holds COMMIT's own word against it: of a transaction that failed it is ROLLBACK.
func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// Rollback leaves a connection alone that is broken or has no transaction: the pool closes the one and keeps the other.
func (t *Tx) Rollback(ctx context.Context) error {
	if t.conn.IsClosed() || t.conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	_, err := t.conn.Exec(ctx, "rollback")
	return err
}

func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, rows)
}

func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.conn.Prepare(ctx, name, sql)
}

// Begin refuses: nothing here nests.
func (t *Tx) Begin(context.Context) (pgx.Tx, error) { return nil, errors.ErrUnsupported }

// LargeObjects are none of this database's.
func (t *Tx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Conn is the connection that the transaction is on.
func (t *Tx) Conn() *pgx.Conn { return t.conn }
