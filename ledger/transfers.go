package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Kind says what a transfer did.
type Kind string

// The kinds of transfer and the accounts they move between.
const (
	KindRefund   Kind = "refund"   // merchant → customer, no provider
	KindHold     Kind = "hold"     // merchant → in_transit, at the reservation
	KindSettle   Kind = "settle"   // in_transit → customer, the provider paid
	KindRelease  Kind = "release"  // in_transit → merchant, the provider did not
	KindReversal Kind = "reversal" // customer → merchant, a paid refund came back
)

// Transfer is one immutable movement between two accounts of a tenant.
type Transfer struct {
	TenantID      string
	OperationID   string
	Seq           int // 1, 2, … per operation
	Kind          Kind
	DebitAccount  string
	CreditAccount string
	AmountCents   int64 // minor units
	Currency      string
	CreatedAt     time.Time
}

// Entry is one refund to be debited from its order.
type Entry struct {
	OrderKey
	OperationID string
	AmountCents int64 // minor units
	Currency    string
}

// Lock queues the row locks on orders, in the order that all of the service locks them in, and afterwards hands those that
// exist to found. The rows carry what the cap is judged by: currency, amounts and provider.
func Lock(b *pgx.Batch, keys []OrderKey, found func([]Order)) {
	tenants, orders := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], orders[i] = k.TenantID, k.OrderID
	}
	b.Queue(`
		SELECT o.tenant_id, o.order_id, o.currency, o.captured_cents, o.refunded_cents, o.provider
		FROM unnest($1::text[], $2::text[]) AS k (tenant_id, order_id)
		JOIN orders o ON o.tenant_id = k.tenant_id AND o.order_id = k.order_id
		ORDER BY o.tenant_id, o.order_id
		FOR NO KEY UPDATE OF o`, tenants, orders).Query(func(rows pgx.Rows) error {
		locked, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Order, error) {
			var o Order
			err := row.Scan(&o.TenantID, &o.OrderID, &o.Currency, &o.CapturedCents, &o.RefundedCents, &o.Provider)
			return o, err
		})
		if err != nil {
			return fmt.Errorf("lock orders: %w", err)
		}
		found(locked)
		return nil
	})
}

// Debit posts refunds without a provider, all at the time at: one transfer merchant → customer for each entry, and each
// order's balance once by the sum of its entries. The orders are locked by the caller, who also checked their remainders;
// the CHECK on the order refuses what would exceed the capture all the same.
func Debit(ctx context.Context, tx pgx.Tx, at time.Time, entries []Entry) error {
	n := len(entries)
	tenants, orders, ids := make([]string, n), make([]string, n), make([]string, n)
	amounts, currencies := make([]int64, n), make([]string, n)
	distinct := make(map[OrderKey]struct{}, n)
	for i, e := range entries {
		tenants[i], orders[i], ids[i] = e.TenantID, e.OrderID, e.OperationID
		amounts[i], currencies[i] = e.AmountCents, e.Currency
		distinct[e.OrderKey] = struct{}{}
	}
	var posted, debited int
	err := tx.QueryRow(ctx, `
		WITH entry AS MATERIALIZED (
			SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[])
				AS e (tenant_id, order_id, operation_id, amount_cents, currency)
		), posted AS (
			INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
				amount_cents, currency, created_at)
			SELECT tenant_id, operation_id, 1, 'refund', 'merchant', 'customer', amount_cents, currency, $6
			FROM entry
			RETURNING 1
		), debited AS (
			UPDATE orders o SET refunded_cents = o.refunded_cents + d.amount_cents
			FROM (SELECT tenant_id, order_id, sum(amount_cents)::bigint AS amount_cents
			      FROM entry GROUP BY tenant_id, order_id) d
			WHERE o.tenant_id = d.tenant_id AND o.order_id = d.order_id
			RETURNING 1
		)
		SELECT (SELECT count(*) FROM posted), (SELECT count(*) FROM debited)`,
		tenants, orders, ids, amounts, currencies, at).Scan(&posted, &debited)
	if err != nil {
		return fmt.Errorf("debit orders: %w", err)
	}
	if posted != n || debited != len(distinct) {
		return fmt.Errorf("debit orders: %d transfers and %d orders, want %d and %d", posted, debited, n, len(distinct))
	}
	return nil
}
