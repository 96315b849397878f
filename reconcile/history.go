package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pages"
	"refundd/internal/pgtx"
	"refundd/operations"
)

// Run is what is kept of one run of reconciliation. A run is of the whole service: it counts the refunds of every
// tenant, and names none.
type Run struct {
	RunID                uuid.UUID
	StartedAt            time.Time
	FinishedAt           *time.Time // nil: it still runs, or its process was lost
	DryRun               bool
	Claimed              int64
	Succeeded            int64
	Failed               int64
	Pending              int64
	Resent               int64
	NeedsAttention       int64
	StillUnknown         int64
	OldestUnknownSeconds int64
	Errors               int64
	DurationMS           *int64
	Flawed               bool // it could not do all that it was to do
}

// AuditRecord is what is kept of one audit of the books, those of the whole service.
type AuditRecord struct {
	AuditID    uuid.UUID
	StartedAt  time.Time
	FinishedAt time.Time
	Operations int64
	Transfers  int64
	Orders     int64
	Lies       int64
}

// History reads what runs and audits left behind.
type History struct{ pool *pgxpool.Pool }

// NewHistory returns the history in a database.
func NewHistory(pool *pgxpool.Pool) (*History, error) {
	if pool == nil {
		return nil, errors.New("reconcile: no pool")
	}
	return &History{pool}, nil
}

// Runs lists runs, newest first (their ids are UUIDv7), and returns the next page's cursor, empty at the end.
func (h *History) Runs(ctx context.Context, p operations.Page) ([]Run, string, error) {
	rows, next, err := newestFirst(ctx, h.pool, p, `
		SELECT run_id, started_at, finished_at, dry_run, claimed, succeeded, failed, pending, resent, needs_attention,
			still_unknown,
			oldest_unknown_seconds, errors, duration_ms, error IS NOT NULL OR errors > 0 AS flawed
		FROM reconciliation_runs`, "run_id", func(r Run) uuid.UUID { return r.RunID })
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", err)
	}
	return rows, next, nil
}

// Audits lists audits as Runs lists runs.
func (h *History) Audits(ctx context.Context, p operations.Page) ([]AuditRecord, string, error) {
	rows, next, err := newestFirst(ctx, h.pool, p, `
		SELECT audit_id, started_at, finished_at, operations, transfers, orders, lies
		FROM audits`, "audit_id", func(a AuditRecord) uuid.UUID { return a.AuditID })
	if err != nil {
		return nil, "", fmt.Errorf("list audits: %w", err)
	}
	return rows, next, nil
}

// newestFirst reads one page of a list that its own ids sort.
func newestFirst[T any](
	ctx context.Context, pool *pgxpool.Pool, p operations.Page, sql, id string, idOf func(T) uuid.UUID,
) ([]T, string, error) {
	w := pages.Where{Args: []any{p.Limit + 1}}
	w.And("true")
	if p.Cursor != "" {
		last, ok := pages.IDOf(p.Cursor)
		if !ok {
			return nil, "", operations.ErrInvalidCursor
		}
		w.And(id+" < ?::text::uuid", last)
	}
	w.Between("started_at", p.CreatedAfter, p.CreatedBefore)
	var found []T
	err := pgtx.Query(ctx, pool, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByNameLax[T])
		return err
	}, sql+` WHERE `+w.String()+` ORDER BY `+id+` DESC LIMIT $1`, w.Args...)
	if err != nil {
		return nil, "", err
	}
	page, next := pages.Cut(found, p.Limit, func(row T) string { return pages.CursorOf(idOf(row).String()) })
	return page, next, nil
}

// RecordAudit keeps that an audit was done just now, how long that took, and what it found.
func RecordAudit(ctx context.Context, pool *pgxpool.Pool, r Report, took time.Duration) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("name audit: %w", err)
	}
	err = pgtx.Do(ctx, pool, func(tx *pgtx.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO audits (audit_id, started_at, operations, transfers, orders, lies)
			SELECT $1, t.now - $2::interval, $3, $4, $5, $6 FROM (SELECT clock_timestamp() AS now) AS t
			ON CONFLICT (audit_id) DO NOTHING`, // an earlier try may have committed
			id, took, r.Operations, r.Transfers, r.Orders, r.LieCount)
		return err
	})
	if err != nil {
		return fmt.Errorf("record audit: %w", err)
	}
	return nil
}
