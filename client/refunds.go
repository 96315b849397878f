package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// RefundRequest asks for a refund that was approved.
type RefundRequest struct {
	OperationID string            `json:"operation_id"` // the authorization's id; the same on every attempt, for ever
	OrderID     string            `json:"order_id"`
	AmountCents int64             `json:"amount_cents"`       // minor units
	Currency    string            `json:"currency,omitempty"` // ISO 4217; empty means the order's
	Reason      string            `json:"reason,omitempty"`   // the first one stays
	Metadata    map[string]string `json:"metadata,omitempty"` // at most 20 pairs; the first ones stay
}

// State is how far a refund has come.
type State string

// The states.
const (
	StateReserved       State = "reserved"        // held, no outcome yet
	StatePending        State = "pending"         // accepted by the provider, its final word is to come
	StateSucceeded      State = "succeeded"       // the money moved
	StateFailed         State = "failed"          // it did not, or came back
	StateNeedsAttention State = "needs_attention" // a human decides
)

// Refund is a refund as the service knows it.
type Refund struct {
	OperationID      string            `json:"operation_id"`
	RefundID         string            `json:"refund_id"`
	OrderID          string            `json:"order_id"`
	AmountCents      int64             `json:"amount_cents"` // minor units
	Currency         string            `json:"currency"`     // ISO 4217
	Reason           *string           `json:"reason"`
	Metadata         map[string]string `json:"metadata"`
	State            State             `json:"state"`
	MoneyMoved       MoneyMoved        `json:"money_moved"`
	Provider         string            `json:"provider"` // "ledger" where none moves the money
	ProviderRefundID *string           `json:"provider_refund_id"`
	FailureCode      *string           `json:"failure_code"`
	CreatedAt        time.Time         `json:"created_at"`
	SettledAt        *time.Time        `json:"settled_at"`
	NextAction       string            `json:"next_action"`
}

// Status says what a call to Refund did.
type Status string

// The statuses.
const (
	StatusProcessed        Status = "processed"         // this call moved the money
	StatusAlreadyProcessed Status = "already_processed" // an earlier attempt did; this is its receipt
	StatusPending          Status = "pending"           // the outcome is not known yet: read the refund later
)

// Receipt is the answer to a refund that was not refused. Pending and already processed are answers, not errors.
type Receipt struct {
	Refund
	Status            Status `json:"status"`
	Replayed          bool   `json:"replayed"`
	RetryAfterSeconds *int64 `json:"retry_after_seconds"`
}

// RetryAfter is how long to wait before the refund is read again, where the service said so.
func (r Receipt) RetryAfter() time.Duration {
	if r.RetryAfterSeconds == nil {
		return 0
	}
	return time.Duration(*r.RetryAfterSeconds) * time.Second
}

// Refund executes an approved refund, or returns the receipt of the attempt that did. It may be called again with the
// same request, by anybody, at any time. Where an answer was lost it looks the operation up before it sends again, and
// the receipt it then returns is one of an earlier attempt.
func (c *Client) Refund(ctx context.Context, r RefundRequest) (Receipt, error) {
	q := &call{method: http.MethodPost, path: "/v1/refunds", names: r.OperationID}
	var found *Receipt
	q.find = func(ctx context.Context, n int) bool {
		found = c.find(ctx, r, n)
		return found != nil
	}
	answered, err := send(ctx, c, q, r, func(got Receipt) bool { return got.of(r) && got.Status != "" })
	if err == nil && found != nil {
		return *found, nil
	}
	return answered, err
}

// find returns the receipt of attempt n, or of an earlier one, whose answer was lost; nil where there is none to tell
// of: then the refund is sent again, and the service's own words say how it stands.
func (c *Client) find(ctx context.Context, r RefundRequest, n int) *Receipt {
	var got Receipt
	q := &call{method: http.MethodGet, path: refundPath(r.OperationID), names: r.OperationID}
	q.accept = reading(&got, func(got Receipt) bool { return got.of(r) })
	if failed := c.attempt(ctx, q, n); failed != nil {
		return nil
	}
	got.Replayed = true
	switch got.State {
	case StateSucceeded:
		got.Status = StatusAlreadyProcessed
	case StateReserved, StatePending:
		got.Status = StatusPending
	default:
		return nil
	}
	return &got
}

// is reports whether it is the refund of that operation, and says what every refund says.
func (r Refund) is(operationID string) bool {
	return r.OperationID == operationID && r.State != "" && r.MoneyMoved.known()
}

// of reports whether it is the refund that was asked for, and not another one under its operation id.
func (r Refund) of(asked RefundRequest) bool {
	return r.is(asked.OperationID) && r.OrderID == asked.OrderID && r.AmountCents == asked.AmountCents &&
		(asked.Currency == "" || r.Currency == asked.Currency)
}

// GetRefund returns how a refund stands now. One that nobody began is CodeRefundNotFound.
func (c *Client) GetRefund(ctx context.Context, operationID string) (Receipt, error) {
	q := &call{method: http.MethodGet, path: refundPath(operationID), names: operationID}
	return get(ctx, c, q, func(r Receipt) bool { return r.is(operationID) })
}

// ReconcileRefund has the service look a refund up at its provider now, and returns how it then stands.
func (c *Client) ReconcileRefund(ctx context.Context, operationID string) (Refund, error) {
	q := &call{method: http.MethodPost, path: refundPath(operationID) + "/reconcile", names: operationID}
	return get(ctx, c, q, func(r Refund) bool { return r.is(operationID) })
}

// RefundQuery selects a page of refunds. The zero value asks for the newest ones.
type RefundQuery struct {
	OrderID       string
	State         State
	CreatedAfter  time.Time
	CreatedBefore time.Time
	Limit         int    // 1 to 100; 0 means 20
	Cursor        string // Page.NextCursor of the page before
}

// Page is a page of a list, newest first.
type Page[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"` // nil on the last page
}

// Refunds returns a page of refunds.
func (c *Client) Refunds(ctx context.Context, f RefundQuery) (Page[Refund], error) {
	v := url.Values{}
	setText(v, "order_id", f.OrderID)
	setText(v, "state", string(f.State))
	setText(v, "cursor", f.Cursor)
	setTime(v, "created_after", f.CreatedAfter)
	setTime(v, "created_before", f.CreatedBefore)
	if f.Limit != 0 {
		v.Set("limit", strconv.Itoa(f.Limit))
	}
	return get[Page[Refund]](ctx, c, &call{method: http.MethodGet, path: withQuery("/v1/refunds", v)}, nil)
}

func setText(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func setTime(v url.Values, name string, at time.Time) {
	if !at.IsZero() {
		v.Set(name, at.UTC().Format(time.RFC3339Nano))
	}
}

func withQuery(path string, v url.Values) string {
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

func refundPath(operationID string) string { return "/v1/refunds/" + url.PathEscape(operationID) }
