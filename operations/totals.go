package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// How much a total may read, and answer: a tenant of tens of millions of refunds costs no more than this.
const (
	maxTotalled = 200_000 // refunds
	maxTotals   = 10_000
)

// Unit is the length of the buckets that totals over time come in, by the UTC calendar.
type Unit string

// The units.
const (
	Hourly Unit = "hour"
	Daily  Unit = "day"
)

// Length is how long a bucket is.
func (u Unit) Length() time.Duration {
	if u == Daily {
		return 24 * time.Hour
	}
	return time.Hour
}

// MaxBuckets is how many buckets one window may have.
const MaxBuckets = 400

// Window is a stretch of time, its ends exclusive, and the buckets that it is cut into.
type Window struct {
	After, Before time.Time
	Unit          Unit
}

// Total is how many refunds are in one state and currency, and their sum.
type Total struct {
	Bucket   time.Time // when the bucket begins; of what has no end yet, when the oldest was created
	State    State
	Currency string
	Count    int64
	Sum      string // in minor units: an integer of any size
}

// Totals are counted at one moment.
type Totals struct {
	Rows     []Total
	Complete bool       // else there is more than one answer may read, and Rows speak of a part
	Since    *time.Time // of Complete false: when the oldest refund that was counted was created
}

// OpenTotals counts the refunds of a tenant that have no end yet, by state and currency. Beyond 200,000 of them it counts no more.
func (e *Engine) OpenTotals(ctx context.Context, tenantID string) (Totals, error) {
	t, err := e.totals(ctx, fmt.Sprintf(`
		SELECT min(o.at), o.state, o.currency, count(*), sum(o.amount_cents)::text, min(o.at)
		FROM (
			SELECT greatest(least(created_at, '9999-12-31T23:59:59.999999Z'), '0001-01-01T00:00:00Z') AS at, state, currency, amount_cents
			FROM refund_operations
			WHERE tenant_id = $1 AND state IN ('reserved', 'pending', 'needs_attention') LIMIT %d
		) AS o
		GROUP BY o.state, o.currency ORDER BY o.state, o.currency`, maxTotalled+1), tenantID)
	if err != nil {
		return t, fmt.Errorf("total open refunds: %w", err)
	}
	t.Since = nil // they come in no order
	return t, nil
}

// Totals counts the refunds of a tenant that were created within the window, by bucket, state and currency. Beyond 200,000 of them
// it counts the newest.
func (e *Engine) Totals(ctx context.Context, tenantID string, w Window) (Totals, error) {
	t, err := e.totals(ctx, fmt.Sprintf(`
		SELECT date_trunc($4, o.created_at, 'UTC'), o.state, o.currency, count(*), sum(o.amount_cents)::text, min(o.created_at)
		FROM (
			SELECT created_at, state, currency, amount_cents FROM refund_operations
			WHERE tenant_id = $1 AND state <> 'revoked' AND created_at > $2 AND created_at < $3
			ORDER BY created_at DESC, operation_id DESC LIMIT %d
		) AS o
		GROUP BY 1, o.state, o.currency ORDER BY 1, o.state, o.currency LIMIT %d`, maxTotalled+1, maxTotals+1),
		tenantID, w.After, w.Before, string(w.Unit))
	if err != nil {
		return t, fmt.Errorf("total refunds: %w", err)
	}
	return t, nil
}

func (e *Engine) totals(ctx context.Context, sql string, args ...any) (Totals, error) {
	t := Totals{}
	var counted int64
	err := e.query(ctx, func(rows pgx.Rows) error {
		var row Total
		var oldest time.Time
		_, err := pgx.ForEachRow(rows, []any{&row.Bucket, &row.State, &row.Currency, &row.Count, &row.Sum, &oldest}, func() error {
			t.Rows, counted = append(t.Rows, row), counted+row.Count
			if t.Since == nil || oldest.Before(*t.Since) {
				t.Since = new(oldest)
			}
			return nil
		})
		return err
	}, sql, args...)
	switch {
	case err != nil:
		return Totals{}, err
	case len(t.Rows) > maxTotals:
		return Totals{}, ErrTooManyMatches
	}
	if t.Complete = counted <= maxTotalled; t.Complete {
		t.Since = nil
	}
	return t, nil
}
