package dev

import (
	"context"
	"errors"
	"fmt"

	"refundd/access"
	"refundd/operations"
)

// Tenant is whose the samples are.
const Tenant = "dev"

// simulatorName is the provider of some of them.
const simulatorName = "simulator"

// sampleOrder is a captured payment that dev starts with.
type sampleOrder struct {
	id, currency  string
	captured      int64 // minor units
	provider, ref string
	customer      operations.Customer
}

// sampleApproval is a refund that somebody approved.
type sampleApproval struct {
	operation, caseID, order string
	amount                   int64 // minor units
	reason                   string
}

func sampleOrders() []sampleOrder {
	ada := customer("cus-ada", "ada@example.com", "Ada Lindqvist")
	return []sampleOrder{
		{id: "A-1001", currency: "USD", captured: 10000, customer: ada},
		{id: "A-1002", currency: "EUR", captured: 4999, customer: ada},
		{id: "A-1003", currency: "USD", captured: 25000,
			customer: customer("cus-grace", "grace@example.com", "Grace Okafor")},
		{id: "J-2001", currency: "JPY", captured: 5800,
			customer: customer("cus-kenji", "kenji@example.com", "Kenji Sato")},
		{id: "S-3001", currency: "USD", captured: 7500, provider: simulatorName, ref: "dev-payment-3001",
			customer: ada},
		{id: "S-3002", currency: "EUR", captured: 12000, provider: simulatorName, ref: "dev-payment-3002",
			customer: customer("cus-grace", "grace@example.com", "Grace Okafor")},
	}
}

func sampleApprovals() []sampleApproval {
	return []sampleApproval{
		{"op-1001-a", "case-1", "A-1001", 6000, "arrived damaged"},
		{"op-1001-b", "case-2", "A-1001", 6000, "arrived late"},
		{"op-1002-a", "case-3", "A-1002", 4999, "never arrived"},
		{"op-1003-a", "case-4", "A-1003", 2500, "wrong size"},
		{"op-2001-a", "case-5", "J-2001", 5800, "cancelled"},
		{"op-3001-a", "case-6", "S-3001", 7500, "charged twice"},
		{"op-3002-a", "case-7", "S-3002", 4000, "arrived damaged"},
		{"op-3002-b", "case-8", "S-3002", 2500, "wrong colour"},
	}
}

func customer(id, email, name string) operations.Customer {
	return operations.Customer{ID: &id, Email: &email, Name: &name}
}

// Seed makes tenant, key and samples where they are not there yet. engine and keys are the service's own, whose login
// may not let anybody in.
func (p *Postgres) Seed(ctx context.Context, engine *operations.Engine, keys *access.Keys, folder *Folder,
	secrets *Secrets) error {
	return p.WithKeys(ctx, func(owner *access.Keys) error {
		err := owner.CreateTenant(ctx, Tenant, true)
		if err != nil && !errors.Is(err, access.ErrTenantExists) {
			return err
		}
		if err := seed(ctx, engine); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		_, err = keys.Authenticate(ctx, secrets.APIKey) // the folder may have met another database
		if err == nil || !errors.Is(err, access.ErrUnauthenticated) {
			return err
		}
		secret, _, err := owner.CreateKey(ctx, access.NewKey{TenantID: Tenant, Scopes: access.AllScopes()})
		if err != nil {
			return err
		}
		secrets.APIKey = secret
		return folder.Keep(*secrets)
	})
}

// seed adds the samples that are not there; what has become of the others since an earlier start stays.
func seed(ctx context.Context, engine *operations.Engine) error {
	for _, o := range sampleOrders() {
		if err := seedOrder(ctx, engine, o); err != nil {
			return fmt.Errorf("order %s: %w", o.id, err)
		}
	}
	for _, a := range sampleApprovals() {
		if err := seedApproval(ctx, engine, a); err != nil {
			return fmt.Errorf("authorization %s: %w", a.operation, err)
		}
	}
	return nil
}

func seedOrder(ctx context.Context, engine *operations.Engine, o sampleOrder) error {
	_, err := engine.Order(ctx, Tenant, o.id)
	if !errors.Is(err, operations.ErrOrderNotFound) {
		return err
	}
	r := operations.Registration{
		OrderKey: operations.OrderKey{TenantID: Tenant, OrderID: o.id},
		Currency: &o.currency, CapturedCents: &o.captured, Customer: &o.customer,
	}
	if o.provider != "" {
		r.Provider, r.ProviderPaymentRef = &o.provider, &o.ref
	}
	_, _, err = engine.RegisterOrder(ctx, r)
	return err
}

func seedApproval(ctx context.Context, engine *operations.Engine, a sampleApproval) error {
	_, err := engine.Authorization(ctx, Tenant, a.operation)
	if !errors.Is(err, operations.ErrAuthorizationNotFound) {
		return err
	}
	_, _, err = engine.Authorize(ctx, operations.Approval{
		TenantID: Tenant, OperationID: a.operation, CaseID: a.caseID, OrderID: a.order,
		AmountCents: a.amount, ApprovedBy: "dev", Reason: &a.reason,
	})
	return err
}
