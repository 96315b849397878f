package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"refundd/ledger"
)

// verdict is what tx 1 found for one call. The zero verdict is a lost race: the key is another call's, whose row is to be
// read once it is committed.
type verdict struct {
	stored  *Operation // the key's row: this call's own, or one that committed while the orders were being locked
	refused error
}

// terms are what a refund of an unclaimed key is judged by, besides its order.
type terms struct {
	at            time.Time // the one time of this transaction, read after the locks
	mustAuthorize bool
	authorization *approved
}

type approved struct {
	orderID     string
	amountCents int64
	currency    string
	expired     bool
}

// claim is tx 1: lock the orders, re-read keys and authorizations, judge in the order of arrival, claim the keys, debit.
// Both the operation's row and the debit commit, or neither.
func claim(ctx context.Context, tx pgx.Tx, calls []*call) ([]verdict, error) {
	orders, known, agreed, err := lockAndRead(ctx, tx, calls)
	if err != nil {
		return nil, err
	}
	verdicts, passed := judge(calls, orders, known, agreed)
	if len(passed) == 0 {
		return verdicts, nil
	}
	at := agreed[calls[passed[0]].key].at
	postings, err := insertClaims(ctx, tx, at, calls, passed, orders, verdicts)
	if err != nil {
		return nil, err
	}
	return verdicts, ledger.Post(ctx, tx, at, postings)
}

// lockAndRead locks the orders of the calls, and then, in new statements, reads what may have committed while it waited for
// the locks: the keys that are claimed by now, and the authorizations.
func lockAndRead(ctx context.Context, tx pgx.Tx, calls []*call) (
	map[OrderKey]Order, map[operationKey]Operation, map[operationKey]terms, error,
) {
	orders := make(map[OrderKey]Order, len(calls))
	var known map[operationKey]Operation
	var agreed map[operationKey]terms
	keys := keysOf(calls)
	b := &pgx.Batch{}
	ledger.Lock(b, ordersOf(calls), func(locked []Order) {
		for _, o := range locked {
			orders[o.OrderKey] = o
		}
	})
	queueOperations(b, keys, func(found map[operationKey]Operation) { known = found })
	queueTerms(b, keys, func(found map[operationKey]terms) { agreed = found })
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, nil, fmt.Errorf("lock and read: %w", err)
	}
	return orders, known, agreed, nil
}

func ordersOf(calls []*call) []OrderKey {
	seen := make(map[OrderKey]struct{}, len(calls))
	keys := make([]OrderKey, 0, len(calls))
	for _, c := range calls {
		k := c.orderKey()
		if _, again := seen[k]; again {
			continue
		}
		seen[k] = struct{}{}
		keys = append(keys, k)
	}
	return keys
}

// queueTerms queues the reading of authorizations against one reading of the database's clock.
func queueTerms(b *pgx.Batch, keys []operationKey, found func(map[operationKey]terms)) {
	tenants, ids := columns(keys)
	b.Queue(`
		WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at)
		SELECT k.tenant_id, k.operation_id, clock.at, coalesce(t.require_authorization, true),
			a.order_id, a.amount_cents, a.currency, coalesce(a.expires_at <= clock.at, false)
		FROM unnest($1::text[], $2::text[]) AS k (tenant_id, operation_id)
		CROSS JOIN clock
		LEFT JOIN tenants t ON t.tenant_id = k.tenant_id
		LEFT JOIN refund_authorizations a ON a.tenant_id = k.tenant_id AND a.operation_id = k.operation_id`,
		tenants, ids).Query(func(rows pgx.Rows) error {
		agreed := make(map[operationKey]terms, len(keys))
		var k operationKey
		var t terms
		var orderID, currency *string
		var amountCents *int64
		var expired bool
		_, err := pgx.ForEachRow(rows, []any{&k.TenantID, &k.OperationID, &t.at, &t.mustAuthorize,
			&orderID, &amountCents, &currency, &expired}, func() error {
			t.authorization = nil
			if orderID != nil {
				t.authorization = &approved{*orderID, *amountCents, *currency, expired}
			}
			agreed[k] = t
			return nil
		})
		found(agreed)
		return err
	})
}

// judge decides the calls in the order of their arrival against the locked remainders, and answers the places of those that
// may claim. A key claims once per batch; later calls of it are judged as lost races.
func judge(calls []*call, orders map[OrderKey]Order, known map[operationKey]Operation, agreed map[operationKey]terms) (
	[]verdict, []int,
) {
	verdicts := make([]verdict, len(calls))
	claiming := make(map[operationKey]struct{}, len(calls))
	var passed []int
	for i, c := range calls {
		if op, claimed := known[c.key]; claimed {
			verdicts[i].stored = &op
			continue
		}
		if _, taken := claiming[c.key]; taken {
			continue
		}
		orderKey := c.orderKey()
		order, exists := orders[orderKey]
		if err := c.allowed(order, exists, agreed[c.key]); err != nil {
			verdicts[i].refused = err
			continue
		}
		order.RefundedCents += c.AmountCents
		orders[orderKey] = order
		claiming[c.key] = struct{}{}
		passed = append(passed, i)
	}
	return verdicts, passed
}

