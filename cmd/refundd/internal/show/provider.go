package show

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/operations"
)

// AskLimit bounds the look at the provider's books: somebody waits at a terminal.
const AskLimit = 5 * time.Second

// providerView is what the provider's books show of an operation right now. Of outcome and error_kind one is null; both
// are where it was not asked.
type providerView struct {
	Provider    string  `json:"provider"`
	Asked       bool    `json:"asked"`
	Outcome     *string `json:"outcome"`
	DeclineCode *string `json:"decline_code"`
	ErrorKind   *string `json:"error_kind"`
	Shown       *string `json:"refunds_shown"` // where they contradict the operation
}

// view asks the provider of an operation, without recording anything; nil where none has it.
func (r Record) view(ctx context.Context, providers map[string]operations.ProviderSetup) (*providerView, error) {
	name, request, err := r.providerRequest()
	if err != nil || name == "" {
		return nil, err
	}
	v := &providerView{Provider: name}
	setup, known := providers[name]
	if !known {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, AskLimit)
	defer cancel()
	v.Asked = true
	result, err := setup.Provider.Lookup(ctx, request)
	if err != nil {
		kind := string(operations.ErrorUnknown)
		if failure, ok := errors.AsType[*operations.ProviderError](err); ok {
			kind = string(failure.Kind)
			if shown := failure.Shows(); shown != "" {
				v.Shown = &shown
			}
		}
		v.ErrorKind = &kind
		return v, nil
	}
	outcome := string(result.Outcome)
	v.Outcome = &outcome
	if result.DeclineCode != "" {
		v.DeclineCode = &result.DeclineCode
	}
	return v, nil
}

// providerRequest names the operation to its order's provider, also where it was never executed as far as we know: the
// provider may know better, after a restore.
func (r Record) providerRequest() (string, operations.ProviderRequest, error) {
	var row struct {
		Key      string `json:"provider_key"`
		Amount   int64  `json:"amount_cents"`
		Currency string `json:"currency"`
		RefundID string `json:"provider_refund_id"`
	}
	var order struct {
		Provider   *string `json:"provider"`
		PaymentRef string  `json:"provider_payment_ref"`
		Account    string  `json:"provider_account"`
	}
	said := r.Operation
	if said.Kind() == 'n' {
		said = r.Authorization
	}
	if err := errors.Join(json.Unmarshal(said, &row), json.Unmarshal(r.Order, &order)); err != nil {
		return "", operations.ProviderRequest{}, fmt.Errorf("read operation: %w", err)
	}
	if order.Provider == nil {
		return "", operations.ProviderRequest{}, nil
	}
	return *order.Provider, operations.ProviderRequest{
		TenantID: r.TenantID, OperationID: r.OperationID, Key: row.Key, PaymentRef: order.PaymentRef, Account: order.Account,
		AmountCents: row.Amount, Currency: row.Currency, ProviderRefundID: row.RefundID,
	}, nil
}

// says words what the provider's books show.
func (v providerView) says() string {
	switch {
	case !v.Asked && v.Provider == "simulator":
		return "not asked: it is not known where it is (--simulator-url)"
	case !v.Asked && v.Provider == "stripe":
		return "not asked: no key is given (--stripe-api-key)"
	case !v.Asked:
		return "not asked: this program does not know it"
	case v.Outcome != nil && v.DeclineCode != nil:
		return *v.Outcome + " (" + *v.DeclineCode + ")"
	case v.Outcome != nil:
		return *v.Outcome
	}
	switch operations.ErrorKind(*v.ErrorKind) {
	case operations.ErrorNotFound:
		return "not_found: it shows no refund of this operation"
	case operations.ErrorContradictory:
		text := "contradictory: it shows several refunds of this operation, or one of another amount or currency"
		if v.Shown != nil {
			text += ": " + *v.Shown
		}
		return text
	case operations.ErrorMisconfigured:
		return "misconfigured: it refuses our credentials"
	case operations.ErrorNotSent:
		return "not_sent: it could not be reached, or refused to be asked now"
	}
	return "unknown: it gave no answer that is understood"
}

// contradicts tells whether what is shown is not what is said of the money.
func (v providerView) contradicts(moved operations.MoneyMoved) bool {
	switch {
	case !v.Asked || moved == operations.MovedUnknown:
		return false
	case v.Outcome == nil:
		kind := operations.ErrorKind(*v.ErrorKind)
		return kind == operations.ErrorContradictory || kind == operations.ErrorNotFound && moved == operations.MovedYes
	case moved == operations.MovedYes:
		return *v.Outcome != string(operations.OutcomeSucceeded)
	}
	return *v.Outcome != string(operations.OutcomeDeclined)
}

// warning tells where the provider's books say otherwise than the headline: now, or when they were last read; "" where
// not.
func (r Record) warning() string {
	v, since := r.ProviderView, member(r.Operation, "contradicted_at")
	switch {
	case v != nil && v.contradicts(r.moneyMoved()):
		return "the provider's books say otherwise: " + v.says()
	case since != "" && since != "-" && (v == nil || v.Outcome == nil):
		return "the provider's books have said otherwise since " + since + ": see the timeline"
	}
	return ""
}

// attention words why an operation waits for a human, by its failure code.
func attention(code string) string {
	switch code {
	case "provider_contradictory":
		return "the provider's books contradict this refund"
	case "provider_key_expired":
		return "the provider shows no refund, and may have forgotten the key: sending again could pay twice"
	case "outcome_overdue":
		return "no outcome is known, and it is older than it should be"
	case "paid_after_failure":
		return "it had failed, and the provider shows it as paid: the money is held again"
	case operations.FailureOverRefund:
		return "it had failed, and the provider shows it as paid, beyond what was captured: " +
			"the money is held, the excess stands on the order"
	}
	return code
}

// printView writes what the provider shows, and why a human is asked.
func printView(out io.Writer, r Record) {
	if r.ProviderView != nil {
		_, _ = fmt.Fprintf(out, "\nProvider, asked now\n  %s\t%s\n", r.ProviderView.Provider, r.ProviderView.says())
	}
	if member(r.Operation, "state") != string(operations.StateNeedsAttention) {
		return
	}
	_, _ = fmt.Fprintf(out, "\nNeeds attention\n  why\t%s\n", attention(member(r.Operation, "failure_code")))
	for i := len(r.Events) - 1; i >= 0; i-- { // the evidence: what the last attempt met
		if kind := member(r.Events[i], "kind"); kind == "lookup" || kind == "refund" {
			fields, _ := readFields(r.Events[i]) // reported where the timeline is printed
			_, _ = fmt.Fprintf(out, "  last %s\t%s %s\n", kind, member(r.Events[i], "created_at"), told(fields))
			break
		}
	}
	_, _ = fmt.Fprintf(out, "  next\tsettle it with evidence: POST /v1/refunds/%s/resolve\n", r.OperationID)
}
