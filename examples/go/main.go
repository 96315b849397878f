// Command go is a tool handler on the client room: it executes the refund that was approved in a case.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"refundd/client"
)

// answer is what the model is told.
type answer struct {
	Status      string            `json:"status"`
	MoneyMoved  client.MoneyMoved `json:"money_moved"`
	NextAction  string            `json:"next_action"`
	AmountCents int64             `json:"amount_cents,omitempty"`
	Currency    string            `json:"currency,omitempty"`
	Code        string            `json:"code,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go CASE_ID")
		os.Exit(2)
	}
	refunds, err := client.New(client.Config{
		BaseURL: os.Getenv("REFUNDD_URL"), APIKey: os.Getenv("REFUNDD_API_KEY"), Deadline: 30 * time.Second,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	told := refundCase(context.Background(), refunds, os.Args[1])
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		os.Exit(1)
	}
}

// refundCase executes the one refund that was approved in the case. The client looks the operation up where an answer
// was lost, and sends the same operation again only where that is of use.
func refundCase(ctx context.Context, refunds *client.Client, caseID string) answer {
	approved, err := refunds.FindAuthorizations(ctx, caseID)
	if err != nil {
		return refused(err)
	}
	if approved.Count != 1 { // none, or several: a person says which one is meant; never guess
		return answer{Status: "refused", MoneyMoved: client.MoneyMovedUnknown, NextAction: "ask_for_identifier",
			Code: "ambiguous_case"}
	}
	a := approved.Data[0]
	receipt, err := refunds.Refund(ctx,
		client.RefundRequest{OperationID: a.OperationID, OrderID: a.OrderID, AmountCents: a.AmountCents})
	if err != nil {
		return refused(err)
	}
	// Three paths end here: this call moved the money, an earlier one did, or its outcome is not known yet.
	return answer{
		Status: string(receipt.Status), MoneyMoved: receipt.MoneyMoved, NextAction: receipt.NextAction,
		AmountCents: receipt.AmountCents, Currency: receipt.Currency,
	}
}

// refused tells what to do next. Unknown stays unknown.
func refused(err error) answer {
	var e *client.Error
	if !errors.As(err, &e) {
		return answer{Status: "failed", MoneyMoved: client.MoneyMovedUnknown, NextAction: client.ActionEscalate}
	}
	return answer{Status: "refused", MoneyMoved: e.MoneyMoved, NextAction: e.NextAction, Code: e.Code}
}
