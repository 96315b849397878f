package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Event is one entry of an operation's append-only history: a provider attempt or a transition. A refund without a provider
// has none: its row and its transfer are its timeline.
type Event struct {
	TenantID          string
	OperationID       string
	Kind              string
	FromState         *State
	ToState           *State
	Attempt           *int
	Layer             *string // the retrying layer that made the attempt, as its caller labels it
	Actor             *string // the person or job behind a transition
	ErrorKind         *string // never a provider's text
	ProviderRequestID *string
	Detail            map[string]string
	CreatedAt         time.Time
}

// appendEvents writes history in the transaction that makes it, and hands it to the rooms that follow transitions.
func (e *Engine) appendEvents(ctx context.Context, tx pgx.Tx, events []Event) error {
	for i := range events {
		ev := &events[i]
		detail, err := encodeMetadata(ev.Detail)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			INSERT INTO operation_events (tenant_id, operation_id, kind, from_state, to_state, attempt, layer, actor,
				error_kind, provider_request_id, detail, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::jsonb, clock_timestamp())
			RETURNING created_at`,
			ev.TenantID, ev.OperationID, ev.Kind, ev.FromState, ev.ToState, ev.Attempt, ev.Layer, ev.Actor,
			ev.ErrorKind, ev.ProviderRequestID, detail).Scan(&ev.CreatedAt)
		if err != nil {
			return fmt.Errorf("append event: %w", err)
		}
	}
	if e.config.OnEvents == nil {
		return nil
	}
	return e.config.OnEvents(ctx, tx, events)
}
