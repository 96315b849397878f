package operations

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pages"
	"refundd/internal/pgtx"
	"refundd/ledger"
)

// ErrRefundNotFound reports a key that no refund holds; a withdrawn authorization's key is not a refund.
var ErrRefundNotFound = errors.New("refund not found")

// Reads answers what the database holds now, at no provider's expense. Its methods may be called at once from any
// number of goroutines.
type Reads struct{ pool *pgxpool.Pool }

// Order answers one order, or ErrOrderNotFound.
func (r Reads) Order(ctx context.Context, tenantID, orderID string) (Order, error) {
	var o Order
	err := pgtx.Do(ctx, r.pool, func(tx *pgtx.Tx) (err error) {
		o, err = ledger.Find(ctx, tx, OrderKey{TenantID: tenantID, OrderID: orderID})
		return err
	})
	return o, err
}

// FindOrders answers all orders of a customer, oldest first, or ErrTooManyMatches.
func (r Reads) FindOrders(ctx context.Context, tenantID string, q CustomerQuery) ([]Order, error) {
	var found []Order
	err := pgtx.Do(ctx, r.pool, func(tx *pgtx.Tx) (err error) {
		found, err = ledger.FindByCustomer(ctx, tx, tenantID, q, MaxMatches+1)
		return err
	})
	return allMatches(found, err)
}

// Refund answers the truth of now from the database, in any state, or ErrRefundNotFound.
func (r Reads) Refund(ctx context.Context, tenantID, operationID string) (Operation, error) {
	key := operationKey{tenantID, operationID}
	known, err := readOperations(ctx, r.pool, []operationKey{key})
	if err != nil {
		return Operation{}, err
	}
	op, claimed := known[key]
	if !claimed || op.State == StateRevoked {
		return Operation{}, ErrRefundNotFound
	}
	return op, nil
}

// query runs one statement that only reads.
func (r Reads) query(ctx context.Context, collect func(pgx.Rows) error, sql string, args ...any) error {
	return pgtx.Query(ctx, r.pool, collect, sql, args...)
}

// TimelineEntry is one thing that happened to an operation: a ledger transfer, or an event.
type TimelineEntry struct {
	At       time.Time
	Event    *Event    // nil for a transfer
	Transfer *Transfer // nil for an event
}

// Timeline lists what happened to a refund, oldest first, and answers the next page's cursor; or ErrRefundNotFound.
func (r Reads) Timeline(ctx context.Context, tenantID, operationID string, p Page) ([]TimelineEntry, string, error) {
	if _, err := r.Refund(ctx, tenantID, operationID); err != nil {
		return nil, "", err
	}
	from, err := decodeCursor(p.Cursor)
	if err != nil {
		return nil, "", err
	}
	w := pages.Where{Args: []any{tenantID, operationID}}
	w.And(`true`)
	w.Between(`t.at`, p.CreatedAfter, p.CreatedBefore)
	if from != nil {
		source, seq, err := from.entry()
		if err != nil {
			return nil, "", err
		}
		w.And(`(t.at, t.source, t.seq) > (?, ?::int, ?::bigint)`, from.at, source, seq)
	}
	var found []placed
	err = r.query(ctx, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, scanPlaced)
		return err
	}, fmt.Sprintf(timelineQuery, &w, p.Limit+1), w.Args...)
	if err != nil {
		return nil, "", fmt.Errorf("list timeline: %w", err)
	}
	page, next := pages.Cut(found, p.Limit, func(f placed) string { return f.cursor().encode() })
	entries := make([]TimelineEntry, len(page))
	for i, f := range page {
		entries[i] = f.entry(tenantID, operationID)
	}
	return entries, next, nil
}

// timelineQuery merges both histories; of what one transaction did, the money comes first.
const timelineQuery = `
	SELECT t.at, t.source, t.seq, t.kind, t.debit_account, t.credit_account, t.amount_cents, t.currency,
		t.from_state, t.to_state, t.attempt, t.layer, t.actor, t.error_kind, t.provider_request_id, t.detail
	FROM (
		SELECT created_at AS at, 0 AS source, seq::bigint, kind, debit_account, credit_account, amount_cents, currency,
			NULL AS from_state, NULL AS to_state, NULL::integer AS attempt, NULL AS layer, NULL AS actor,
			NULL AS error_kind, NULL AS provider_request_id, '{}'::jsonb AS detail
		FROM ledger_transfers WHERE tenant_id = $1 AND operation_id = $2
		UNION ALL
		SELECT created_at, 1, seq, kind, '', '', 0, '', from_state, to_state, attempt, layer, actor,
			error_kind, provider_request_id, detail
		FROM operation_events WHERE tenant_id = $1 AND operation_id = $2
	) AS t
	WHERE %s ORDER BY t.at, t.source, t.seq LIMIT %d`

// placed is a timeline entry with its place: transfers (0) and events (1) count separately.
type placed struct {
	at       time.Time
	source   int
	seq      int64
	kind     string
	transfer Transfer
	event    Event
}

func scanPlaced(row pgx.CollectableRow) (placed, error) {
	var f placed
	t, ev := &f.transfer, &f.event
	err := row.Scan(&f.at, &f.source, &f.seq, &f.kind, &t.DebitAccount, &t.CreditAccount, &t.AmountCents, &t.Currency,
		&ev.FromState, &ev.ToState, &ev.Attempt, &ev.Layer, &ev.Actor, &ev.ErrorKind, &ev.ProviderRequestID, &ev.Detail)
	return f, err
}

func (f placed) entry(tenantID, operationID string) TimelineEntry {
	if f.source == 0 {
		t := f.transfer
		t.TenantID, t.OperationID, t.Seq, t.Kind, t.CreatedAt = tenantID, operationID, int(f.seq), ledger.Kind(f.kind),
			f.at
		return TimelineEntry{At: f.at, Transfer: &t}
	}
	ev := f.event
	ev.TenantID, ev.OperationID, ev.Kind, ev.CreatedAt = tenantID, operationID, f.kind, f.at
	return TimelineEntry{At: f.at, Event: &ev}
}

func (f placed) cursor() cursor {
	return cursorAt(f.at, strconv.Itoa(f.source)+"."+strconv.FormatInt(f.seq, 10))
}

// entry reads a timeline's cursor back.
func (c cursor) entry() (source int, seq int64, err error) {
	before, after, _ := strings.Cut(c.id, ".")
	source, err1 := strconv.Atoi(before)
	seq, err2 := strconv.ParseInt(after, 10, 64)
	if err1 != nil || err2 != nil || source < 0 || source > 1 {
		return 0, 0, ErrInvalidCursor
	}
	return source, seq, nil
}
