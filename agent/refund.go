package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"refundd/client"
)

// processRefund executes the refund that was approved in a case, or tells of the one that was.
func (t *Tools) processRefund(ctx context.Context, req *mcp.CallToolRequest, in caseArgs) Result {
	a, refused := t.chosen(ctx, in)
	if refused != nil {
		return *refused
	}
	if a.Refund == nil {
		words := fmt.Sprintf("Refund %s of order %s in case %s?", money(a.AmountCents, a.Currency), a.OrderID,
			bounded(in.CaseID, 255))
		if r := t.confirmed(req, words); r != nil {
			return r.of(a)
		}
	}
	return t.execute(ctx, a)
}

func (t *Tools) execute(ctx context.Context, a client.Authorization) Result {
	receipt, err := t.config.Client.Refund(ctx, client.RefundRequest{
		OperationID: a.OperationID, OrderID: a.OrderID, AmountCents: a.AmountCents, Currency: a.Currency,
	})
	if err != nil {
		return failure(err).of(a)
	}
	return told(receipt, string(receipt.Status)).of(a)
}

// told is a refund as a model is told of it.
func told(receipt client.Receipt, status string) Result {
	return Result{
		Status: status, RefundID: &receipt.RefundID, MoneyMoved: receipt.MoneyMoved, Replayed: receipt.Replayed,
		NextAction: receipt.NextAction, RetryAfterSeconds: receipt.RetryAfterSeconds,
	}
}

// of says which refund an answer is about.
func (r Result) of(a client.Authorization) Result {
	r.CaseID, r.OrderID, r.AmountCents, r.Currency = a.CaseID, a.OrderID, &a.AmountCents, &a.Currency
	return r
}

// getRefund tells how the refund of a case stands now.
func (t *Tools) getRefund(ctx context.Context, _ *mcp.CallToolRequest, in caseArgs) Result {
	a, refused := t.chosen(ctx, in)
	if refused != nil {
		return *refused
	}
	if a.Refund == nil {
		next := client.ActionNone
		if a.State != client.AuthorizationOpen {
			next = client.ActionRequestAuthorization
		}
		return Result{Status: StatusNotExecuted, MoneyMoved: client.MoneyMovedNo, NextAction: next}.of(a)
	}
	receipt, err := t.config.Client.GetRefund(ctx, a.OperationID)
	if err != nil {
		return failure(err).of(a)
	}
	receipt.Replayed = true // it is an earlier call's
	return told(receipt, string(receipt.State)).of(a)
}

// chosen finds the one approval of a case that the arguments mean: executed, expired or withdrawn ones count as any
// other, so that a call that is repeated later means the same.
func (t *Tools) chosen(ctx context.Context, in caseArgs) (client.Authorization, *Result) {
	found, err := t.config.Client.FindAuthorizations(ctx, in.CaseID)
	if err != nil {
		r := failure(err)
		r.MoneyMoved, r.CaseID = client.MoneyMovedUnknown, in.CaseID // of the case's refunds nothing was read
		return client.Authorization{}, &r
	}
	var matching []client.Authorization
	for i, a := range found.Data {
		if in.matches(i+1, a) {
			matching = append(matching, a)
		}
	}
	switch {
	case len(found.Data) == 0:
		r := refusal(client.CodeNotAuthorized, client.MoneyMovedNo, client.ActionRequestAuthorization)
		r.CaseID = in.CaseID
		return client.Authorization{}, &r
	case len(matching) != 1:
		r := refusal(codeAmbiguousCase, client.MoneyMovedUnknown, actionAskForIdentifier)
		r.CaseID, r.Approved, r.MatchCount = in.CaseID, lines(found.Data), new(len(matching))
		return client.Authorization{}, &r
	}
	return matching[0], nil
}

// matches reports whether the arguments may mean a. Where they name an order, an amount or a line, all that they name
// must be a's own.
func (in caseArgs) matches(line int, a client.Authorization) bool {
	return (in.OrderID == "" || in.OrderID == a.OrderID) &&
		(in.AmountCents == nil || *in.AmountCents == a.AmountCents) &&
		(in.Line == nil || *in.Line == line)
}

func lines(found []client.Authorization) []Line {
	all := make([]Line, len(found))
	for i, a := range found {
		all[i] = Line{Line: i + 1, OrderID: a.OrderID, AmountCents: a.AmountCents, Currency: a.Currency,
			State: string(a.State)}
	}
	return all
}

