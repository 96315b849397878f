package operations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
	"refundd/ledger"
)

// verdict is what tx 1 found for one call. The zero verdict is a lost race: the key is another call's, whose row is to be
// read once it is committed.
type verdict struct {
	stored  *Operation // the key's row: this call's own, or one that committed while the orders were being locked
	order   Order      // of a row that is this call's own
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
func (e *Engine) claim(ctx context.Context, tx *pgtx.Tx, calls []*call) ([]verdict, error) {
	orders, known, agreed, err := lockAndRead(ctx, tx, calls)
	if err != nil {
		return nil, err
	}
	verdicts, passed := e.judge(calls, orders, known, agreed)
	if len(passed) == 0 {
		return verdicts, nil
	}
	at := agreed[calls[passed[0]].key].at
	won, err := e.insertClaims(ctx, tx, at, calls, passed, verdicts)
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, i := range won {
		events = append(events, calls[i].openingEvents(*verdicts[i].stored)...)
	}
	if len(events) > 0 {
		err = e.appendEvents(ctx, tx, events)
		failpoint("reserve.uncommitted")
	}
	return verdicts, err
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
func (e *Engine) judge(calls []*call, orders map[OrderKey]Order, known map[operationKey]Operation, agreed map[operationKey]terms) (
	[]verdict, []int,
) {
	verdicts := make([]verdict, len(calls))
	claiming := make(map[operationKey]struct{}, len(calls))
	var passed []int
	for i, c := range calls {
		c.dropPermit() // of a try of this transaction that came to nothing
		orderKey := c.orderKey()
		order, exists := orders[orderKey]
		if op, claimed := known[c.key]; claimed {
			verdicts[i].stored, verdicts[i].order = &op, order
			continue
		}
		if _, taken := claiming[c.key]; taken {
			continue
		}
		err := c.allowed(order, exists, agreed[c.key])
		if err == nil {
			err = e.admit(c, order)
		}
		if err != nil {
			verdicts[i].refused = err
			continue
		}
		order.RefundedCents += c.AmountCents
		orders[orderKey] = order
		verdicts[i].order = order
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
		return &Refusal{Err: ErrAmountExceedsRefundable, Refundable: ptrTo(order.RefundableCents())}
	default:
		return nil
	}
}

// admit asks the breaker of the order's provider, the last check: while it is open, nothing new is reserved.
func (e *Engine) admit(c *call, order Order) error {
	if order.Provider == nil {
		return nil
	}
	p := e.providers[*order.Provider]
	if p == nil {
		return &Refusal{Err: ErrProviderUnavailable, RetryAfter: e.config.BreakerOpen}
	}
	if c.permit = p.breaker.permit(); c.permit == nil {
		return &Refusal{Err: ErrProviderUnavailable, RetryAfter: e.config.BreakerOpen}
	}
	return nil
}

// insertClaims claims the keys of the calls that passed, debits them, and answers the places of those whose row this INSERT
// returned: no others were debited. The others' keys were claimed by somebody else between the re-reading and the INSERT.
func (e *Engine) insertClaims(ctx context.Context, tx *pgtx.Tx, at time.Time, calls []*call, passed []int, verdicts []verdict) (
	won []int, err error,
) {
	place := make(map[string]int, len(passed))
	rows := newClaimRows(len(passed))
	for _, i := range passed {
		place[calls[i].refundID] = i
		if err := e.addClaim(rows, calls[i].opening(verdicts[i].order, at)); err != nil {
			return nil, err
		}
	}
	refundIDs, err := rows.insert(ctx, tx, at, e.config)
	if err != nil {
		return nil, err
	}
	for _, refundID := range refundIDs {
		i := place[refundID]
		op := calls[i].opening(verdicts[i].order, at)
		verdicts[i].stored = &op
		won = append(won, i)
	}
	return won, nil
}

// opening is the row that a call claims its key with: without a provider it is settled at once, with one it is reserved.
func (c *call) opening(order Order, at time.Time) Operation {
	o := Operation{
		TenantID: c.TenantID, OperationID: c.OperationID, Fingerprint: c.fingerprint, RefundID: c.refundID,
		OrderID: c.OrderID, AmountCents: c.AmountCents, Currency: order.Currency, Reason: c.Reason, Metadata: c.Metadata,
		State: StateReserved, Provider: order.Provider, CreatedAt: at,
	}
	if order.Provider == nil {
		o.State, o.SettledAt = StateSucceeded, &at
	}
	return o
}

// openingEvents begin the history of an operation at a provider; a refund without one has none.
func (c *call) openingEvents(o Operation) []Event {
	if o.Provider == nil {
		return nil
	}
	return []Event{{
		TenantID: o.TenantID, OperationID: o.OperationID, Kind: "transition", ToState: ptrTo(StateReserved),
		Attempt: ptrTo(1), Layer: optional(c.Layer), Actor: ptrTo(ActorCaller), CreatedAt: o.CreatedAt,
		Detail: merged(nil, callersAttempt, ordinal(c.Attempt)),
	}}
}

// claimRows are the columns of the rows to insert.
type claimRows struct {
	tenants, ids, fingerprints, refunds, orders, currencies, metadata, states []string
	amounts, retentions                                                       []int64
	reasons, providers, providerKeys                                          []*string
}

func newClaimRows(n int) *claimRows {
	s, p := func() []string { return make([]string, 0, n) }, func() []*string { return make([]*string, 0, n) }
	return &claimRows{s(), s(), s(), s(), s(), s(), s(), s(), make([]int64, 0, n), make([]int64, 0, n), p(), p(), p()}
}

func (e *Engine) addClaim(r *claimRows, o Operation) error {
	metadata, err := encodeMetadata(o.Metadata)
	if err != nil {
		return err
	}
	var key *string
	var retention time.Duration
	if p := e.providerOf(o); p != nil {
		key, retention = ptrTo(p.setup.key(operationKey{o.TenantID, o.OperationID})), p.setup.KeyRetention
	}
	r.tenants, r.ids = append(r.tenants, o.TenantID), append(r.ids, o.OperationID)
	r.fingerprints, r.refunds = append(r.fingerprints, o.Fingerprint), append(r.refunds, o.RefundID)
	r.orders, r.currencies = append(r.orders, o.OrderID), append(r.currencies, o.Currency)
	r.metadata, r.amounts = append(r.metadata, metadata), append(r.amounts, o.AmountCents)
	r.reasons, r.states = append(r.reasons, o.Reason), append(r.states, string(o.State))
	r.providers, r.providerKeys = append(r.providers, o.Provider), append(r.providerKeys, key)
	r.retentions = append(r.retentions, retention.Milliseconds())
	return nil
}

// claimAndDebit is where money moves: the claim of the key, under its primary key, and the debit of what was claimed, in one
// statement. A reservation is born with its lease, and as one that is being sent.
var claimAndDebit = `
	WITH claimed AS (
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
			reason, metadata, state, created_at, settled_at, provider, provider_key, provider_key_expires_at, attempts,
			lease_until, last_send_ended)
		SELECT n.tenant_id, n.operation_id, n.fingerprint, n.refund_id::uuid, n.order_id, n.amount_cents, n.currency,
			n.reason, n.metadata::jsonb, n.state, $14::timestamptz, CASE WHEN n.provider IS NULL THEN $14::timestamptz END,
			n.provider, n.provider_key, CASE WHEN n.provider IS NOT NULL THEN $14::timestamptz + n.retention * interval '1 millisecond' END,
			CASE WHEN n.provider IS NULL THEN 0 ELSE 1 END,
			CASE WHEN n.provider IS NULL THEN '-infinity' ELSE $14::timestamptz + $15 * interval '1 millisecond' END,
			CASE WHEN n.provider IS NOT NULL THEN $14::timestamptz + $16 * interval '1 millisecond' END
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[],
			$10::text[], $11::text[], $12::text[], $13::bigint[])
			AS n (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency, reason, metadata, state,
				provider, provider_key, retention)
		ORDER BY n.tenant_id COLLATE "C", n.operation_id COLLATE "C"
		ON CONFLICT (tenant_id, operation_id) DO NOTHING
		RETURNING tenant_id, operation_id, refund_id, order_id, amount_cents, currency, provider, created_at
	), ` + ledger.Debit + `
	SELECT refund_id::text, yes FROM claimed, balanced`

// insert claims the keys in sorted order, debits those that are new, and answers their refund_ids. Where no history is to be
// written the same round trip commits.
func (r *claimRows) insert(ctx context.Context, tx *pgtx.Tx, at time.Time, c Config) (refundIDs []string, err error) {
	b := &pgx.Batch{}
	b.Queue(claimAndDebit,
		r.tenants, r.ids, r.fingerprints, r.refunds, r.orders, r.amounts, r.currencies, r.reasons, r.metadata,
		r.states, r.providers, r.providerKeys, r.retentions, at, c.Lease.Milliseconds(), c.ProviderTimeout.Milliseconds(),
	).Query(func(rows pgx.Rows) error {
		var refundID string
		var balanced int
		_, err := pgx.ForEachRow(rows, []any{&refundID, &balanced}, func() error {
			refundIDs = append(refundIDs, refundID)
			return nil
		})
		return err
	})
	if r.reserves() {
		err = tx.SendBatch(ctx, b).Close()
	} else {
		failpoint("reserve.uncommitted")
		err = tx.CommitWith(ctx, b)
	}
	if err != nil {
		return nil, fmt.Errorf("claim keys: %w", err)
	}
	return refundIDs, nil
}

// reserves tells whether a provider is to be called for one of the rows.
func (r *claimRows) reserves() bool {
	return slices.ContainsFunc(r.providers, func(p *string) bool { return p != nil })
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
