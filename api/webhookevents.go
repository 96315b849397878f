package api

import (
	"context"
	"net/http"
	"slices"

	"refundd/operations"
	"refundd/webhooks"
)

// webhookEvent is an event on the wire: in GET /v1/events and in the body of a webhook alike.
type webhookEvent struct {
	EventID   string        `json:"event_id"`
	Type      webhooks.Type `json:"type"`
	Timestamp timestamp     `json:"timestamp"`
	Truncated bool          `json:"truncated"`
	Data      refund        `json:"data"`
}

func eventOf(e webhooks.Event) webhookEvent {
	return webhookEvent{EventID: e.ID, Type: e.Type, Timestamp: timestamp(e.CreatedAt), Data: refundOf(e.Operation)}
}

// WebhookBody is what a webhook says of an event. One that would exceed 64 KiB leaves out the refund's reason and
// metadata.
func WebhookBody(e webhooks.Event) ([]byte, error) {
	shown := eventOf(e)
	raw, err := encode(&shown)
	if err == nil && len(raw) > maxBody {
		shown.Truncated, shown.Data.Reason, shown.Data.Metadata = true, nil, map[string]string{}
		raw, err = encode(&shown)
	}
	return raw, err
}

// eventPage is a page of events on the wire.
type eventPage struct {
	Data         []webhookEvent `json:"data"`
	NextCursor   *string        `json:"next_cursor"`
	ResumeCursor *string        `json:"resume_cursor"`
}

// eventQuery asks for a page of the log.
type eventQuery struct {
	pageQuery
	filter webhooks.EventFilter
}

func readEventQuery(in *input) eventQuery {
	q := in.query("type", "limit", "cursor", "created_after", "created_before")
	query := eventQuery{pageQuery: pageQuery{in.tenant(), in.page(q)}}
	if name, ok := q["type"]; ok {
		t := webhooks.Type(name)
		if !slices.Contains(webhooks.Types(), t) {
			in.blame("query:type", faultInvalid)
		}
		query.filter.Type = &t
	}
	return query
}

func (s *server) told(ctx context.Context, q eventQuery) (webhooks.EventPage, error) {
	return s.outbox.Events(ctx, q.tenantID, q.filter, q.page)
}

func showEvents(p webhooks.EventPage) reply {
	shown := eventPage{Data: each(p.Events, eventOf)}
	if p.Next != "" {
		shown.NextCursor = &p.Next
	}
	if p.Resume != "" {
		shown.ResumeCursor = &p.Resume
	}
	return reply{status: http.StatusOK, body: &shown}
}

// eventKey names an event of the caller's tenant.
type eventKey struct{ tenantID, eventID string }

func readEventKey(in *input) eventKey { return eventKey{in.tenant(), in.uuid("event_id")} }

func (s *server) event(ctx context.Context, k eventKey) (webhooks.Event, error) {
	return s.outbox.Event(ctx, k.tenantID, k.eventID)
}

func showEvent(e webhooks.Event) reply { return reply{status: http.StatusOK, body: new(eventOf(e))} }

// delivery is a delivery on the wire; every member is always present.
type delivery struct {
	EndpointID    string                 `json:"endpoint_id"`
	EventID       string                 `json:"event_id"`
	Type          webhooks.Type          `json:"type"`
	OperationID   string                 `json:"operation_id"`
	State         webhooks.DeliveryState `json:"state"`
	Attempts      int                    `json:"attempts"`
	LastAttemptAt *timestamp             `json:"last_attempt_at"`
	LastResult    *webhooks.Result       `json:"last_result"`
	LastStatus    *int                   `json:"last_status"`
	NextAttemptAt *timestamp             `json:"next_attempt_at"`
	CreatedAt     timestamp              `json:"created_at"`
	EndedAt       *timestamp             `json:"ended_at"`
}

func deliveryOf(d webhooks.Delivery) delivery {
	return delivery{
		EndpointID: d.EndpointID, EventID: d.EventID, Type: d.Type, OperationID: d.OperationID,
		State: d.State, Attempts: d.Attempts,
		LastAttemptAt: optionalTime(d.LastAttemptAt), LastResult: d.LastResult, LastStatus: d.LastStatus,
		NextAttemptAt: optionalTime(d.NextAttemptAt), CreatedAt: timestamp(d.CreatedAt), EndedAt: optionalTime(d.EndedAt),
	}
}

// deliveryQuery asks for a page of what an endpoint did not take at once.
type deliveryQuery struct {
	key   webhooks.EndpointKey
	state *webhooks.DeliveryState
	page  operations.Page
}

func readDeliveryQuery(in *input) deliveryQuery {
	q := in.query("state", "limit", "cursor", "created_after", "created_before")
	query := deliveryQuery{key: readEndpointKey(in), page: in.page(q)}
	if name, ok := q["state"]; ok {
		state := webhooks.DeliveryState(name)
		if !slices.Contains(webhooks.DeliveryStates(), state) {
			in.blame("query:state", faultInvalid)
		}
		query.state = &state
	}
	return query
}

func (s *server) deliveries(ctx context.Context, q deliveryQuery) (listed[webhooks.Delivery], error) {
	rows, next, err := s.outbox.Deliveries(ctx, q.key, q.state, q.page)
	return listed[webhooks.Delivery]{rows, next}, err
}

func showDeliveries(l listed[webhooks.Delivery]) reply { return showList(l, deliveryOf) }

func readRedelivery(in *input) webhooks.Redelivery {
	id := in.uuid("event_id")
	b := optionalBody[struct {
		EndpointID *string `json:"endpoint_id"`
	}](in)
	if b.EndpointID != nil {
		in.blame("/endpoint_id", uuidFault(*b.EndpointID))
	}
	return webhooks.Redelivery{TenantID: in.tenant(), KeyID: in.x.principal.KeyID, EventID: id,
		EndpointID: b.EndpointID}
}

func showRedelivery(queued []webhooks.Delivery) reply {
	rep := showMatches(queued, deliveryOf)
	rep.status = http.StatusAccepted
	return rep
}
