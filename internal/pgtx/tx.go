package pgtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is a pgx.Tx that begins with its first statement: BEGIN, the settings and a first batch are one round trip.
type Tx struct {
	conn         *pgx.Conn
	session      *session
	terms        terms
	begun, ended bool
	watch        *time.Timer // of the message that is not answered yet, if any
}

// terms are how a transaction begins, and what it is called in a trace.
type terms struct {
	name     string
	begin    string
	settings string
	patient  bool // no message has a limit
}

// A standby refuses READ WRITE: what is not on the primary is not the truth of now.
const readWrite = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

func newTx(conn *pgx.Conn, t terms) *Tx {
	return &Tx{conn: conn, session: sessionOf(conn), terms: t}
}

// guard hangs up where a message is not answered in time. Of a connection that a firewall has forgotten nothing is
// heard, not even that Postgres's own limits, which are shorter, have ended what it did.
func (t *Tx) guard() {
	switch {
	case t.terms.patient:
	case t.watch == nil:
		t.watch = time.AfterFunc(messageLimit, func() { _ = t.conn.PgConn().Conn().Close() })
	default:
		t.watch.Reset(messageLimit)
	}
}

// unguard ends the watch, and the connection that was just hung up.
func (t *Tx) unguard() {
	if t.watch != nil && !t.watch.Stop() {
		_ = t.conn.PgConn().Conn().Close()
	}
	t.watch = nil
}

// Unhurried lets each statement from here on take as long as it takes.
func (t *Tx) Unhurried(ctx context.Context) error {
	if _, err := t.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
		return err
	}
	t.unguard()
	t.terms.patient = true
	return nil
}

// opening queues what a transaction begins with, and returns how many statements that is.
func (t *Tx) opening(b *pgx.Batch) int {
	t.begun = true
	b.Queue(t.terms.begin)
	b.Queue(t.terms.settings)
	return b.Len()
}

func (t *Tx) start(ctx context.Context) error {
	t.guard()
	if t.begun {
		return nil
	}
	if !speaksPlainly(t.conn.PgConn()) {
		t.begun = true
		sql := t.terms.begin + "; SET LOCAL client_encoding = 'UTF8'; SET LOCAL standard_conforming_strings = on"
		if _, err := t.conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
		_, err := t.conn.Exec(ctx, t.terms.settings)
		return err
	}
	b := &pgx.Batch{}
	t.opening(b)
	return t.conn.SendBatch(ctx, b).Close()
}

// SendBatch sends b, behind the opening where it is the transaction's first. An error is met again by whoever reads the
// results.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.prepareFor(ctx, b); err != nil {
		return unsent{err}
	}
	t.guard()
	return t.sendBatch(ctx, b)
}

// prepareFor begins the transaction where b can not go with its opening.
func (t *Tx) prepareFor(ctx context.Context, b *pgx.Batch) error {
	if t.begun || t.session.mayGoWithBegin(b) && speaksPlainly(t.conn.PgConn()) {
		return nil
	}
	return t.start(ctx)
}

func (t *Tx) sendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.begun {
		t.session.remember(b)
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

// Exec implements pgx.Tx.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return unsent{err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

const (
	commit       = "commit"
	commitLimit  = 4 * time.Second // for a COMMIT, whose wait for the standbys no time limit of Postgres's ends
	messageLimit = 6 * time.Second // for one that travels with statements
)

// errUncertain reports a COMMIT that is not known to have become durable: no answer came in time, or its wait for the
// synchronous standbys was cut short, so that it stands here and may be lost with this server.
var errUncertain = errors.New("commit not confirmed")

// CommitWith sends b and the transaction's end in one round trip: what is wrong with a row must be an error of its
// statement.
func (t *Tx) CommitWith(ctx context.Context, b *pgx.Batch) error {
	b.Queue(commit).Exec(committed)
	// Before the COMMIT's limit begins: what fails here is not uncertain, and of two limits that end at once the wrong one
	// may be met first.
	if err := t.prepareFor(ctx, b); err != nil {
		return err
	}
	return t.end(ctx, messageLimit, func(ctx context.Context) error { return t.sendBatch(ctx, b).Close() })
}

// Commit is an error where Postgres rolled back instead, as it does after a failed statement.
func (t *Tx) Commit(ctx context.Context) error {
	if !t.begun || t.ended {
		return nil
	}
	return t.end(ctx, commitLimit, func(ctx context.Context) error {
		tag, err := t.conn.Exec(ctx, commit)
		if err != nil {
			return err
		}
		return committed(tag)
	})
}

// end waits for the transaction's end, but not for ever. Giving up cancels the wait in Postgres too: what was committed
// becomes visible then, and who reads it waits for the standbys himself.
func (t *Tx) end(ctx context.Context, limit time.Duration, send func(context.Context) error) error {
	t.unguard()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := send(limited)
	switch {
	case err == nil && t.session.unreplicated:
		return errUncertain
	case err == nil:
		t.ended = true
		return nil
	case limited.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w in time: %w", errUncertain, err)
	}
	return err
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
	t.guard()
	_, err := t.conn.Exec(ctx, "rollback")
	return err
}

// CopyFrom implements pgx.Tx.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource) (int64, error) {
	if err := t.start(ctx); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, rows)
}

// Prepare implements pgx.Tx.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.start(ctx); err != nil {
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

// unsent answers for what was not sent.
type unsent struct{ err error }

func (u unsent) Scan(...any) error                { return u.err }
func (u unsent) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, u.err }
func (u unsent) Query() (pgx.Rows, error)         { return nil, u.err }
func (u unsent) QueryRow() pgx.Row                { return u }
func (u unsent) Close() error                     { return u.err }
func (u unsent) Tx() pgx.Tx                       { return nil }
