package harness

import "github.com/jackc/pgx/v5"

// Balance is an order's money in cents: what its row says, and what its transfers add up to.
type Balance struct{ Captured, Refunded, Debited int64 }

// Books reads the balances of the tenant's orders, and what each key moved, for ids that begin with prefix. A key that
// has more than one transfer fails the test.
func (t *Tenant) Books(prefix string) (map[string]Balance, map[string]int64) {
	t.t.Helper()
	type line struct {
		id                          string
		captured, refunded, debited int64
		transfers                   int
	}
	rows, err := t.Service.DB.Owner.Query(t.t.Context(), `
		WITH moved AS (
			SELECT o.order_id, o.operation_id, sum(l.amount_cents)::bigint AS cents, count(*)::int AS transfers
			FROM refund_operations o JOIN ledger_transfers l USING (tenant_id, operation_id)
			WHERE o.tenant_id = $1 AND starts_with(o.operation_id, $2) GROUP BY 1, 2)
		SELECT o.order_id, o.captured_cents, o.refunded_cents,
			coalesce((SELECT sum(cents) FROM moved m WHERE m.order_id = o.order_id), 0)::bigint, 0
		FROM orders o WHERE tenant_id = $1 AND starts_with(order_id, $2)
		UNION ALL SELECT operation_id, -1, -1, cents, transfers FROM moved`, t.ID, prefix)
	if err != nil {
		t.t.Fatalf("read the books: %v", err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l line, err error) {
		err = row.Scan(&l.id, &l.captured, &l.refunded, &l.debited, &l.transfers)
		return l, err
	})
	if err != nil {
		t.t.Fatalf("read the books: %v", err)
	}
	orders, keys := map[string]Balance{}, map[string]int64{}
	for _, l := range lines {
		switch {
		case l.transfers == 0:
			orders[l.id] = Balance{l.captured, l.refunded, l.debited}
		case l.transfers > 1:
			t.t.Errorf("%s moved money %d times", l.id, l.transfers)
		default:
			keys[l.id] = l.debited
		}
	}
	return orders, keys
}
