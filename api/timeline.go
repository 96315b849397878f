package api

import (
	"context"

	"refundd/operations"
)

// entry is one thing that happened to an operation: exactly one of transfer and event is not null.
type entry struct {
	At       timestamp `json:"at"`
	Transfer *transfer `json:"transfer"`
	Event    *event    `json:"event"`
}

// transfer is a movement between two accounts on the wire.
type transfer struct {
	Seq           int    `json:"seq"`
	Kind          string `json:"kind"`
	DebitAccount  string `json:"debit_account"`
	CreditAccount string `json:"credit_account"`
	AmountCents   int64  `json:"amount_cents"`
	Currency      string `json:"currency"`
}

// event is an attempt or a transition on the wire.
type event struct {
	Kind              string            `json:"kind"`
	FromState         *operations.State `json:"from_state"`
	ToState           *operations.State `json:"to_state"`
	Attempt           *int              `json:"attempt"`
	Layer             *string           `json:"layer"`
	Actor             *string           `json:"actor"`
	ErrorKind         *string           `json:"error_kind"`
	ProviderRequestID *string           `json:"provider_request_id"`
	Detail            map[string]string `json:"detail"`
}

func entryOf(e operations.TimelineEntry) entry {
	shown := entry{At: timestamp(e.At)}
	if t := e.Transfer; t != nil {
		shown.Transfer = &transfer{
			Seq: t.Seq, Kind: string(t.Kind), DebitAccount: t.DebitAccount, CreditAccount: t.CreditAccount,
			AmountCents: t.AmountCents, Currency: t.Currency,
		}
	}
	if v := e.Event; v != nil {
		shown.Event = &event{
			Kind: v.Kind, FromState: v.FromState, ToState: v.ToState, Attempt: v.Attempt, Layer: v.Layer, Actor: v.Actor,
			ErrorKind: v.ErrorKind, ProviderRequestID: v.ProviderRequestID, Detail: v.Detail,
		}
	}
	return shown
}

// timelineQuery asks for a page of an operation's history.
type timelineQuery struct {
	operationKey
	page operations.Page
}

func readTimelineQuery(in *input) timelineQuery {
	key := readOperationKey(in)
	return timelineQuery{key, in.page(in.query("limit", "cursor", "created_after", "created_before"))}
}

func (s *server) timeline(ctx context.Context, q timelineQuery) (listed[operations.TimelineEntry], error) {
	rows, next, err := s.engine.Timeline(ctx, q.tenantID, q.operationID, q.page)
	return listed[operations.TimelineEntry]{rows, next}, err
}

func showTimeline(l listed[operations.TimelineEntry]) reply {
	return showList(l, entryOf)
}
