package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"refundd/client"
)

// A tool handler executes a refund that was approved upstream: the operation id is that of the approval, and the answer
// says what to tell the model.
func ExampleClient_Refund() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		receipt(w, http.StatusCreated, "case-7-A1001", 4999, "processed", false)
	}))
	defer service.Close()

	refunds, err := client.New(client.Config{BaseURL: service.URL, APIKey: "…", Deadline: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := refunds.Refund(context.Background(), client.RefundRequest{
		OperationID: "case-7-A1001", OrderID: "A-1", AmountCents: 4999,
	})
	var refused *client.Error
	switch {
	case err == nil && receipt.Status == client.StatusPending:
		fmt.Println("held; its outcome is not known yet: read it again later")
	case err == nil:
		fmt.Println("refunded", receipt.AmountCents, receipt.Currency, "already:", receipt.Replayed)
	case errors.Is(err, client.ErrUnknown):
		fmt.Println("nobody said what became of it: look it up, never mint another operation id")
	case errors.As(err, &refused):
		fmt.Println("refused:", refused.Code, "next:", refused.NextAction)
	}
	// Output: refunded 4999 USD already: false
}

// A refusal says what to do next, whether or not it passes.
func ExampleError() {
	service := httptest.NewServer(refuse(http.StatusUnprocessableEntity, "authorization_expired", false, "no",
		nil).handler())
	defer service.Close()
	refunds, err := client.New(client.Config{BaseURL: service.URL, APIKey: "…"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = refunds.Refund(context.Background(),
		client.RefundRequest{OperationID: "K", OrderID: "A-1", AmountCents: 1})
	var refused *client.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code, refused.Status, "retryable:", refused.Retryable, "moved:", refused.MoneyMoved)
	}
	fmt.Println("fatal:", errors.Is(err, client.ErrFatal), "unknown:", errors.Is(err, client.ErrUnknown))
	// Output:
	// authorization_expired 422 retryable: false moved: no
	// fatal: true unknown: false
}

// A search returns all matches; which one is meant is for the customer to say.
func ExampleClient_FindOrders() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"data":[{"order_id":"A-1","currency":"USD","captured_cents":100},
			{"order_id":"A-2","currency":"USD","captured_cents":200}],"count":2}`)
	}))
	defer service.Close()
	refunds, err := client.New(client.Config{BaseURL: service.URL, APIKey: "…"})
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := refunds.FindOrders(context.Background(), client.OrderSearch{CustomerEmail: "ann@example.com"})
	switch {
	case err != nil:
		fmt.Println("the search failed, which is not the same as finding nothing:", err)
	case found.Count > 1:
		fmt.Println("ask which of", found.Count)
	}
	// Output: ask which of 2
}
