package simulator

import (
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"refundd/operations"
)

// declines are the codes that the simulator documents for a decline: operations' closed list. Any other is not understood.
var declines = map[string]bool{
	operations.DeclineInsufficientFunds: true,
	operations.DeclineChargeDisputed:    true,
	operations.DeclineExpiredCard:       true,
	operations.DeclineUnknownPayment:    true,
	operations.DeclineLost:              true,
	operations.DeclineDeclined:          true,
	operations.DeclineAlreadyRefunded:   true,
	operations.DeclineExceedsUnrefunded: true,
}

// failures are the codes of a refund that failed after it was accepted. Any other is one without a reason.
var failures = map[string]bool{
	operations.DeclineInsufficientFunds: true,
	operations.DeclineChargeDisputed:    true,
	operations.DeclineExpiredCard:       true,
	operations.DeclineLost:              true,
	operations.DeclineDeclined:          true,
}

var (
	errTooLong     = errors.New("the answer is too long")
	errOtherRefund = errors.New("the answer is another refund's")
	errSeveral     = errors.New("the payment has several refunds of one operation")
)

// refund takes a refund that is r's, or a documented decline; everything else is unknown.
func (e exchanged) refund(r operations.ProviderRequest) (operations.ProviderResult, error) {
	switch e.status {
	case http.StatusCreated:
		var body refundBody
		if err := json.Unmarshal(e.body, &body); err != nil {
			return operations.ProviderResult{}, e.error(operations.ErrorUnknown, err)
		}
		if !body.isOf(r) || !body.isAlike(r) {
			return operations.ProviderResult{}, e.error(operations.ErrorUnknown, errOtherRefund)
		}
		return e.result(body)
	case http.StatusPaymentRequired:
		var body problem
		if err := json.Unmarshal(e.body, &body); err != nil {
			return operations.ProviderResult{}, e.error(operations.ErrorUnknown, err)
		}
		if declines[body.Code] {
			return operations.ProviderResult{
				Outcome: operations.OutcomeDeclined, DeclineCode: body.Code, RequestID: e.requestID,
			}, nil
		}
	}
	return operations.ProviderResult{}, e.error(operations.ErrorUnknown, e.refusal())
}

// lookup finds r's refund among those of its payment.
func (e exchanged) lookup(r operations.ProviderRequest) (operations.ProviderResult, error) {
	var body struct {
		Refunds *[]refundBody `json:"refunds"`
	}
	if err := json.Unmarshal(e.body, &body); err != nil || e.status != http.StatusOK || body.Refunds == nil {
		return operations.ProviderResult{}, e.error(operations.ErrorUnknown, errors.Join(e.refusal(), err))
	}
	ours := slices.DeleteFunc(*body.Refunds, func(b refundBody) bool { return !b.isOf(r) })
	switch {
	case len(ours) == 0:
		return operations.ProviderResult{}, e.error(operations.ErrorNotFound, nil)
	case len(ours) > 1:
		return operations.ProviderResult{}, e.error(operations.ErrorContradictory, errSeveral)
	case !ours[0].isAlike(r):
		return operations.ProviderResult{}, e.error(operations.ErrorContradictory, errOtherRefund)
	}
	return e.result(ours[0])
}

// isOf tells whether b is r's by its metadata, its key, or the name that the provider gave it before.
func (b refundBody) isOf(r operations.ProviderRequest) bool {
	return b.Metadata[metadataTenant] == r.TenantID && b.Metadata[metadataOperation] == r.OperationID ||
		b.Key == r.Key && r.Key != "" ||
		b.RefundID == r.ProviderRefundID && r.ProviderRefundID != ""
}

// isAlike tells whether b is of the payment, the amount and the currency of r.
func (b refundBody) isAlike(r operations.ProviderRequest) bool {
	return b.PaymentRef == r.PaymentRef && b.AmountCents == r.AmountCents && b.Currency == r.Currency
}

// result is the outcome that b's status tells. A status that is not documented tells nothing.
func (e exchanged) result(b refundBody) (operations.ProviderResult, error) {
	result := operations.ProviderResult{ProviderRefundID: b.RefundID, RequestID: e.requestID}
	switch {
	case b.RefundID == "":
		return operations.ProviderResult{}, e.error(operations.ErrorUnknown, e.refusal())
	case b.Status == statusSucceeded:
		result.Outcome = operations.OutcomeSucceeded
	case b.Status == statusPending:
		result.Outcome = operations.OutcomePending
	case b.Status == statusFailed:
		result.Outcome = operations.OutcomeDeclined
		result.DeclineCode = operations.DeclineRefundFailed
		if b.FailureCode != nil && failures[*b.FailureCode] {
			result.DeclineCode = *b.FailureCode
		}
	default:
		return operations.ProviderResult{}, e.error(operations.ErrorUnknown, e.refusal())
	}
	return result, nil
}
