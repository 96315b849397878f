package bulk

import (
	"context"
	"errors"
	"fmt"

	"refundd/client"
)

// explain says what would become of a line if it were sent now, each line by itself: it reads the refund, the approval and the
// order, and stores nothing.
func (c Config) explain(ctx context.Context, l Line) (Result, error) {
	q := l.Request
	receipt, err := c.Client.GetRefund(ctx, q.OperationID)
	switch {
	case err == nil:
		return replayed(l, receipt), nil
	case !is(err, client.CodeRefundNotFound):
		return Result{}, err
	}
	order, err := c.Client.GetOrder(ctx, q.OrderID)
	if err != nil {
		return Result{}, err
	}
	approval, err := c.Client.GetAuthorization(ctx, q.OperationID)
	if err != nil && !is(err, client.CodeNotAuthorized) {
		return Result{}, err
	}
	approved := err == nil
	r := Result{Line: l, Status: StatusRefused, MoneyMoved: client.MoneyMovedNo, NextAction: client.ActionRequestAuthorization}
	switch {
	case q.Currency != "" && q.Currency != order.Currency:
		r.Code, r.Detail = "currency_mismatch", fmt.Sprintf("the order is in %s", order.Currency)
		r.NextAction = client.ActionFixRequest
	case approved && (approval.OrderID != q.OrderID || approval.AmountCents != q.AmountCents):
		r.Code, r.Detail = "authorization_mismatch", fmt.Sprintf("approved is %d of order %s", approval.AmountCents, approval.OrderID)
	case approved && approval.State != client.AuthorizationOpen:
		r.Code, r.Detail = "authorization_"+string(approval.State), "the approval is "+string(approval.State)
	case q.AmountCents > order.RefundableCents:
		r.Code, r.Detail = client.CodeExceeds, fmt.Sprintf("refundable are %d", order.RefundableCents)
	default:
		r.Status, r.NextAction = StatusWouldProcess, client.ActionNone
		r.Detail = fmt.Sprintf("refundable are %d", order.RefundableCents)
		if !approved {
			r.Detail += "; nobody approved it: a tenant that requires approvals refuses it"
		}
	}
	return r, nil
}

// replayed is a line whose operation has a refund already.
func replayed(l Line, receipt client.Receipt) Result {
	r := Result{Line: l, MoneyMoved: receipt.MoneyMoved, RefundID: receipt.RefundID, NextAction: receipt.NextAction}
	switch {
	case receipt.OrderID != l.Request.OrderID || receipt.AmountCents != l.Request.AmountCents:
		r.Status, r.Code, r.MoneyMoved, r.NextAction = StatusRefused, client.CodeConflict, client.MoneyMovedNo, client.ActionEscalate
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
