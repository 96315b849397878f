package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Order is a captured payment, and what of it was given back. Amounts are minor units of its currency.
type Order struct {
	OrderID            string    `json:"order_id"`
	Currency           string    `json:"currency"` // ISO 4217
	CapturedCents      int64     `json:"captured_cents"`
	RefundedCents      int64     `json:"refunded_cents"` // posted and held
	HeldCents          int64     `json:"held_cents"`     // of refunds without an outcome
	RefundableCents    int64     `json:"refundable_cents"`
	OverRefundedCents  int64     `json:"over_refunded_cents"` // paid by the provider beyond the capture
	Provider           string    `json:"provider"`            // "ledger" where none moves the money
	ProviderPaymentRef *string   `json:"provider_payment_ref"`
	ProviderAccount    *string   `json:"provider_account"` // acct_…, where it is another one
	Customer           Customer  `json:"customer"`
	CreatedAt          time.Time `json:"created_at"`
}

// Customer is who paid; each member may be nil.
type Customer struct {
	ID    *string `json:"id,omitempty"`
	Email *string `json:"email,omitempty"`
	Name  *string `json:"name,omitempty"`
}

// OrderRegistration registers a captured payment. Of a known order, absent members keep their value.
type OrderRegistration struct {
	Currency           string    `json:"currency,omitempty"`
	CapturedCents      int64     `json:"captured_cents,omitempty"`       // minor units; may rise
	Provider           string    `json:"provider,omitempty"`             // empty means the ledger alone
	ProviderPaymentRef string    `json:"provider_payment_ref,omitempty"` // the provider's name of the payment
	ProviderAccount    string    `json:"provider_account,omitempty"`     // the connected account of stripe that took it
	Customer           *Customer `json:"customer,omitempty"`
}

// PutOrder registers a captured payment, or changes what may change of a known one.
func (c *Client) PutOrder(ctx context.Context, orderID string, o OrderRegistration) (Order, error) {
	q := &call{method: http.MethodPut, path: orderPath(orderID)}
	return send(ctx, c, q, o, func(got Order) bool { return got.OrderID == orderID })
}

// GetOrder returns an order as it stands now.
func (c *Client) GetOrder(ctx context.Context, orderID string) (Order, error) {
	q := &call{method: http.MethodGet, path: orderPath(orderID)}
	return get(ctx, c, q, func(got Order) bool { return got.OrderID == orderID })
}

// Matches are all that a search found. None is a result, and not the same as a search that failed.
type Matches[T any] struct {
	Data  []T `json:"data"`
	Count int `json:"count"`
}

// OrderSearch finds the orders of a customer; an empty member is not searched by.
type OrderSearch struct {
	CustomerEmail string // compared without case
	CustomerID    string
}

// FindOrders returns ALL orders that match. Which one is meant is for a person to say.
func (c *Client) FindOrders(ctx context.Context, s OrderSearch) (Matches[Order], error) {
	v := url.Values{}
	setText(v, "customer_email", s.CustomerEmail)
	setText(v, "customer_id", s.CustomerID)
	return get(ctx, c, &call{method: http.MethodGet, path: withQuery("/v1/orders", v)}, complete[Order])
}

// complete reports whether a search's answer holds what it counts.
func complete[T any](m Matches[T]) bool { return m.Count == len(m.Data) }

func orderPath(orderID string) string { return "/v1/orders/" + url.PathEscape(orderID) }
