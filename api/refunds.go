package api

import (
	"context"
	"net/http"

	"refundd/operations"
)

const refundsPath = "/v1/refunds"

// refundBody is what POST /v1/refunds says.
type refundBody struct {
	OperationID *string            `json:"operation_id"`
	OrderID     *string            `json:"order_id"`
	AmountCents *integer           `json:"amount_cents"`
	Currency    *string            `json:"currency"`
	Reason      *string            `json:"reason"`
	Metadata    map[string]*string `json:"metadata"`
}

// refund is a refund on the wire; every member is always present.
type refund struct {
	OperationID       string                `json:"operation_id"`
	RefundID          string                `json:"refund_id"`
	OrderID           string                `json:"order_id"`
	AmountCents       int64                 `json:"amount_cents"`
	Currency          string                `json:"currency"`
	Reason            *string               `json:"reason"`
	Metadata          map[string]string     `json:"metadata"`
	State             operations.State      `json:"state"`
	MoneyMoved        operations.MoneyMoved `json:"money_moved"`
	Provider          string                `json:"provider"`
	ProviderRefundID  *string               `json:"provider_refund_id"`
	FailureCode       *string               `json:"failure_code"`
	CreatedAt         timestamp             `json:"created_at"`
	SettledAt         *timestamp            `json:"settled_at"`
	NextAction        string                `json:"next_action"`
	RetryAfterSeconds *int                  `json:"retry_after_seconds"`
}

// receipt is a refund, and what this call did.
type receipt struct {
	refund
	Status   operations.Status `json:"status"`
	Replayed bool              `json:"replayed"`
}

// pollSeconds is how long a caller is asked to wait before it reads a refund without an outcome again.
const pollSeconds = 2

func refundOf(o operations.Operation) refund {
	shown := refund{
		OperationID: o.OperationID, RefundID: o.RefundID, OrderID: o.OrderID, AmountCents: o.AmountCents,
		Currency: o.Currency, Reason: o.Reason, Metadata: o.Metadata, State: o.State, MoneyMoved: o.State.MoneyMoved(),
		Provider: providerName(o.Provider), ProviderRefundID: o.ProviderRefundID, FailureCode: o.FailureCode,
		CreatedAt: timestamp(o.CreatedAt), SettledAt: optionalTime(o.SettledAt), NextAction: nextNone,
	}
	switch o.State {
	case operations.StateReserved, operations.StatePending:
		shown.NextAction, shown.RetryAfterSeconds = nextWait, new(pollSeconds)
	case operations.StateFailed:
		shown.NextAction = nextAuthorize
	case operations.StateNeedsAttention:
		shown.NextAction = nextEscalate
	case operations.StateSucceeded, operations.StateRevoked:
	}
	return shown
}

// refundPath is where a refund is; an operation id needs no escape.
func refundPath(operationID string) string { return refundsPath + "/" + operationID }

// readSubmission reads a call to refund.
func readSubmission(in *input) operations.Request {
	header, sent := in.idempotencyKey()
	in.x.operationID = header
	b := body[refundBody](in)
	return operations.Request{
		TenantID:    in.tenant(),
		OperationID: in.namedOperation(header, sent, b.OperationID),
		OrderID:     in.bodyOrderID(b.OrderID),
		AmountCents: in.amount(b.AmountCents),
		Currency:    in.currency(b.Currency),
		Reason:      in.reason(b.Reason),
		Metadata:    in.metadata(b.Metadata),
		Layer:       in.x.attempt.layer,
		Attempt:     in.x.attempt.number,
		Ref:         in.x.ref,
	}
}

// showReceipt answers 201 for what this call did, 200 for what an earlier one did, and 202 while the outcome is
// unknown.
func showReceipt(r operations.Receipt) reply {
	shown := receipt{refund: refundOf(r.Operation), Status: r.Status, Replayed: r.Replayed}
	rep := reply{
		status: http.StatusCreated, moved: shown.MoneyMoved, outcome: string(r.Status), replayed: r.Replayed,
		location: refundPath(r.Operation.OperationID),
	}
	switch r.Status {
	case operations.StatusAlreadyProcessed:
		rep.status, rep.location = http.StatusOK, ""
	case operations.StatusPending:
		rep.status, rep.retryAfter = http.StatusAccepted, wholeSeconds(r.RetryAfter)
		shown.NextAction, shown.RetryAfterSeconds = nextWait, new(rep.retryAfter)
	}
	rep.body = &shown
	return rep
}

// operationKey names an operation of the caller's tenant.
type operationKey struct{ tenantID, operationID string }

func readOperationKey(in *input) operationKey {
	return operationKey{in.tenant(), in.operationID()}
}

func (s *server) refund(ctx context.Context, k operationKey) (operations.Operation, error) {
	return s.engine.Refund(ctx, k.tenantID, k.operationID)
}

func showRefund(o operations.Operation) reply {
	shown := refundOf(o)
	return reply{status: http.StatusOK, body: &shown, moved: shown.MoneyMoved}
}

// maxRef is how long a Request-Id may be.
const maxRef = 128

// refundQuery asks for a page of refunds.
type refundQuery struct {
	tenantID string
	filter   operations.RefundFilter
	page     operations.Page
}

func readRefundQuery(in *input) refundQuery {
	q := in.query("order_id", "state", "provider_refund_id", "diagnostic_ref",
		"limit", "cursor", "created_after", "created_before")
	query := refundQuery{tenantID: in.tenant(), page: in.page(q)}
	if id, ok := q["order_id"]; ok {
		in.blame("query:order_id", orderIDFault(id))
		query.filter.OrderID = &id
	}
	if id, ok := q["provider_refund_id"]; ok {
		query.filter.ProviderRefundID, query.filter.Providers = in.text("query:provider_refund_id", &id, maxID),
			providers
	}
	if ref, ok := q["diagnostic_ref"]; ok {
		query.filter.Ref = in.text("query:diagnostic_ref", &ref, maxRef)
	}
	if name, ok := q["state"]; ok {
		state := operations.State(name)
		switch state {
		case operations.StateReserved, operations.StatePending, operations.StateSucceeded, operations.StateFailed,
			operations.StateNeedsAttention:
			query.filter.State = &state
		default: // revoked keys are no refunds
			in.blame("query:state", faultInvalid)
		}
	}
	return query
}

func (s *server) refunds(ctx context.Context, q refundQuery) (listed[operations.Operation], error) {
	rows, next, err := s.engine.Refunds(ctx, q.tenantID, q.filter, q.page)
	return listed[operations.Operation]{rows, next}, err
}

func showRefunds(l listed[operations.Operation]) reply {
	return showList(l, refundOf)
}

// ledgerOnly is the provider's name where no provider moves the money.
const ledgerOnly = "ledger"

func providerName(p *string) string {
	if p == nil {
		return ledgerOnly
	}
	return *p
}
