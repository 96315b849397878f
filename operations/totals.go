package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// How much a total may read, and answer: a tenant of tens of millions of refunds costs no more than this.
const (
	maxTotalled = 200_000 // refunds, but those that an hour's sum holds
	maxTotals   = 10_000
)

// How much the first who asks for a tenant's totals has summed: so many refunds at a time, for so long.
const (
	summedAtOnce = 200_000
	summedFor    = 2 * time.Second
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

// OpenTotals counts the refunds of a tenant that have no end yet, by state and currency. Beyond 200,000 of them it
// counts no more: who watches asks again and again, and most of all when there are many.
func (r Reads) OpenTotals(ctx context.Context, tenantID string) (Totals, error) {
	t, err := r.totals(ctx, fmt.Sprintf(`
		SELECT min(o.at), o.state, o.currency, count(*), sum(o.amount_cents)::text, min(o.at),
			sum(count(*)) OVER () <= %d
		FROM (
			SELECT greatest(least(created_at, '9999-12-31T23:59:59.999999Z'), '0001-01-01T00:00:00Z') AS at,
				state, currency, amount_cents
			FROM refund_operations
			WHERE tenant_id = $1 AND state IN ('reserved', 'pending', 'needs_attention') LIMIT %d
		) AS o
		GROUP BY o.state, o.currency ORDER BY o.state, o.currency`, maxTotalled, maxTotalled+1), tenantID)
	if err != nil {
		return t, fmt.Errorf("total open refunds: %w", err)
	}
	t.Since = nil // they come in no order
	return t, nil
}

// Totals counts the refunds of a tenant that were created within the window, by bucket, state and currency. Hours that
// are long over are read from their sums, and what of them did not succeed from the operations. Where more than 200,000
// refunds are left to be counted (hours that nobody has asked for yet, or a very busy one), it counts the newest.
func (r Reads) Totals(ctx context.Context, tenantID string, w Window) (Totals, error) {
	if err := r.sumHours(ctx, tenantID); err != nil {
		return Totals{}, fmt.Errorf("sum hours: %w", err)
	}
	t, err := r.totals(ctx, totalsQuery, tenantID, w.After, w.Before, string(w.Unit))
	if err != nil {
		return t, fmt.Errorf("total refunds: %w", err)
	}
	return t, nil
}

// sumHours has hours summed that nobody has asked for yet. What is left of them when its time is up, the next who asks
// goes on with.
func (r Reads) sumHours(ctx context.Context, tenantID string) error {
	for began, more := time.Now(), true; more && time.Since(began) < summedFor; {
		err := r.query(ctx, func(rows pgx.Rows) (err error) {
			more, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
			return err
		}, fmt.Sprintf(`SELECT sum_refund_hours($1, %d)`, summedAtOnce), tenantID)
		if err != nil {
			return err
		}
	}
	return nil
}

var totalsQuery = fmt.Sprintf(`
	-- the whole hours of the window that are summed: from first on, before last
	WITH summed AS MATERIALIZED (
		SELECT CASE WHEN b.last > f.first THEN f.first ELSE '-infinity' END AS first,
			CASE WHEN b.last > f.first THEN b.last ELSE '-infinity' END AS last
		FROM (SELECT date_trunc('hour', $2::timestamptz, 'UTC') + interval '1 hour' AS first) AS f,
			(SELECT least(date_trunc('hour', $3::timestamptz, 'UTC'),
				coalesce((SELECT s.before FROM refund_hours_summed s WHERE s.tenant_id = $1), '-infinity')) AS last) AS b
	),
	hours AS (
		SELECT date_trunc($4, h.hour, 'UTC') AS bucket, h.currency, sum(h.refunds) AS refunds, sum(h.amount_cents) AS amount
		FROM refund_hours h
		WHERE h.tenant_id = $1 AND h.hour >= (SELECT first FROM summed) AND h.hour < (SELECT last FROM summed)
		GROUP BY 1, h.currency
	),
	-- of those hours, what did not succeed
	aside AS MATERIALIZED (
		SELECT date_trunc($4, o.created_at, 'UTC') AS bucket, o.state, o.currency,
			count(*) AS refunds, sum(o.amount_cents) AS amount
		FROM refund_operations o
		WHERE o.tenant_id = $1 AND o.state IN ('reserved', 'pending', 'failed', 'needs_attention') AND o.state <> 'succeeded'
			AND o.created_at >= (SELECT first FROM summed) AND o.created_at < (SELECT last FROM summed)
		GROUP BY 1, o.state, o.currency
	),
	-- whatever is newer
	newer AS MATERIALIZED (
		SELECT date_trunc($4, l.created_at, 'UTC') AS bucket, l.state, l.currency,
			count(*) AS refunds, sum(l.amount_cents) AS amount, min(l.created_at) AS since
		FROM (
			SELECT o.created_at, o.state, o.currency, o.amount_cents FROM refund_operations o
			WHERE o.tenant_id = $1 AND o.state <> 'revoked' AND o.created_at > $2 AND o.created_at < $3
				AND o.created_at >= (SELECT last FROM summed)
			ORDER BY o.created_at DESC, o.operation_id DESC LIMIT %[1]d
		) AS l
		GROUP BY 1, l.state, l.currency
	),
	-- and what the window has of the hour before
	older AS MATERIALIZED (
		SELECT date_trunc($4, l.created_at, 'UTC') AS bucket, l.state, l.currency,
			count(*) AS refunds, sum(l.amount_cents) AS amount
		FROM (
			SELECT o.created_at, o.state, o.currency, o.amount_cents FROM refund_operations o
			WHERE o.tenant_id = $1 AND o.state <> 'revoked' AND o.created_at > $2
				AND o.created_at < (SELECT first FROM summed) LIMIT %[1]d
		) AS l
		GROUP BY 1, l.state, l.currency
	),
	counted AS (
		SELECT coalesce((SELECT sum(refunds) FROM newer), 0) < %[1]d
			AND coalesce((SELECT sum(refunds) FROM older), 0) < %[1]d AS whole
	)
	SELECT coalesce(t.bucket, $2), coalesce(t.state, ''), coalesce(t.currency, ''), coalesce(t.refunds, 0)::bigint,
		coalesce(t.amount, 0)::text, coalesce(t.since, $3), c.whole
	FROM counted AS c LEFT JOIN (
		SELECT a.bucket, a.state, a.currency, sum(a.refunds) AS refunds, sum(a.amount) AS amount, min(a.since) AS since FROM (
			SELECT n.* FROM newer AS n
			UNION ALL SELECT o.*, NULL FROM older AS o, counted AS c WHERE c.whole
			UNION ALL SELECT h.bucket, 'succeeded', h.currency, h.refunds, h.amount, NULL
				FROM hours AS h, counted AS c WHERE c.whole
			UNION ALL SELECT x.bucket, 'succeeded', x.currency, -x.refunds, -x.amount, NULL
				FROM aside AS x, counted AS c WHERE c.whole
			UNION ALL SELECT x.*, NULL FROM aside AS x, counted AS c WHERE c.whole
		) AS a
		GROUP BY a.bucket, a.state, a.currency HAVING sum(a.refunds) <> 0
	) AS t ON true
	ORDER BY 1, 2, 3 LIMIT %[2]d`,
	maxTotalled+1, maxTotals+1)

func (r Reads) totals(ctx context.Context, sql string, args ...any) (Totals, error) {
	t := Totals{Complete: true}
	err := r.query(ctx, func(rows pgx.Rows) error {
		var row Total
		var oldest time.Time
		targets := []any{&row.Bucket, &row.State, &row.Currency, &row.Count, &row.Sum, &oldest, &t.Complete}
		_, err := pgx.ForEachRow(rows, targets, func() error {
			if row.Count > 0 { // else it says no more than whether that is all
				t.Rows = append(t.Rows, row)
			}
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
	if t.Complete {
		t.Since = nil
	}
	return t, nil
}
