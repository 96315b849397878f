package bulk

import (
	"context"
	"errors"
	"fmt"

	"refundd/client"
)

// explain says what would become of a line if it were sent now, each line by itself: it reads the approval, the refund
// and the order, and stores nothing.
func (c Config) explain(ctx context.Context, l Line) (Result, error) {
	q := l.Request
	approval, err := c.approval(ctx, l)
	if err != nil {
		return Result{}, err
	}
	if approval != nil && otherCase(l, *approval) {
		return ofOtherCase(l, *approval), nil
	}
	refund, err := c.known(ctx, l, approval)
	switch {
	case err != nil:
		return Result{}, err
	case refund != nil:
		return replayed(l, *refund), nil
	}
	order, err := c.Client.GetOrder(ctx, q.OrderID)
	if err != nil {
		return Result{}, err
	}
	return foreseen(l, order, approval), nil
}

// foreseen is what a line would come to that nobody has asked for yet.
func foreseen(l Line, order client.Order, approval *client.Authorization) Result {
	q := l.Request
	r := Result{Line: l, Status: StatusRefused, MoneyMoved: client.MoneyMovedNo,
		NextAction: client.ActionRequestAuthorization}
	switch {
	case q.Currency != "" && q.Currency != order.Currency:
		r.Code, r.Detail = "currency_mismatch", fmt.Sprintf("the order is in %s", order.Currency)
		r.NextAction = client.ActionFixRequest
	case approval != nil && (approval.OrderID != q.OrderID || approval.AmountCents != q.AmountCents):
		r.Code, r.Detail = codeMismatch,
			fmt.Sprintf("approved is %d of order %s", approval.AmountCents, approval.OrderID)
	case approval != nil && approval.State != client.AuthorizationOpen:
		r.Code, r.Detail = "authorization_"+string(approval.State), "the approval is "+string(approval.State)
	case q.AmountCents > order.RefundableCents:
		r.Code, r.Detail = client.CodeExceeds, fmt.Sprintf("refundable are %d", order.RefundableCents)
	default:
		r.Status, r.NextAction = StatusWouldProcess, client.ActionNone
		r.Detail = fmt.Sprintf("refundable are %d", order.RefundableCents)
		if approval == nil {
			r.Detail += "; nobody approved it: a tenant that requires approvals refuses it"
		}
	}
	return r
}

// known is the refund that the line's operation has, nil where it has none. An approval tells of its own.
func (c Config) known(ctx context.Context, l Line, approval *client.Authorization) (*client.Refund, error) {
	if approval != nil {
		return approval.Refund, nil
	}
	receipt, err := c.Client.GetRefund(ctx, l.Request.OperationID)
	if is(err, client.CodeRefundNotFound) {
		return nil, nil
	}
	return &receipt.Refund, err
}

const codeMismatch = "authorization_mismatch"

// approval is the line's, nil where there is none.
func (c Config) approval(ctx context.Context, l Line) (*client.Authorization, error) {
	a, err := c.Client.GetAuthorization(ctx, l.Request.OperationID)
	if is(err, client.CodeNotAuthorized) {
		return nil, nil
	}
	return &a, err
}

// otherCase reports whether a line names another case than the one that its operation was approved for. The service
// refunds an approval whatever its case: whoever names a case has its line held against it before it is sent.
func otherCase(l Line, a client.Authorization) bool { return l.CaseID != "" && l.CaseID != a.CaseID }

// ofOtherCase is such a line.
func ofOtherCase(l Line, a client.Authorization) Result {
	r := Result{Line: l, Status: StatusRefused, Code: codeMismatch, MoneyMoved: client.MoneyMovedNo,
		NextAction: client.ActionFixRequest,
		Detail:     fmt.Sprintf("operation %s is approved for case %s", a.OperationID, a.CaseID)}
	if a.Refund != nil {
		r.MoneyMoved, r.RefundID = a.Refund.MoneyMoved, a.Refund.RefundID
	}
	return r
}

// replayed is a line whose operation has a refund already.
func replayed(l Line, receipt client.Refund) Result {
	r := Result{Line: l, MoneyMoved: receipt.MoneyMoved, RefundID: receipt.RefundID, NextAction: receipt.NextAction}
	switch {
	case receipt.OrderID != l.Request.OrderID || receipt.AmountCents != l.Request.AmountCents:
		r.Status, r.Code, r.MoneyMoved, r.NextAction = StatusRefused, client.CodeConflict, client.MoneyMovedNo,
			client.ActionEscalate
		r.Detail = fmt.Sprintf("it refunded %d of order %s", receipt.AmountCents, receipt.OrderID)
	case receipt.State == client.StateSucceeded:
		r.Status = StatusAlreadyProcessed
	case receipt.State == client.StateFailed:
		r.Status, r.Code = StatusRefused, client.CodeRefundDeclined
	case receipt.State == client.StateNeedsAttention:
		r.Status, r.Code = StatusRefused, client.CodeNeedsAttention
	default:
		r.Status = StatusPending
	}
	return r
}

func is(err error, code string) bool {
	failure, ok := errors.AsType[*client.Error](err)
	return ok && failure.Code == code
}