// atOnce is how many cases of one call are worked on at a time.
const atOnce = 4

// processRefunds executes the refunds of several cases. What failed is told beside what did not, and never left out.
func (t *Tools) processRefunds(ctx context.Context, req *mcp.CallToolRequest, in casesArgs) Result {
	cases := slices.Clone(in.CaseIDs)
	slices.Sort(cases)
	cases = slices.Compact(cases)
	if r := t.confirmed(req, fmt.Sprintf("Execute the approved refunds of %d cases?", len(cases))); r != nil {
		r.MoneyMoved = client.MoneyMovedUnknown // of these cases nothing was read
		return *r
	}
	results := make([]Result, len(cases))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, id := range cases {
		group.Go(func() error {
			results[i] = t.processOne(ctx, id)
			return nil
		})
	}
	_ = group.Wait() // none fails: what went wrong stands in its result
	return summed(cases, results)
}

// processOne executes the refund of one case of several; a fault of ours costs that case alone.
func (t *Tools) processOne(ctx context.Context, caseID string) (r Result) {
	defer func() {
		if recover() != nil {
			r = broken()
		}
	}()
	a, refused := t.chosen(ctx, caseArgs{CaseID: caseID})
	if refused != nil {
		return *refused
	}
	return t.execute(ctx, a).shaped()
}

// summed is the answer for several cases.
func summed(cases []string, results []Result) Result {
	sum := Result{Status: StatusOK, MoneyMoved: client.MoneyMovedNo, NextAction: client.ActionNone,
		Attempted: new(len(cases))}
	gap := ""
	for i, r := range results {
		r.CaseID = cases[i]
		switch {
		case r.MoneyMoved == client.MoneyMovedUnknown:
			sum.MoneyMoved = client.MoneyMovedUnknown
		case r.MoneyMoved == client.MoneyMovedYes && sum.MoneyMoved == client.MoneyMovedNo:
			sum.MoneyMoved = client.MoneyMovedYes
		}
		if !r.failed() {
			sum.PartialResults = append(sum.PartialResults, r)
			continue
		}
		sum.Failures = append(sum.Failures, r)
		gap += ", " + bounded(cases[i], 255)
		sum.Alternatives = append(sum.Alternatives, bounded(cases[i], 255)+": "+alternative(r))
	}
	if len(sum.Failures) == 0 {
		return sum
	}
	sum.Status, sum.NextAction = StatusPartialFailure, sum.Failures[0].NextAction
	sum.CoverageGap = fmt.Sprintf("%d of %d cases were not refunded, or it is not known: %s.", len(sum.Failures),
		len(cases), gap[2:])
	if len(sum.PartialResults) == 0 {
		sum.Status = StatusFailed
		sum.Code, sum.IsRetryable = sum.Failures[0].Code, sum.Failures[0].IsRetryable
		sum.Error = "None of the cases was refunded, or it is not known."
	}
	return sum
}

// alternative is what may be done about one case of several.
func alternative(r Result) string {
	switch r.NextAction {
	case client.ActionRetrySameOperation:
		return "call process_refund with this case_id again, later"
	case client.ActionWaitThenGet:
		return "call get_refund with this case_id, later"
	case client.ActionRequestAuthorization:
		return "call request_refund to have it approved"
	case actionAskForIdentifier:
		return "call process_refund with the line of the approval that is meant"
	default:
		return "call escalate_to_human with this case_id"
	}
}

// confirmation is the name of the one question that the tools ask.
const confirmation = "confirm"

// confirmed asks the person in the conversation, where the configuration wants it and the client can. Nil means go on.
// This is never the only gate: without an approval at the service nothing is executed.
func (t *Tools) confirmed(req *mcp.CallToolRequest, question string) *Result {
	if can := req.ClientCapabilities(); !t.config.Confirm || can == nil || can.Elicitation == nil {
		return nil
	}
	answer, answered := req.Params.InputResponses[confirmation].(*mcp.ElicitResult)
	if !answered {
		return &Result{ask: &mcp.ElicitParams{Message: question, RequestedSchema: confirmationSchema}}
	}
	if yes, _ := answer.Content["confirm"].(bool); answer.Action == "accept" && yes {
		return nil
	}
	r := refusal(codeNotConfirmed, client.MoneyMovedNo, client.ActionNone)
	return &r
}
