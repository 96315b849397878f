package ledger

import (
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

// Entry names the money of one operation.
type Entry struct {
	OrderKey
	OperationID string
	AmountCents int64 // minor units
	Currency    string
}

// Posting is one transfer to be written, as the seq-th of its operation.
type Posting struct {
	Entry
	kind Kind
	seq  int
}

// Change is what the transfer does to its order's balance, in minor units.
func (p Posting) Change() int64 { return p.AmountCents * accounts[p.kind].balance }

// Hold holds the money of a refund again that failed, and that its provider is known to have paid: merchant →
// in_transit. (The hold of a reservation is claim_refunds'.)
func Hold(e Entry, seq int) Posting { return Posting{e, KindHold, seq} }

// Settle ends a hold whose refund the provider paid: in_transit → customer.
func Settle(e Entry, seq int) Posting { return Posting{e, KindSettle, seq} }

// Release ends a hold whose refund the provider did not pay: in_transit → merchant. The order has its remainder back.
func Release(e Entry, seq int) Posting { return Posting{e, KindRelease, seq} }

// Reverse takes a paid refund back that failed afterwards: customer → merchant. The order has its remainder back.
func Reverse(e Entry, seq int) Posting { return Posting{e, KindReversal, seq} }

// accounts are what each kind moves between, and what it does to its order's balance.
var accounts = map[Kind]struct {
	debit, credit string
	balance       int64
}{
	KindRefund:   {"merchant", "customer", +1},
	KindHold:     {"merchant", "in_transit", +1},
	KindSettle:   {"in_transit", "customer", 0},
	KindRelease:  {"in_transit", "merchant", -1},
	KindReversal: {"customer", "merchant", -1},
}

// Lock queues the row locks on orders, in the order that all of the service locks them in, and afterwards hands those
// that it got to found: those that exist, and that nobody else holds unless it waits. The rows carry what the cap is
// judged by: currency, amounts and provider.
func Lock(b *pgx.Batch, keys []OrderKey, wait bool, found func([]Order)) {
	tenants, orders := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], orders[i] = k.TenantID, k.OrderID
	}
	b.Queue(`
		SELECT o.tenant_id, o.order_id, o.currency, o.captured_cents, o.refunded_cents, o.provider,
			o.provider_payment_ref
		FROM unnest($1::text[], $2::text[]) AS k (tenant_id, order_id)
		JOIN orders o ON o.tenant_id = k.tenant_id AND o.order_id = k.order_id
		ORDER BY o.tenant_id, o.order_id
		FOR NO KEY UPDATE OF o`+skipLocked(wait), tenants, orders).Query(func(rows pgx.Rows) error {
		locked, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Order, error) {
			var o Order
			err := row.Scan(&o.TenantID, &o.OrderID, &o.Currency, &o.CapturedCents, &o.RefundedCents, &o.Provider,
				&o.ProviderPaymentRef)
			return o, err
		})
		if err != nil {
			return fmt.Errorf("lock orders: %w", err)
		}
		found(locked)
		return nil
	})
}

func skipLocked(wait bool) string {
	if wait {
		return ""
	}
	return " SKIP LOCKED"
}

// Post queues the writing of transfers, all at the time at, and changes each order's balance once by their sum; what is
// not written is an error of the statement. The orders are locked by the caller. It records what providers did: a hold
// of what one is known to have paid counts whether the capture covers it or not, and an order's excess over its capture
// is raised and lowered with its balance.
func Post(b *pgx.Batch, at time.Time, postings []Posting) {
	if len(postings) == 0 {
		return
	}
	c := newColumns(postings)
	b.Queue(`
		WITH posting AS MATERIALIZED (
			SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::int[],
				$8::text[], $9::text[], $10::bigint[])
				AS p (tenant_id, order_id, operation_id, amount_cents, currency, kind, seq, debit_account,
					credit_account, change)
		), posted AS (
			INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
				amount_cents, currency, created_at)
			SELECT tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents, currency, $11
			FROM posting
			RETURNING 1
		), changed AS (
			UPDATE orders o SET refunded_cents = o.refunded_cents + d.change,
				over_refunded_cents = greatest(o.refunded_cents + d.change - o.captured_cents, 0)
			FROM (SELECT tenant_id, order_id, sum(change)::bigint AS change
			      FROM posting GROUP BY tenant_id, order_id HAVING sum(change) <> 0) d
			WHERE o.tenant_id = d.tenant_id AND o.order_id = d.order_id
			RETURNING 1
		)
		SELECT expect_rows('transfers posted', (SELECT count(*) FROM posted), $12),
			expect_rows('orders changed', (SELECT count(*) FROM changed), $13)`,
		c.tenants, c.orders, c.operations, c.amounts, c.currencies, c.kinds, c.seqs, c.debits, c.credits, c.changes, at,
		len(postings), c.distinct)
}

// columns are the postings as the arrays that one statement takes.
type columns struct {
	tenants, orders, operations, currencies, kinds, debits, credits []string
	amounts, changes                                                []int64
	seqs                                                            []int32
	distinct                                                        int // orders whose balance changes
}

func newColumns(postings []Posting) columns {
	n := len(postings)
	s := func() []string { return make([]string, n) }
	c := columns{s(), s(), s(), s(), s(), s(), s(), make([]int64, n), make([]int64, n), make([]int32, n), 0}
	balance := make(map[OrderKey]int64, n)
	for i, p := range postings {
		a := accounts[p.kind]
		c.tenants[i], c.orders[i], c.operations[i] = p.TenantID, p.OrderID, p.OperationID
		c.currencies[i], c.kinds[i], c.debits[i], c.credits[i] = p.Currency, string(p.kind), a.debit, a.credit
		c.amounts[i], c.changes[i], c.seqs[i] = p.AmountCents, p.Change(), int32(p.seq)
		balance[p.OrderKey] += c.changes[i]
	}
	for _, change := range balance {
		if change != 0 {
			c.distinct++
		}
	}
	return c
}
