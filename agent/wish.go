package agent

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/bojanz/currency"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"refundd/client"
)

// findOrders finds ALL orders that match, and picks none of them.
func (t *Tools) findOrders(ctx context.Context, _ *mcp.CallToolRequest, in findOrdersArgs) Result {
	var found []client.Order
	if in.OrderID != "" {
		o, err := t.config.Client.GetOrder(ctx, in.OrderID)
		switch {
		case isCode(err, "order_not_found"):
		case err != nil:
			return failure(err)
		case (in.CustomerID == "" || same(o.Customer.ID, in.CustomerID)) &&
			(in.CustomerEmail == "" || same(o.Customer.Email, in.CustomerEmail)):
			found = append(found, o)
		}
	} else {
		matches, err := t.config.Client.FindOrders(ctx,
			client.OrderSearch{CustomerEmail: in.CustomerEmail, CustomerID: in.CustomerID})
		if err != nil {
			return failure(err)
		}
		found = matches.Data
	}
	r := Result{Status: StatusFound, MoneyMoved: client.MoneyMovedNo, NextAction: client.ActionNone,
		MatchCount: new(len(found))}
	switch {
	case len(found) == 0:
		r.Status, r.NextAction = StatusNoneFound, actionAskForIdentifier
	case len(found) > 1:
		r.NextAction = actionAskForIdentifier
	}
	for _, o := range found {
		r.Matches = append(r.Matches, OrderMatch{
			OrderID: o.OrderID, Currency: o.Currency, CapturedCents: o.CapturedCents, RefundableCents: o.RefundableCents,
			CustomerID: bounded(deref(o.Customer.ID), 255), CustomerName: bounded(deref(o.Customer.Name), 255),
			RegisteredAt: o.CreatedAt,
		})
	}
	return r
}

func isCode(err error, code string) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Code == code
}

// same compares without case, as the service's search does.
func same(have *string, want string) bool { return have != nil && strings.EqualFold(*have, want) }

// checkRefund tells what is refundable and what the policy would decide. It stores nothing.
func (t *Tools) checkRefund(ctx context.Context, _ *mcp.CallToolRequest, in wishArgs) Result {
	order, err := t.config.Client.GetOrder(ctx, in.OrderID)
	if err != nil {
		return failure(err)
	}
	d, err := t.config.Client.PreviewRefund(ctx, in.request())
	if err != nil {
		return failure(err)
	}
	r := decided(d, StatusWouldApprove, StatusWouldEscalate)
	r.RefundableCents = &order.RefundableCents
	if !d.Replayed {
		r.NextAction = client.ActionRequestAuthorization
	}
	return r
}

// requestRefund asks for a refund to be approved.
func (t *Tools) requestRefund(ctx context.Context, _ *mcp.CallToolRequest, in wishArgs) Result {
	d, err := t.config.Client.RequestRefund(ctx, in.request())
	if err != nil {
		return failure(err)
	}
	return decided(d, StatusApproved, StatusEscalated)
}

func (a wishArgs) request() client.ApprovalRequest {
	return client.ApprovalRequest{
		CaseID: a.CaseID, OrderID: a.OrderID, AmountCents: a.AmountCents, ReasonCode: a.ReasonCode,
		AskedForHuman: a.AskedForHuman, Categories: a.Categories,
	}
}

// decided is a decision as a model is told of it. It moves nothing.
func decided(d client.Decision, approved, escalated string) Result {
	r := Result{
		Status: escalated, AmountCents: &d.AmountCents, Currency: &d.Currency, MoneyMoved: client.MoneyMovedNo,
		Replayed: d.Replayed, NextAction: d.NextAction, CaseID: d.CaseID, OrderID: d.OrderID,
		Trigger: deref(d.Trigger), Queue: deref(d.Queue), DueAt: d.DueAt,
	}
	if d.Decision == client.DecisionApproved || d.OperationID != nil {
		r.Status = approved
	}
	if r.Status == approved && d.Replayed { // it may have been executed since
		r.MoneyMoved, r.NextAction = client.MoneyMovedUnknown, client.ActionWaitThenGet
	}
	return r
}

// escalateToHuman puts a case in front of a person. Of the case's refunds it reads nothing: of their money nothing is
// known.
func (t *Tools) escalateToHuman(ctx context.Context, _ *mcp.CallToolRequest, in handoffArgs) Result {
	e, err := t.config.Client.HandOver(ctx, client.Handoff{
		CaseID: in.CaseID, OrderID: in.OrderID, Trigger: in.Trigger, Summary: bounded(in.Summary, 4000),
	})
	if err != nil {
		r := failure(err)
		r.MoneyMoved = client.MoneyMovedUnknown
		return r
	}
	return Result{
		Status: StatusEscalated, MoneyMoved: client.MoneyMovedUnknown, NextAction: client.ActionNone, CaseID: in.CaseID,
		OrderID: in.OrderID,
		Trigger: e.Trigger, Queue: e.Queue, DueAt: &e.DueAt,
	}
}

// money writes minor units as people do, by the currency's digits (ISO 4217).
func money(cents int64, code string) string {
	a, err := currency.NewAmountFromInt64(cents, code)
	if err != nil {
		return strconv.FormatInt(cents, 10) + " minor units of " + code
	}
	return a.Number() + " " + code
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
