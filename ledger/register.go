package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Why an order is not registered as asked.
var (
	// ErrOrderImmutable reports a change of what an order fixes for good (currency, provider, payment), or a lowered
	// capture.
	ErrOrderImmutable = errors.New("order is immutable")
	// ErrPaymentAlreadyRegistered reports a provider payment that belongs to another order already, of this tenant or
	// another.
	ErrPaymentAlreadyRegistered = errors.New("payment already registered")
	// ErrOrderIncomplete reports a new order that lacks what only its registration can say.
	ErrOrderIncomplete = errors.New("order is incomplete")
)

// IncompleteError names what a new order lacks, or must not have (Unexpected). It unwraps to ErrOrderIncomplete.
type IncompleteError struct {
	Missing    []string // columns of orders
	Unexpected []string
}

func (e *IncompleteError) Error() string {
	return ErrOrderIncomplete.Error() + ": " + strings.Join(append(e.Missing, e.Unexpected...), ", ")
}

func (e *IncompleteError) Unwrap() error { return ErrOrderIncomplete }

// LedgerOnly is the provider's name on an order whose money no provider moves; such an order stores none.
const LedgerOnly = "ledger"

// Registration is what may be said of an order; nil keeps what the order has.
type Registration struct {
	OrderKey
	Currency           *string // ISO 4217
	CapturedCents      *int64  // minor units; may rise
	Provider           *string // LedgerOnly, or the name of a provider
	ProviderPaymentRef *string
	ProviderAccount    *string   // acct_…, of a provider that has accounts
	Customer           *Customer // replaced as a whole
}

// Register stores a captured payment, or changes of a known one what may change, and tells whether it is new.
func Register(ctx context.Context, tx pgx.Tx, r Registration) (Order, bool, error) {
	// A registration that loses the race for a new order, or for its payment, is judged against the winner's row.
	for {
		known, err := lockForChange(ctx, tx, r.OrderKey)
		switch {
		case err == nil:
			o, err := change(ctx, tx, known, r)
			return o, false, err
		case !errors.Is(err, ErrOrderNotFound):
			return Order{}, false, err
		}
		if o, inserted, err := insertOrder(ctx, tx, r); inserted || err != nil {
			return o, inserted, err
		}
		if err := paymentFree(ctx, tx, r); err != nil {
			return Order{}, false, err
		}
	}
}

// paymentFree refuses a payment that another order has.
func paymentFree(ctx context.Context, tx pgx.Tx, r Registration) error {
	var taken bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM orders WHERE provider = $3 AND provider_payment_ref = $4
			AND (tenant_id, order_id) <> ($1, $2))`,
		r.TenantID, r.OrderID, r.movedBy(), r.ProviderPaymentRef).Scan(&taken)
	switch {
	case err != nil:
		return fmt.Errorf("look for the payment: %w", err)
	case taken:
		return ErrPaymentAlreadyRegistered
	}
	return nil
}

func lockForChange(ctx context.Context, tx pgx.Tx, key OrderKey) (Order, error) {
	if _, err := tx.Exec(ctx, `SELECT FROM orders WHERE tenant_id = $1 AND order_id = $2 FOR NO KEY UPDATE`,
		key.TenantID, key.OrderID); err != nil {
		return Order{}, fmt.Errorf("lock order: %w", err)
	}
	return Find(ctx, tx, key)
}

func insertOrder(ctx context.Context, tx pgx.Tx, r Registration) (Order, bool, error) {
	if err := complete(r); err != nil {
		return Order{}, false, err
	}
	var c Customer
	if r.Customer != nil {
		c = *r.Customer
	}
	// No one constraint is named: of two that are equal, the loser may meet the winner's payment before the winner's
	// key.
	tag, err := tx.Exec(ctx, `
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref,
			provider_account,
			customer_id, customer_email, customer_name, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp())
		ON CONFLICT DO NOTHING`,
		r.TenantID, r.OrderID, r.Currency, r.CapturedCents, r.movedBy(), r.ProviderPaymentRef, r.ProviderAccount,
		c.ID, c.Email, c.Name)
	switch {
	case err != nil:
		return Order{}, false, fmt.Errorf("insert order: %w", err)
	case tag.RowsAffected() == 0:
		return Order{}, false, nil
	}
	o, err := Find(ctx, tx, r.OrderKey)
	return o, true, err
}

// movedBy is the provider as the orders table has it: null where the ledger alone keeps the money.
func (r Registration) movedBy() *string {
	if r.Provider == nil || *r.Provider == LedgerOnly {
		return nil
	}
	return r.Provider
}

// hasAccounts are the providers that take payments for several accounts.
var hasAccounts = map[string]bool{"stripe": true}

func complete(r Registration) error {
	var e IncompleteError
	if r.Currency == nil {
		e.Missing = append(e.Missing, "currency")
	}
	if r.CapturedCents == nil {
		e.Missing = append(e.Missing, "captured_cents")
	}
	switch provider := r.movedBy(); {
	case provider != nil && r.ProviderPaymentRef == nil:
		e.Missing = append(e.Missing, "provider_payment_ref")
	case provider == nil && r.ProviderPaymentRef != nil:
		e.Unexpected = append(e.Unexpected, "provider_payment_ref")
	}
	if provider := r.movedBy(); r.ProviderAccount != nil && (provider == nil || !hasAccounts[*provider]) {
		e.Unexpected = append(e.Unexpected, "provider_account")
	}
	if e.Missing == nil && e.Unexpected == nil {
		return nil
	}
	return &e
}

func change(ctx context.Context, tx pgx.Tx, known Order, r Registration) (Order, error) {
	if !r.Keeps(known) {
		return Order{}, ErrOrderImmutable
	}
	after := known
	if r.CapturedCents != nil {
		after.CapturedCents = *r.CapturedCents
	}
	if r.Customer != nil {
		after.Customer = *r.Customer
	}
	err := tx.QueryRow(ctx, `
		UPDATE orders SET captured_cents = $3, customer_id = $4, customer_email = $5, customer_name = $6
		WHERE tenant_id = $1 AND order_id = $2
		RETURNING over_refunded_cents`, // which the capture may cover now
		r.TenantID, r.OrderID, after.CapturedCents, after.Customer.ID, after.Customer.Email, after.Customer.Name).
		Scan(&after.OverRefundedCents)
	if err != nil {
		return Order{}, fmt.Errorf("change order: %w", err)
	}
	return after, nil
}

// Keeps reports whether r leaves what known fixes for good as it is.
func (r Registration) Keeps(known Order) bool {
	same := func(asked, has *string) bool { return asked == nil || has != nil && *asked == *has }
	provider := known.Provider
	if provider == nil {
		only := LedgerOnly
		provider = &only
	}
	return same(r.Currency, &known.Currency) &&
		same(r.Provider, provider) &&
		same(r.ProviderPaymentRef, known.ProviderPaymentRef) &&
		same(r.ProviderAccount, known.ProviderAccount) &&
		(r.CapturedCents == nil || *r.CapturedCents >= known.CapturedCents)
}
