// Command clients calls a running refundd through what oapi-codegen makes of api/openapi.yaml, as an integrator would: it
// decodes every answer into the generated types and writes none of its own.
//
//	URL, KEY, SIMULATOR   where refundd is, an API key with every scope, and the simulated provider
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"refundd.test/clients/refundd"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "clients/go:", err)
		os.Exit(1)
	}
	fmt.Println("clients/go: register, approve, refund, replay, pending and decline decode")
}

// name is fresh each time.
var name = fmt.Sprintf("go-%d", time.Now().UnixNano())

type caller struct {
	ctx context.Context
	c   *refundd.ClientWithResponses
}

func run(ctx context.Context) error {
	key := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
		return nil
	}
	c, err := refundd.NewClientWithResponses(os.Getenv("URL"), refundd.WithRequestEditorFn(key))
	if err != nil {
		return err
	}
	a := caller{ctx, c}
	for _, step := range []func() error{a.ledger, a.pending, a.declined, a.refused} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// approve registers an order, at the simulator if it has a payment, and approves one refund of it.
func (a caller) approve(id string, payment *string) error {
	currency, captured := "EUR", int64(10000)
	by := refundd.OrderRegistration{Currency: &currency, CapturedCents: &captured, ProviderPaymentRef: payment}
	if payment != nil {
		simulator := refundd.OrderRegistrationProviderSimulator
		by.Provider = &simulator
	}
	order, err := a.c.PutOrderWithResponse(a.ctx, id, by)
	if err != nil {
		return err
	}
	if order.JSON201 == nil || order.JSON201.RefundableCents != 10000 || order.HTTPResponse.Header.Get("Location") == "" {
		return fmt.Errorf("register: %s %s", order.Status(), order.Body)
	}
	approval, err := a.c.PutAuthorizationWithResponse(a.ctx, id+"-1", refundd.Approval{CaseId: "case-7", OrderId: id, AmountCents: 4999, ApprovedBy: "ada"})
	if err != nil {
		return err
	}
	if approval.JSON201 == nil || approval.JSON201.State != "open" || approval.JSON201.Refund != nil {
		return fmt.Errorf("approve: %s %s", approval.Status(), approval.Body)
	}
	return nil
}

func (a caller) refund(id string) (*refundd.CreateRefundResponse, error) {
	operation := id + "-1"
	return a.c.CreateRefundWithResponse(a.ctx, nil, refundd.RefundRequest{OperationId: &operation, OrderId: id, AmountCents: 4999})
}

// receipt is whichever of the three answers came: they are of one type.
func receipt(r *refundd.CreateRefundResponse) *refundd.RefundReceipt {
	for _, one := range []*refundd.RefundReceipt{r.JSON200, r.JSON201, r.JSON202} {
		if one != nil {
			return one
		}
	}
	return nil
}

// expect refunds and checks the receipt.
func (a caller) expect(id string, status int, did refundd.RefundReceiptStatus, moved refundd.MoneyMoved) error {
	r, err := a.refund(id)
	if err != nil {
		return err
	}
	got := receipt(r)
	if r.StatusCode() != status || got == nil || got.Status != did || got.MoneyMoved != moved || got.AmountCents != 4999 {
		return fmt.Errorf("refund %s: %s %s", id, r.Status(), r.Body)
	}
	return nil
}

func (a caller) ledger() error {
	id := name + "-ledger"
	if err := a.approve(id, nil); err != nil {
		return err
	}
	if err := a.expect(id, 201, refundd.RefundReceiptStatusProcessed, refundd.MoneyMovedYes); err != nil {
		return err
	}
	if err := a.expect(id, 200, refundd.RefundReceiptStatusAlreadyProcessed, refundd.MoneyMovedYes); err != nil {
		return err
	}
	read, err := a.c.GetAuthorizationWithResponse(a.ctx, id+"-1")
	if err != nil {
		return err
	}
	if read.JSON200 == nil || read.JSON200.Refund == nil || read.JSON200.Refund.State != refundd.RefundStateSucceeded {
		return fmt.Errorf("read the approval: %s %s", read.Status(), read.Body)
	}
	return nil
}

func (a caller) pending() error {
	id := name + "-pending"
	if err := a.approve(id, &id); err != nil {
		return err
	}
	if err := fault(a.ctx, `{"mode":"pending","count":1,"delay_ms":600000}`); err != nil {
		return err
	}
	if err := a.expect(id, 202, refundd.RefundReceiptStatusPending, refundd.MoneyMovedUnknown); err != nil {
		return err
	}
	read, err := a.c.GetRefundWithResponse(a.ctx, id+"-1")
	if err != nil {
		return err
	}
	if read.JSON200 == nil || read.JSON200.NextAction != "wait_then_get" || read.JSON200.RetryAfterSeconds == nil {
		return fmt.Errorf("read the refund: %s %s", read.Status(), read.Body)
	}
	return nil
}

func (a caller) declined() error {
	id := name + "-declined"
	if err := a.approve(id, &id); err != nil {
		return err
	}
	if err := fault(a.ctx, `{"mode":"decline","count":1}`); err != nil {
		return err
	}
	r, err := a.refund(id)
	if err != nil {
		return err
	}
	p := r.ApplicationproblemJSON422
	if p == nil || p.Code != refundd.ProblemCodeRefundDeclined || p.MoneyMoved != refundd.MoneyMovedNo || p.FailureCode == nil || p.IsRetryable {
		return fmt.Errorf("decline: %s %s", r.Status(), r.Body)
	}
	return nil
}

func (a caller) refused() error {
	id := name + "-nobody"
	r, err := a.refund(id)
	if err != nil {
		return err
	}
	if p := r.ApplicationproblemJSON404; p == nil || p.Code != refundd.ProblemCodeOrderNotFound || p.NextAction != "fix_request" {
		return fmt.Errorf("no order: %s %s", r.Status(), r.Body)
	}
	return nil
}

// fault makes the simulator misbehave.
func fault(ctx context.Context, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("SIMULATOR")+"/_faults", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the simulator answers %s", answer.Status)
	}
	return nil
}
