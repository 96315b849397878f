package ledger

import (
	"errors"
	"time"
)

// Errors of an order's registration and look-up.
var (
	// ErrOrderNotFound reports an order that the tenant does not have; another tenant's order is not found either.
	ErrOrderNotFound = errors.New("order not found")
	// ErrOrderImmutable reports a change of what an order fixes for good: currency, provider and payment; or a capture lowered.
	ErrOrderImmutable = errors.New("order is immutable")
	// ErrPaymentAlreadyRegistered reports a provider payment that belongs to another order already, of this tenant or another.
	ErrPaymentAlreadyRegistered = errors.New("payment already registered")
)

// OrderKey names an order within its tenant.
type OrderKey struct {
	TenantID string
	OrderID  string
}

// Order is a captured payment and what of it was given back.
type Order struct {
	OrderKey
	Currency           string // ISO 4217
	CapturedCents      int64  // minor units
	RefundedCents      int64  // minor units, posted and held
	HeldCents          int64  // minor units: the part of RefundedCents whose outcome at the provider is not known yet
	Provider           *string
	ProviderPaymentRef *string
	Customer           Customer
	CreatedAt          time.Time
}

// RefundableCents is what may still be given back, in minor units.
func (o Order) RefundableCents() int64 { return o.CapturedCents - o.RefundedCents }

// Customer is who paid, as far as the order's source told.
type Customer struct {
	ID    *string
	Email *string
	Name  *string
}

// Registration is what PUT of an order may say; nil keeps what the order has.
type Registration struct {
	OrderKey
	Currency           *string
	CapturedCents      *int64  // minor units
	Provider           *string // "ledger" says that no provider moves the money
	ProviderPaymentRef *string
	Customer           *Customer
}

// CustomerQuery selects orders by customer; the members that are set must all match, the e-mail without regard to case.
type CustomerQuery struct {
	ID    *string
	Email *string
}
