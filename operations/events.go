package operations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Event is one entry of an operation's append-only history: a provider attempt or a transition. A refund without a
// provider has none: its row and its transfer are its timeline.
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
	b := &pgx.Batch{}
	if err := e.queueEvents(b, events); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	return nil
}

// followed returns those of the events that OnEvents is to be told.
func (e *Engine) followed(events []Event) []Event {
	if e.config.OnEvents == nil {
		return nil
	}
	var followed []Event
	for _, ev := range events {
		if ev.ToState != nil && slices.Contains(e.config.Followed, *ev.ToState) {
			followed = append(followed, ev)
		}
	}
	return followed
}

// queueEvents queues the writing of history, and then what the rooms write that follow it.
func (e *Engine) queueEvents(b *pgx.Batch, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	var c eventRows
	for _, ev := range events {
		if err := c.add(ev); err != nil {
			return err
		}
	}
	b.Queue(`
		INSERT INTO operation_events (tenant_id, operation_id, kind, from_state, to_state, attempt, layer, actor,
			error_kind,
			provider_request_id, detail, created_at)
		SELECT n.tenant_id, n.operation_id, n.kind, n.from_state, n.to_state, n.attempt, n.layer, n.actor, n.error_kind,
			n.provider_request_id, n.detail::jsonb, n.created_at
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[], $8::text[],
			$9::text[],
			$10::text[], $11::text[], $12::timestamptz[]) WITH ORDINALITY
			AS n (tenant_id, operation_id, kind, from_state, to_state, attempt, layer, actor, error_kind,
				provider_request_id,
				detail, created_at, place)
		ORDER BY n.place`,
		c.tenants, c.ids, c.kinds, c.from, c.to, c.attempts, c.layers, c.actors, c.errorKinds, c.requests, c.details, c.at)
	if followed := e.followed(events); len(followed) > 0 {
		return e.config.OnEvents(b, followed)
	}
	return nil
}

// eventRows are the columns of the rows to insert.
type eventRows struct {
	tenants, ids, kinds, details                   []string
	from, to, layers, actors, errorKinds, requests []*string
	attempts                                       []*int32
	at                                             []time.Time
}

func (c *eventRows) add(ev Event) error {
	detail, err := encodeMetadata(ev.Detail)
	if err != nil {
		return err
	}
	var attempt *int32
	if ev.Attempt != nil {
		attempt = ptrTo(int32(*ev.Attempt))
	}
	c.tenants, c.ids, c.kinds = append(c.tenants, ev.TenantID), append(c.ids, ev.OperationID), append(c.kinds, ev.Kind)
	c.from, c.to = append(c.from, (*string)(ev.FromState)), append(c.to, (*string)(ev.ToState))
	c.layers, c.actors = append(c.layers, ev.Layer), append(c.actors, ev.Actor)
	c.errorKinds, c.requests = append(c.errorKinds, ev.ErrorKind), append(c.requests, ev.ProviderRequestID)
	c.attempts, c.details, c.at = append(c.attempts, attempt), append(c.details, detail), append(c.at, ev.CreatedAt)
	return nil
}
