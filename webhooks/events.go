package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pages"
	"refundd/internal/pgtx"
	"refundd/operations"
)

// Event is one transition of a refund.
type Event struct {
	ID        string
	Position  int64 // in the tenant's log
	Type      Type
	CreatedAt time.Time
	Operation operations.Operation // as the transition left it
}

// eventColumns reads an event ev and its operation o for scanEvent. What of an operation may change is the event's own.
const eventColumns = `ev.event_id::text, ev.position, ev.type, ev.created_at, o.tenant_id, o.operation_id,
	o.refund_id::text, o.order_id, o.amount_cents, o.currency, o.reason, o.metadata, o.provider, ev.provider_refund_id, ev.failure_code,
	greatest(least(o.created_at, '9999-12-31T23:59:59.999999Z'), '0001-01-01T00:00:00Z'), ev.settled_at`

func (e *Event) targets() []any {
	o := &e.Operation
	return []any{
		&e.ID, &e.Position, &e.Type, &e.CreatedAt, &o.TenantID, &o.OperationID, &o.RefundID, &o.OrderID,
		&o.AmountCents, &o.Currency, &o.Reason, &o.Metadata, &o.Provider, &o.ProviderRefundID, &o.FailureCode, &o.CreatedAt, &o.SettledAt,
	}
}

func scanEvent(row pgx.CollectableRow) (Event, error) {
	var e Event
	err := row.Scan(e.targets()...)
	e.Operation.State = e.Type.state()
	return e, err
}

// EventFilter selects events; nil selects all.
type EventFilter struct{ Type *Type }

// EventPage is a page of the log.
type EventPage struct {
	Events []Event
	Next   string // the next page's cursor; empty where this one is the last so far
	Resume string // where a reader goes on later: after the page's last event; empty while there is none
}

// Events returns a page of a tenant's log, oldest first. A position is only ever given to what is committed and to all
// that was committed before it was looked for, so that nothing appears later behind a cursor.
func (o *Outbox) Events(ctx context.Context, tenantID string, f EventFilter, p operations.Page) (EventPage, error) {
	if _, err := o.number(ctx, &tenantID); err != nil {
		return EventPage{}, err
	}
	after, err := o.place(ctx, tenantID, p.Cursor)
	if err != nil {
		return EventPage{}, err
	}
	w := pages.Where{Args: []any{tenantID, p.Limit + 1}}
	w.And("ev.tenant_id = $1")
	w.And("ev.position > ?", after)
	if f.Type != nil {
		w.And("ev.type = ?", string(*f.Type))
	}
	w.Between("ev.created_at", p.CreatedAfter, p.CreatedBefore)
	page := EventPage{Resume: p.Cursor}
	page.Events, err = o.read(ctx, w.String()+` ORDER BY ev.position LIMIT $2`, w.Args...)
	if err != nil {
		return EventPage{}, fmt.Errorf("list events: %w", err)
	}
	cursor := func(e Event) string { return pages.CursorOf(e.ID) }
	page.Events, page.Next = pages.Cut(page.Events, p.Limit, cursor)
	if n := len(page.Events); n > 0 {
		page.Resume = cursor(page.Events[n-1])
	}
	return page, nil
}

// read reads the events of which a condition holds.
func (o *Outbox) read(ctx context.Context, where string, args ...any) (found []Event, err error) {
	err = pgtx.Query(ctx, o.pool, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, scanEvent)
		return err
	}, `SELECT `+eventColumns+`
		FROM webhook_events ev JOIN refund_operations o ON o.tenant_id = ev.tenant_id
			AND o.operation_id = ev.operation_id
		WHERE `+where, args...)
	return found, err
}

// place is the position of the event that a cursor names, 0 for none. A cursor is an event's id, so that it tells
// nothing.
func (o *Outbox) place(ctx context.Context, tenantID, cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	id, ok := pages.IDOf(cursor)
	if !ok {
		return 0, operations.ErrInvalidCursor
	}
	e, err := o.Event(ctx, tenantID, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return 0, operations.ErrInvalidCursor
	case err != nil:
		return 0, err
	}
	return e.Position, nil
}

// Event returns one event, or ErrNotFound.
func (o *Outbox) Event(ctx context.Context, tenantID, id string) (Event, error) {
	found, err := o.read(ctx, `ev.tenant_id = $1 AND ev.event_id = $2::text::uuid AND ev.position IS NOT NULL`,
		tenantID, id)
	switch {
	case err != nil:
		return Event{}, fmt.Errorf("read event: %w", err)
	case len(found) == 0:
		return Event{}, ErrNotFound
	}
	return found[0], nil
}
