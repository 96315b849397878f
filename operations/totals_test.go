package operations_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"refundd/operations"
)

// load makes 900 refunds of four days, some of each state, in two currencies, and withdrawals, which are none.
const load = `INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
	currency,
	state, provider, provider_key, provider_key_expires_at, attempts, failure_code, created_at, settled_at)
SELECT 'acme', 'op-' || n, repeat('0', 64), CASE WHEN s.state <> 'revoked' THEN gen_random_uuid() END, 'A', n,
	(ARRAY['USD', 'JPY'])[1 + n % 2], s.state, p.provider, p.provider || n, CASE WHEN p.provider <> ''
		THEN now() END, CASE WHEN p.provider <> '' THEN 1 ELSE 0 END,
	CASE s.state WHEN 'failed' THEN 'declined' END, date_trunc('hour', now()) - n * interval '6 minutes',
	CASE WHEN s.state IN ('failed', 'succeeded', 'revoked') THEN now() END
FROM generate_series(1, 900) AS n,
	LATERAL (SELECT (ARRAY['succeeded', 'succeeded', 'failed', 'reserved', 'succeeded', 'revoked',
		'needs_attention'])[1 + n % 7]
		AS state) AS s,
	LATERAL (SELECT CASE WHEN s.state <> 'revoked' THEN 'simulator' END AS provider) AS p`

// Hours that are summed are told as truly as others, whatever moves: states, and what an owner moves in time or loads.
func TestTotals_OfSummedHours_FollowEveryChange(t *testing.T) {
	b := newBundle(t)
	b.order("A", 1_000_000)
	b.exec(load)
	hour := time.Now().UTC().Truncate(time.Hour)
	at := func(hours int, minutes time.Duration) time.Time {
		return hour.Add(time.Duration(hours)*time.Hour + minutes*time.Minute)
	}
	windows := []operations.Window{
		// on the hour: what is at its ends is not in it
		{After: at(-100, 0), Before: at(2, 0), Unit: operations.Hourly},
		{After: at(-51, 43), Before: at(-10, 7), Unit: operations.Hourly},
		{After: at(-51, 43), Before: at(-50, 0), Unit: operations.Hourly}, // within one hour
		{After: at(-30*24, 0), Before: at(1, 0), Unit: operations.Daily},
	}
	for i, change := range []string{
		`SELECT`, // summed by the first who asked
		`UPDATE refund_operations SET state = 'succeeded', settled_at = now(), failure_code = NULL
			WHERE operation_id IN ('op-3', 'op-255', 'op-584')`,
		`UPDATE refund_operations SET state = 'failed', failure_code = 'late'
			WHERE operation_id IN ('op-7', 'op-420', 'op-560')`,
		`UPDATE refund_operations SET created_at = created_at - interval '26 hours'
			WHERE operation_id IN ('op-7', 'op-8', 'op-300')`,
		`UPDATE refund_operations SET created_at = created_at + interval '26 hours'
			WHERE operation_id IN ('op-408', 'op-600')`,
		`UPDATE refund_operations SET created_at = '-infinity' WHERE operation_id = 'op-140'`,
		`UPDATE refund_operations SET created_at = now() WHERE created_at = '-infinity'`,
		`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state,
			settled_at, created_at) VALUES ('acme', 'old', repeat('0', 64), gen_random_uuid(), 'A', 11, 'USD',
				'succeeded', now(), now() - interval '45 hours')`,
	} {
		for _, w := range windows {
			if i > 0 || w.Unit == operations.Hourly {
				b.wantTotals(w, fmt.Sprint(w, " before ", change))
			}
		}
		b.exec(change)
		for _, w := range windows {
			b.wantTotals(w, fmt.Sprint(w, " after ", change))
		}
	}
	if n := b.count(`SELECT count(*) FROM refund_hours`); n < 100 {
		t.Errorf("only %d hours are summed", n)
	}
}

// wantTotals holds a window's totals against the operations, one by one.
func (b *bundle) wantTotals(w operations.Window, of string) {
	b.t.Helper()
	rows, err := b.db.Owner.Query(b.t.Context(), `
		SELECT date_trunc($1, created_at, 'UTC') AS bucket, state, currency, count(*) AS count,
			sum(amount_cents)::text AS sum
		FROM refund_operations WHERE tenant_id = 'acme' AND state <> 'revoked' AND created_at > $2 AND created_at < $3
		GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`, string(w.Unit), w.After, w.Before)
	if err != nil {
		b.t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, pgx.RowToStructByName[operations.Total])
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := b.Totals(b.t.Context(), "acme", w)
	if err != nil || !got.Complete || got.Since != nil {
		b.t.Fatalf("%s: %+v, %v", of, got, err)
	}
	if diff := cmp.Diff(want, got.Rows, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", of, diff)
	}
}