// allowed tells why an unclaimed key may not be executed, in the order of checks that the contract fixes; nil if it may.
func (c *call) allowed(order Order, exists bool, t terms) error {
	a := t.authorization
	switch {
	case c.ctx.Err() != nil:
		return ErrDeadlineExceeded
	case !exists:
		return ErrOrderNotFound
	case c.Currency != nil && *c.Currency != order.Currency:
		return ErrCurrencyMismatch
	case a == nil && t.mustAuthorize:
		return ErrAuthorizationNotFound
	case a != nil && a.expired:
		return ErrAuthorizationExpired
	case a != nil && (a.orderID != c.OrderID || a.amountCents != c.AmountCents || a.currency != order.Currency):
		return ErrAuthorizationMismatch
	case c.AmountCents > order.RefundableCents():
		return ErrAmountExceedsRefundable
	case order.Provider != nil:
		return ErrProviderUnavailable
	default:
		return nil
	}
}

// insertClaims claims the keys of the calls that passed and answers what is to be debited: only the rows that this INSERT
// returned. The others' keys were claimed by somebody else between the re-reading and the INSERT.
func insertClaims(ctx context.Context, tx pgx.Tx, at time.Time, calls []*call, passed []int,
	orders map[OrderKey]Order, verdicts []verdict,
) ([]ledger.Posting, error) {
	place := make(map[string]int, len(passed))
	rows := newClaimRows(len(passed))
	for _, i := range passed {
		c := calls[i]
		place[c.refundID] = i
		op := c.succeeded(orders[c.orderKey()].Currency, at)
		verdicts[i].stored = &op
		if err := rows.add(op); err != nil {
			return nil, err
		}
	}
	won, err := rows.insert(ctx, tx, at)
	if err != nil {
		return nil, err
	}
	mine := make(map[int]struct{}, len(won))
	postings := make([]ledger.Posting, 0, len(won))
	for _, refundID := range won {
		i := place[refundID]
		mine[i] = struct{}{}
		op := verdicts[i].stored
		postings = append(postings, ledger.Debit(op.entry()))
	}
	for _, i := range passed {
		if _, ok := mine[i]; !ok {
			verdicts[i].stored = nil
		}
	}
	return postings, nil
}

// succeeded is the row of a refund without a provider: claimed and settled at once.
func (c *call) succeeded(currency string, at time.Time) Operation {
	return Operation{
		TenantID: c.TenantID, OperationID: c.OperationID, Fingerprint: c.fingerprint, RefundID: c.refundID,
		OrderID: c.OrderID, AmountCents: c.AmountCents, Currency: currency, Reason: c.Reason, Metadata: c.Metadata,
		State: StateSucceeded, CreatedAt: at, SettledAt: &at,
	}
}

// claimRows are the columns of the rows to insert.
type claimRows struct {
	tenants, ids, fingerprints, refunds, orders, currencies, metadata []string
	amounts                                                           []int64
	reasons                                                           []*string
}

func newClaimRows(n int) *claimRows {
	s := func() []string { return make([]string, 0, n) }
	return &claimRows{s(), s(), s(), s(), s(), s(), s(), make([]int64, 0, n), make([]*string, 0, n)}
}

func (r *claimRows) add(o Operation) error {
	metadata, err := encodeMetadata(o.Metadata)
	if err != nil {
		return err
	}
	r.tenants, r.ids = append(r.tenants, o.TenantID), append(r.ids, o.OperationID)
	r.fingerprints, r.refunds = append(r.fingerprints, o.Fingerprint), append(r.refunds, o.RefundID)
	r.orders, r.currencies = append(r.orders, o.OrderID), append(r.currencies, o.Currency)
	r.metadata, r.amounts = append(r.metadata, metadata), append(r.amounts, o.AmountCents)
	r.reasons = append(r.reasons, o.Reason)
	return nil
}

// insert claims the keys in sorted order and answers the refund_ids of the rows that are new.
func (r *claimRows) insert(ctx context.Context, tx pgx.Tx, at time.Time) ([]string, error) {
	rows, err := tx.Query(ctx, `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
			reason, metadata, state, created_at, settled_at)
		SELECT n.tenant_id, n.operation_id, n.fingerprint, n.refund_id::uuid, n.order_id, n.amount_cents, n.currency,
			n.reason, n.metadata::jsonb, 'succeeded', $10, $10
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[])
			AS n (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency, reason, metadata)
		ORDER BY n.tenant_id COLLATE "C", n.operation_id COLLATE "C"
		ON CONFLICT (tenant_id, operation_id) DO NOTHING
		RETURNING refund_id::text`,
		r.tenants, r.ids, r.fingerprints, r.refunds, r.orders, r.amounts, r.currencies, r.reasons, r.metadata, at)
	if err != nil {
		return nil, fmt.Errorf("claim keys: %w", err)
	}
	won, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("claim keys: %w", err)
	}
	return won, nil
}

func encodeMetadata(m map[string]string) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	return string(b), nil
}
