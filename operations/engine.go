package operations

import (
	"context"
	"errors"
)

// ErrRefundNotFound reports a key that no refund holds; a withdrawn authorization's key is not a refund.
var ErrRefundNotFound = errors.New("refund not found")

// Engine executes refunds. Its methods may be called at once from any number of goroutines.
type Engine struct{ config Config }

// New makes an engine, or reports every fault of its configuration.
func New(c Config) (*Engine, error) { return &Engine{config: c}, nil }

// Run works off the queue until ctx ends; what is queued by then is still answered. Submit needs it running.
func (e *Engine) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// RegisterOrder stores a captured payment, or what may change of a known one, and tells whether it is new.
func (e *Engine) RegisterOrder(ctx context.Context, r Registration) (Order, bool, error) {
	return Order{}, false, errors.ErrUnsupported
}

// Order answers one order, or ErrOrderNotFound.
func (e *Engine) Order(ctx context.Context, tenantID, orderID string) (Order, error) {
	return Order{}, errors.ErrUnsupported
}

// FindOrders answers all orders of a customer, oldest first, or ErrTooManyMatches.
func (e *Engine) FindOrders(ctx context.Context, tenantID string, q CustomerQuery) ([]Order, error) {
	return nil, errors.ErrUnsupported
}

// Refund answers the truth of now from the database, in any state, or ErrRefundNotFound.
func (e *Engine) Refund(ctx context.Context, tenantID, operationID string) (Operation, error) {
	return Operation{}, errors.ErrUnsupported
}

// Refunds lists refunds, newest first, and answers the next page's cursor, empty at the end.
func (e *Engine) Refunds(ctx context.Context, tenantID string, f RefundFilter, p Page) ([]Operation, string, error) {
	return nil, "", errors.ErrUnsupported
}

// Timeline lists what happened to an operation, oldest first: its transfers and its events.
func (e *Engine) Timeline(ctx context.Context, tenantID, operationID string, p Page) ([]TimelineEntry, string, error) {
	return nil, "", errors.ErrUnsupported
}
