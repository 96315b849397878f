package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrOrderNotFound reports an order that the tenant does not have; another tenant's order is not found either.
var ErrOrderNotFound = errors.New("order not found")

// OrderKey names an order within its tenant.
type OrderKey struct {
	TenantID string
	OrderID  string
}

// Order is a captured payment and what of it was given back.
type Order struct {
	OrderKey
	Currency           string  // ISO 4217
	CapturedCents      int64   // minor units
	RefundedCents      int64   // minor units, posted and held
	HeldCents          int64   // minor units: the part of RefundedCents whose outcome at the provider is not known yet
	OverRefundedCents  int64   // minor units: the part of RefundedCents that a provider paid beyond CapturedCents
	Provider           *string // nil: no provider moves the money
	ProviderPaymentRef *string // the provider's name of the captured payment
	ProviderAccount    *string // the provider's account that took the payment; nil: our own
	Customer           Customer
	CreatedAt          time.Time
}

// RefundableCents is what may still be given back, in minor units: nothing, once more than the capture was.
func (o Order) RefundableCents() int64 { return max(o.Remainder(), 0) }

// Remainder is what the capture leaves, in minor units: negative by as much as a provider paid beyond it.
func (o Order) Remainder() int64 { return o.CapturedCents - o.RefundedCents }

// Customer is who paid, as far as the order's source told.
type Customer struct {
	ID    *string
	Email *string
	Name  *string
}

// CustomerQuery selects orders by customer; the members that are set must all match, the e-mail without regard to case.
type CustomerQuery struct {
	ID    *string
	Email *string
}

// orderColumns reads an order o; held money is that of its operations without an end.
const orderColumns = `o.tenant_id, o.order_id, o.currency, o.captured_cents, o.refunded_cents,
	(SELECT coalesce(sum(h.amount_cents), 0)::bigint FROM refund_operations h
	 WHERE h.tenant_id = o.tenant_id AND h.order_id = o.order_id
	   AND h.state IN ('reserved', 'pending', 'needs_attention')) AS held_cents,
	o.over_refunded_cents, o.provider, o.provider_payment_ref, o.provider_account, o.customer_id, o.customer_email, o.customer_name, o.created_at`

func scanOrder(row pgx.CollectableRow) (Order, error) {
	var o Order
	err := row.Scan(&o.TenantID, &o.OrderID, &o.Currency, &o.CapturedCents, &o.RefundedCents, &o.HeldCents,
		&o.OverRefundedCents,
		&o.Provider, &o.ProviderPaymentRef, &o.ProviderAccount, &o.Customer.ID, &o.Customer.Email, &o.Customer.Name, &o.CreatedAt)
	return o, err
}

// Find answers one order, or ErrOrderNotFound.
func Find(ctx context.Context, tx pgx.Tx, key OrderKey) (Order, error) {
	rows, err := tx.Query(ctx, `SELECT `+orderColumns+` FROM orders o WHERE o.tenant_id = $1 AND o.order_id = $2`,
		key.TenantID, key.OrderID)
	if err != nil {
		return Order{}, fmt.Errorf("find order: %w", err)
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanOrder)
	if errors.Is(err, pgx.ErrNoRows) {
		return Order{}, ErrOrderNotFound
	}
	if err != nil {
		return Order{}, fmt.Errorf("find order: %w", err)
	}
	return o, nil
}

// FindByCustomer answers a tenant's orders of one customer, oldest first. Where there are more than limit, it answers
// any limit of them: however many there are, it reads no more.
func FindByCustomer(ctx context.Context, tx pgx.Tx, tenantID string, q CustomerQuery, limit int) ([]Order, error) {
	where, args := `o.tenant_id = $1`, []any{tenantID}
	if q.ID != nil {
		args = append(args, *q.ID)
		where += fmt.Sprintf(` AND o.customer_id = $%d`, len(args))
	}
	if q.Email != nil {
		args = append(args, *q.Email)
		where += fmt.Sprintf(` AND fold_case(o.customer_email) = fold_case($%d)`, len(args))
	}
	args = append(args, limit)
	rows, err := tx.Query(ctx, fmt.Sprintf(`SELECT %s FROM (SELECT * FROM orders o WHERE %s LIMIT $%d) o
		ORDER BY o.created_at, o.order_id`, orderColumns, where, len(args)), args...)
	if err != nil {
		return nil, fmt.Errorf("find orders: %w", err)
	}
	orders, err := pgx.CollectRows(rows, scanOrder)
	if err != nil {
		return nil, fmt.Errorf("find orders: %w", err)
	}
	return orders, nil
}
