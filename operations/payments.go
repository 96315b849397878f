package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"refundd/internal/pgtx"
	"refundd/ledger"
)

// PaymentReader is a provider whose payments can be read before an order is registered with one.
type PaymentReader interface {
	// Payment reads a payment that an account of the provider's took, our own where it is empty. Its error is a
	// *ProviderError: of ErrorNotFound where there is no such payment.
	Payment(ctx context.Context, ref, account string) (Payment, error)
}

// Payment is what a provider's books show of a payment.
type Payment struct {
	Currency      string // ISO 4217
	CapturedCents int64  // minor units
}

// ErrPaymentMismatch reports an order that its provider's books contradict.
var ErrPaymentMismatch = errors.New("provider's books contradict the order")

// MismatchError names the member of a registration that the provider's books contradict. It unwraps to
// ErrPaymentMismatch.
type MismatchError struct{ Member string } // a column of orders

func (e *MismatchError) Error() string { return ErrPaymentMismatch.Error() + ": " + e.Member }

func (e *MismatchError) Unwrap() error { return ErrPaymentMismatch }

// RegisterOrder stores a captured payment, or what may change of a known one, and tells whether it is new. Where the
// provider's payments can be read, it is read before: see ErrPaymentMismatch.
func (e *Engine) RegisterOrder(ctx context.Context, r Registration) (Order, bool, error) {
	if err := e.verifyPayment(ctx, r); err != nil {
		return Order{}, false, err
	}
	type registered struct {
		order Order
		isNew bool
	}
	done, err := inTurn(ctx, e, orderLane(r.OrderKey), func(ctx context.Context, tx *pgtx.Tx) (registered, error) {
		o, isNew, err := ledger.Register(ctx, tx, r)
		return registered{o, isNew}, err
	})
	return done.order, done.isNew, err
}

// verifyPayment reads the payment of a new order, or of one whose capture is to rise, where its provider's payments can
// be read. An order may say less than was captured, so that less is given back; never more.
func (e *Engine) verifyPayment(ctx context.Context, r Registration) error {
	if !e.readsPayments() {
		return nil
	}
	known, err := e.Order(ctx, r.TenantID, r.OrderID)
	switch {
	case errors.Is(err, ErrOrderNotFound):
	case err != nil:
		return err
	case r.CapturedCents == nil || *r.CapturedCents <= known.CapturedCents || !r.Keeps(known):
		return nil // nothing rises, or it is refused
	default:
		r.Currency, r.Provider = &known.Currency, known.Provider
		r.ProviderPaymentRef, r.ProviderAccount = known.ProviderPaymentRef, known.ProviderAccount
	}
	if r.Provider == nil || r.ProviderPaymentRef == nil || r.Currency == nil || r.CapturedCents == nil {
		return nil // of the ledger alone, or incomplete
	}
	p := e.providers[*r.Provider]
	if p == nil || p.setup.Payments == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.ProviderTimeout)
	defer cancel()
	shown, err := p.setup.Payments.Payment(ctx, *r.ProviderPaymentRef, deref(r.ProviderAccount))
	if err != nil {
		return e.unverified(*r.Provider, r.OrderKey, failureOf(err))
	}
	switch {
	case shown.Currency != *r.Currency:
		return &MismatchError{"currency"}
	case shown.CapturedCents < *r.CapturedCents:
		return &MismatchError{"captured_cents"}
	}
	return nil
}

func (e *Engine) readsPayments() bool {
	for _, p := range e.providers {
		if p.setup.Payments != nil {
			return true
		}
	}
	return false
}

// unverified is why a payment could not be read.
func (e *Engine) unverified(provider string, k ledger.OrderKey, failure ProviderError) error {
	if failure.Kind == ErrorNotFound {
		return &MismatchError{"provider_payment_ref"}
	}
	e.config.Logger.Warn("payment not read", slog.String("provider", provider), slog.String("tenant_id", k.TenantID),
		slog.String("order_id", k.OrderID), slog.String("kind", string(failure.Kind)))
	return fmt.Errorf("read payment: %w", &Refusal{Err: ErrProviderUnavailable, RetryAfter: e.config.BreakerOpen})
}
