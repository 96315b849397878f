package api

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"refundd/operations"
)

// orderBody is what PUT of an order says; an absent member keeps what the order has.
type orderBody struct {
	Currency           *string       `json:"currency"`
	CapturedCents      *integer      `json:"captured_cents"`
	Provider           *string       `json:"provider"`
	ProviderPaymentRef *string       `json:"provider_payment_ref"`
	ProviderAccount    *string       `json:"provider_account"`
	Customer           *customerBody `json:"customer"`
}

type customerBody struct {
	ID    *string `json:"id"`
	Email *string `json:"email"`
	Name  *string `json:"name"`
}

// order is a captured payment on the wire; every member is always present.
type order struct {
	OrderID            string    `json:"order_id"`
	Currency           string    `json:"currency"`
	CapturedCents      int64     `json:"captured_cents"`
	RefundedCents      int64     `json:"refunded_cents"`
	HeldCents          int64     `json:"held_cents"`
	RefundableCents    int64     `json:"refundable_cents"`
	OverRefundedCents  int64     `json:"over_refunded_cents"`
	Provider           string    `json:"provider"`
	ProviderPaymentRef *string   `json:"provider_payment_ref"`
	ProviderAccount    *string   `json:"provider_account"`
	Customer           customer  `json:"customer"`
	CreatedAt          timestamp `json:"created_at"`
}

type customer struct {
	ID    *string `json:"id"`
	Email *string `json:"email"`
	Name  *string `json:"name"`
}

func orderOf(o operations.Order) order {
	return order{
		OrderID: o.OrderID, Currency: o.Currency, CapturedCents: o.CapturedCents, RefundedCents: o.RefundedCents,
		HeldCents: o.HeldCents, RefundableCents: o.RefundableCents(), OverRefundedCents: o.OverRefundedCents,
		Provider: providerName(o.Provider), ProviderPaymentRef: o.ProviderPaymentRef, ProviderAccount: o.ProviderAccount,
		Customer: customer(o.Customer), CreatedAt: timestamp(o.CreatedAt),
	}
}

// providers are the names that an order may be registered with.
var providers = []string{ledgerOnly, "simulator", "stripe"}

// isAccount are the names that Stripe gives to accounts.
var isAccount = regexp.MustCompile(`^acct_[A-Za-z0-9]+$`)

func readRegistration(in *input) operations.Registration {
	id := in.orderID()
	b := body[orderBody](in)
	r := operations.Registration{
		OrderKey:           operations.OrderKey{TenantID: in.tenant(), OrderID: id},
		Currency:           in.currency(b.Currency),
		CapturedCents:      in.cents("/captured_cents", b.CapturedCents),
		Provider:           b.Provider,
		ProviderPaymentRef: in.text("/provider_payment_ref", b.ProviderPaymentRef, maxID),
		ProviderAccount:    in.text("/provider_account", b.ProviderAccount, maxID),
	}
	if b.Provider != nil {
		if !slices.Contains(providers, *b.Provider) {
			in.blame("/provider", faultInvalid)
		}
		if *b.Provider == ledgerOnly && b.ProviderPaymentRef != nil {
			in.blame("/provider_payment_ref", faultInvalid)
		}
	}
	if a := r.ProviderAccount; a != nil && !isAccount.MatchString(*a) {
		in.blame("/provider_account", faultInvalid)
	}
	if c := b.Customer; c != nil {
		r.Customer = &operations.Customer{
			ID:    in.text("/customer/id", c.ID, maxID),
			Email: in.text("/customer/email", c.Email, maxName),
			Name:  in.text("/customer/name", c.Name, maxName),
		}
	}
	return r
}

// orderFaults names what a new order lacks, or must not have: the columns are named as the body's members.
func orderFaults(e *operations.IncompleteError) []fault {
	var faults []fault
	for _, name := range e.Missing {
		faults = append(faults, fault{"/" + name, faultRequired})
	}
	for _, name := range e.Unexpected {
		faults = append(faults, fault{"/" + name, faultInvalid})
	}
	return faults
}

// registered is an order, and whether this call made it known.
type registered struct {
	order   operations.Order
	created bool
}

func (s *server) registerOrder(ctx context.Context, r operations.Registration) (registered, error) {
	o, created, err := s.engine.RegisterOrder(ctx, r)
	return registered{o, created}, err
}

func showRegistered(r registered) reply {
	rep := showOrder(r.order)
	if r.created {
		rep.status, rep.location = http.StatusCreated, "/v1/orders/"+url.PathEscape(r.order.OrderID)
	}
	return rep
}

func readOrderKey(in *input) operations.OrderKey {
	return operations.OrderKey{TenantID: in.tenant(), OrderID: in.orderID()}
}

func (s *server) order(ctx context.Context, k operations.OrderKey) (operations.Order, error) {
	return s.engine.Order(ctx, k.TenantID, k.OrderID)
}

func showOrder(o operations.Order) reply {
	return reply{status: http.StatusOK, body: new(orderOf(o))}
}

// customerQuery searches orders of the caller's tenant.
type customerQuery struct {
	tenantID string
	by       operations.CustomerQuery
}

func readCustomerQuery(in *input) customerQuery {
	q := in.query("customer_email", "customer_id")
	query := customerQuery{tenantID: in.tenant()}
	if v, ok := q["customer_email"]; ok {
		query.by.Email = in.text("query:customer_email", &v, maxName)
	}
	if v, ok := q["customer_id"]; ok {
		query.by.ID = in.text("query:customer_id", &v, maxID)
	}
	if query.by.Email == nil && query.by.ID == nil {
		in.missing("query:customer_email", "query:customer_id")
	}
	return query
}

func (s *server) findOrders(ctx context.Context, q customerQuery) ([]operations.Order, error) {
	return s.engine.FindOrders(ctx, q.tenantID, q.by)
}

func showOrders(rows []operations.Order) reply {
	return showMatches(rows, orderOf)
}
