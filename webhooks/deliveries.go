package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pages"
	"refundd/internal/pgtx"
	"refundd/operations"
)

// DeliveryState is where a delivery stands.
type DeliveryState string

// The states of a delivery.
const (
	Queued    DeliveryState = "queued"    // it is sent when it is due, and no earlier event of its operation waits
	Delivered DeliveryState = "delivered" // it was taken
	GivenUp   DeliveryState = "given_up"  // it was refused for three days, while others were taken
)

// DeliveryStates returns all states.
func DeliveryStates() []DeliveryState { return []DeliveryState{Queued, Delivered, GivenUp} }

// Result is what became of an attempt.
type Result string

// The results.
const (
	ResultDelivered  Result = "delivered"           // 2xx
	ResultRefused    Result = "refused"             // any other status; a redirect is one
	ResultGone       Result = "gone"                // 410
	ResultTimeout    Result = "timeout"             // no answer in time
	ResultFailed     Result = "connection_failed"   // no name, no connection, no TLS, or an answer that is no HTTP
	ResultNotAllowed Result = "address_not_allowed" // the URL leads inside the network
)

// Results returns all results.
func Results() []Result {
	return []Result{ResultDelivered, ResultRefused, ResultGone, ResultTimeout, ResultFailed, ResultNotAllowed}
}

// Delivery is an event that an endpoint did not take at once, or that was sent again by request.
type Delivery struct {
	EndpointID    string
	EventID       string
	Type          Type
	OperationID   string
	State         DeliveryState
	Attempts      int
	LastAttemptAt *time.Time
	LastResult    *Result
	LastStatus    *int // of HTTP, where there was an answer
	NextAttemptAt *time.Time
	CreatedAt     time.Time
	EndedAt       *time.Time
	Position      int64
}

const deliveryColumns = `d.endpoint_id::text, ev.event_id::text, ev.type, d.operation_id, d.state, d.attempts,
	d.last_attempt_at, d.last_result, d.last_status, CASE d.state WHEN 'queued' THEN d.next_attempt_at END AS next_attempt_at,
	d.created_at, d.ended_at, d.position`

func collectDeliveries(rows pgx.Rows, err error) ([]Delivery, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Delivery])
}

// Deliveries returns a page of what an endpoint did not take at once, the newest event first, and the next page's
// cursor.
func (o *Outbox) Deliveries(ctx context.Context, k EndpointKey, state *DeliveryState, p operations.Page) (
	[]Delivery, string, error,
) {
	w := pages.Where{Args: []any{k.TenantID, p.Limit + 1, k.EndpointID}}
	w.And("d.tenant_id = $1 AND d.endpoint_id = $3::text::uuid")
	if state != nil {
		w.And("d.state = ?", string(*state))
	}
	w.Between("d.created_at", p.CreatedAfter, p.CreatedBefore)
	if p.Cursor != "" {
		before, err := o.place(ctx, k.TenantID, p.Cursor)
		if err != nil {
			return nil, "", err
		}
		w.And("d.position < ?", before)
	}
	found, err := pgtx.InTx(ctx, o.pool, func(tx *pgtx.Tx) ([]Delivery, error) {
		if _, err := find(ctx, tx, k); err != nil {
			return nil, err
		}
		return collectDeliveries(tx.Query(ctx, `SELECT `+deliveryColumns+` FROM webhook_deliveries d
			JOIN webhook_events ev ON ev.tenant_id = d.tenant_id AND ev.position = d.position
			WHERE `+w.String()+` ORDER BY d.position DESC LIMIT $2`, w.Args...))
	})
	if err != nil {
		return nil, "", fmt.Errorf("list webhook deliveries: %w", err)
	}
	page, next := pages.Cut(found, p.Limit, func(d Delivery) string { return pages.CursorOf(d.EventID) })
	return page, next, nil
}

// Redelivery asks for an event to be sent again.
type Redelivery struct {
	TenantID   string
	KeyID      string // the API key that asks
	EventID    string
	EndpointID *string // nil: every endpoint that wants its type
}

// Redeliver sends an event again, whatever became of it, and returns the deliveries that it queued. A disabled
// endpoint is sent it once it is enabled. Errors: ErrNotFound.
func (o *Outbox) Redeliver(ctx context.Context, r Redelivery) ([]Delivery, error) {
	event, err := o.Event(ctx, r.TenantID, r.EventID)
	if err != nil {
		return nil, err
	}
	queued, err := pgtx.InTx(ctx, o.pool, func(tx *pgtx.Tx) ([]Delivery, error) {
		// The endpoints are locked first, as whoever sends locks them.
		found, err := collectEndpoints(tx.Query(ctx, `SELECT `+endpointColumns+` FROM webhook_endpoints e
			WHERE e.tenant_id = $1 AND e.deleted_at IS NULL AND ($2::text IS NULL OR e.endpoint_id = $2::text::uuid)
			ORDER BY e.endpoint_id FOR NO KEY UPDATE`, r.TenantID, r.EndpointID))
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, e := range found {
			if r.EndpointID != nil || e.EventTypes == nil || slices.Contains(e.EventTypes, string(event.Type)) {
				ids = append(ids, e.ID)
			}
		}
		if r.EndpointID != nil && ids == nil {
			return nil, ErrNotFound
		}
		return requeue(ctx, tx, r.TenantID, ids, event)
	})
	if err != nil {
		return nil, fmt.Errorf("redeliver event: %w", err)
	}
	o.log.Info("webhook event to be sent again", slog.String("tenant_id", r.TenantID),
		slog.String("event_id", r.EventID),
		slog.String("key_id", r.KeyID), slog.Int("endpoints", len(queued)))
	return queued, nil
}

func requeue(ctx context.Context, tx pgx.Tx, tenantID string, endpoints []string, event Event) ([]Delivery, error) {
	_, err := tx.Exec(ctx, `
		INSERT INTO webhook_deliveries AS d (tenant_id, endpoint_id, position, operation_id)
		SELECT $1, id::uuid, $3, $4 FROM unnest($2::text[]) AS id
		ON CONFLICT (tenant_id, endpoint_id, position) DO UPDATE SET state = 'queued', attempts = 0,
			first_attempt_at = NULL,
			next_attempt_at = clock_timestamp(), ended_at = NULL`,
		tenantID, endpoints, event.Position, event.Operation.OperationID)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `UPDATE webhook_endpoints SET due_at = '-infinity', paused_until = '-infinity'
		WHERE tenant_id = $1 AND endpoint_id = ANY ($2::text[]::uuid[])`, tenantID, endpoints)
	if err != nil {
		return nil, err
	}
	return collectDeliveries(tx.Query(ctx, `SELECT `+deliveryColumns+`
		FROM unnest($2::text[]::uuid[]) AS k (endpoint_id)
		CROSS JOIN LATERAL (SELECT * FROM webhook_deliveries d
			WHERE d.tenant_id = $1 AND d.endpoint_id = k.endpoint_id AND d.position = $3 OFFSET 0) AS d
		JOIN webhook_events ev ON ev.tenant_id = d.tenant_id AND ev.position = d.position
		ORDER BY d.endpoint_id`, tenantID, endpoints, event.Position))
}
