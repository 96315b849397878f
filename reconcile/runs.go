package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
	"refundd/operations"
)

// recordLimit bounds the statements that speak of a run.
const recordLimit = 10 * time.Second

// run is a row of reconciliation_runs.
type run struct {
	id    uuid.UUID
	began time.Time // by the database's clock
}

// open begins a run's row; its time is what decides whether an operation is due.
func (j *Job) open(ctx context.Context) (run, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer cancel()
	id, err := uuid.NewV7()
	if err != nil {
		return run{}, fmt.Errorf("name run: %w", err)
	}
	r := run{id: id}
	err = pgtx.Do(ctx, j.config.Pool, func(tx *pgtx.Tx) error {
		return tx.QueryRow(ctx, `
			INSERT INTO reconciliation_runs (run_id) VALUES ($1)
			ON CONFLICT (run_id) DO UPDATE SET run_id = excluded.run_id
			RETURNING started_at`, r.id).Scan(&r.began)
	})
	if err != nil {
		return run{}, fmt.Errorf("record run: %w", err)
	}
	return r, nil
}

// close ends a run's row. It completes the summary with what only the database knows.
func (j *Job) close(ctx context.Context, r run, s Summary, took time.Duration, failed error) (Summary, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer cancel()
	s.DurationMS = took.Milliseconds()
	var why *string
	if text := whyNoSuccess(s, failed); text != "" {
		why = &text
	}
	err := pgtx.Do(ctx, j.config.Pool, func(tx *pgtx.Tx) error {
		return tx.QueryRow(ctx, `
			UPDATE reconciliation_runs SET finished_at = clock_timestamp(), claimed = $2, succeeded = $3, failed = $4,
				pending = $5,
				resent = $6, needs_attention = $7, still_unknown = $8, errors = $9, duration_ms = $10, error = $11,
				oldest_unknown_seconds = `+oldestUnknown+`
			WHERE run_id = $1 RETURNING oldest_unknown_seconds`,
			r.id, s.Claimed, s.Succeeded, s.Failed, s.Pending, s.Resent, s.NeedsAttention, s.StillUnknown, s.Errors,
			s.DurationMS, why).Scan(&s.OldestUnknownSeconds)
	})
	if err != nil {
		return s, fmt.Errorf("record the end of the run: %w", err)
	}
	return s, nil
}

// oldestUnknown is the age in seconds of the oldest operation whose outcome is not known yet, 0 where there is none. It
// reads what is held, by the index of that.
const oldestUnknown = `coalesce((
	SELECT greatest(extract(epoch FROM clock_timestamp() - least(
		min(greatest(created_at, '0001-01-01Z')) FILTER (WHERE state <> 'needs_attention'), clock_timestamp())), 0)::bigint
	FROM refund_operations WHERE state IN ('reserved', 'pending', 'needs_attention')), 0)`

func (j *Job) oldestUnknown(ctx context.Context) (seconds int64, err error) {
	err = j.readValue(ctx, `SELECT `+oldestUnknown, &seconds)
	if err != nil {
		return 0, fmt.Errorf("read the oldest unknown operation: %w", err)
	}
	return seconds, nil
}

// now is the database's clock.
func (j *Job) now(ctx context.Context) (at time.Time, err error) {
	if err := j.readValue(ctx, `SELECT clock_timestamp()`, &at); err != nil {
		return at, fmt.Errorf("read the clock: %w", err)
	}
	return at, nil
}

// readValue reads one value.
func (j *Job) readValue(ctx context.Context, sql string, answer any) error {
	return pgtx.Read(ctx, j.config.Pool, func(b *pgx.Batch) {
		b.Queue(sql).QueryRow(func(row pgx.Row) error { return row.Scan(answer) })
	})
}

// errClaim is the part of a run without which there is nothing to do.
var errClaim = errors.New("claim")

// faults are what went wrong with a run.
type faults []error

func (f faults) Error() string {
	texts := make([]string, len(f))
	for i, fault := range f {
		texts[i] = fault.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap lets errors.Is and errors.As see each.
func (f faults) Unwrap() []error { return f }

// parts are the faults of a run.
func parts(err error) []error {
	if all, several := errors.AsType[faults](err); several {
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// whyNoSuccess is why a run was no success, in words that may be stored; empty where it was one.
func whyNoSuccess(s Summary, failed error) string {
	var texts []string
	for _, fault := range parts(failed) {
		texts = append(texts, cause(fault))
		if _, counted := errors.AsType[*ProviderFault](fault); counted {
			s.Errors--
		}
	}
	if s.Errors > 0 {
		texts = append(texts, fmt.Sprintf("%d outcomes not recorded", s.Errors))
	}
	return strings.Join(texts, "; ")
}

// cause is an error in words that may be stored: what a database says may quote rows and logins.
func cause(err error) string {
	if errors.Is(err, errClaim) {
		return errClaim.Error() + ": " + kind(err)
	}
	return kind(err)
}

func kind(err error) string {
	if fault, ok := errors.AsType[*ProviderFault](err); ok {
		return fault.Error()
	}
	switch {
	case errors.Is(err, errInterrupted):
		return "interrupted"
	case errors.Is(err, operations.ErrDatabaseUnavailable):
		return "database unavailable"
	case errors.Is(err, operations.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "deadline exceeded"
	case pgtx.SQLState(err) != "":
		return "sqlstate " + pgtx.SQLState(err)
	}
	return "internal"
}
