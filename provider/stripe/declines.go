package stripe

import (
	"errors"
	"net/http"

	stripe "github.com/stripe/stripe-go/v82"

	"refundd/operations"
)

// decline is what a code of Stripe's says of a refund that it does not make.
type decline struct {
	code     string
	doubtful bool // it may be our own success in disguise
}

// declines is the closed list, of the codes in https://docs.stripe.com/error-codes that say for good that this refund
// of this payment is not made, each with what that page says of it. Stripe publishes many more; they, and what it will
// publish, are unknown until they stand here. insufficient_funds is one of those: as an error it is about the account
// of a customer who pays.
//
// Doubtful are those that a refund of ours, executed before its answer was lost, brings about: the payment has been
// given back already, or in so much that the rest is too small. A disputed payment is one as well: a dispute that was
// lost and a refund look alike to the second request, and a dispute may have begun after the first.
var declines = map[stripe.ErrorCode]decline{
	// "The charge you're attempting to refund has already been refunded."
	stripe.ErrorCodeChargeAlreadyRefunded: {operations.DeclineAlreadyRefunded, true},
	// "The charge you're attempting to refund has been charged back."
	stripe.ErrorCodeChargeDisputed: {operations.DeclineChargeDisputed, true},
	// "You cannot refund a disputed payment."
	stripe.ErrorCodeRefundDisputedPayment: {operations.DeclineChargeDisputed, true},
	// "Attempt to refund a charge was unsuccessful because the charge is no longer refundable."
	stripe.ErrorCodeChargeNotRefundable: {operations.DeclineDeclined, true},
	// "The specified amount is greater than the maximum amount allowed."
	stripe.ErrorCodeAmountTooLarge: {operations.DeclineExceedsUnrefunded, true},
	// "The specified amount is less than the minimum amount allowed."
	stripe.ErrorCodeAmountTooSmall: {operations.DeclineDeclined, true},
	// "… the associated account does not have a sufficient balance available."
	stripe.ErrorCodeBalanceInsufficient: {operations.DeclineInsufficientFunds, false},
}

// reasonOf tells an error that a person can put right from others, by the same page. Stripe says resource_missing, of
// the payment, of a name that is wrong and to a key that is another account's or of the other mode (in some places
// livemode_mismatch); and account_invalid of an order's account to which the key has no access.
func reasonOf(err error) operations.Reason {
	said, ok := errors.AsType[*stripe.Error](err)
	missing := ok && said.Code == stripe.ErrorCodeResourceMissing
	switch {
	case !ok:
	case said.Code == stripe.ErrorCodeAccountInvalid:
		return operations.ReasonUnknownAccount
	case said.Code == stripe.ErrorCodeLivemodeMismatch,
		missing && (said.Param == paramIntent || said.Param == paramCharge || said.Param == paramID):
		return operations.ReasonUnknownPayment
	}
	return ""
}

// statuses are those in which Stripe says that it did not do what was asked for because of what was asked for
// (https://docs.stripe.com/api/errors). In any other, a code says nothing for good: of 409 and 429 the request may be
// made again, 5xx may come after the refund was executed.
var statuses = map[int]bool{
	http.StatusBadRequest: true, http.StatusPaymentRequired: true, http.StatusNotFound: true,
}

// declined is the decline that an error is, if it is of the closed list.
func (e *exchange) declined(err error) (decline, bool) {
	said, ok := errors.AsType[*stripe.Error](err)
	if !ok || !statuses[e.status] || said.Type == stripe.ErrorTypeIdempotency || said.Type == stripe.ErrorTypeAPI {
		return decline{}, false
	}
	if said.Code == "" && said.Type == stripe.ErrorTypeInvalidRequest && said.Param == paramAmount {
		return decline{operations.DeclineExceedsUnrefunded, true}, true
	}
	d, ok := declines[said.Code]
	return d, ok
}

// The parameters that an error may be about. "Refund amount (€60.00) is greater than unrefunded amount on charge
// (€40.00)" comes without a code, as an error of amount.
const (
	paramAmount = "amount"
	paramIntent = "payment_intent"
	paramCharge = "charge"
	paramID     = "id"
)

// failures are the reasons of a refund that was made and then failed: all that
// https://docs.stripe.com/api/refunds/object (failure_reason; the same in github.com/stripe/openapi) names, but for
// merchant_request and unknown, which give none.
var failures = map[string]string{
	"lost_or_stolen_card":                operations.DeclineLost,
	"expired_or_canceled_card":           operations.DeclineExpiredCard,
	"charge_for_pending_refund_disputed": operations.DeclineChargeDisputed,
	"insufficient_funds":                 operations.DeclineInsufficientFunds,
	"declined":                           operations.DeclineDeclined,
}

func failure(reason string) string {
	if code, ok := failures[reason]; ok {
		return code
	}
	return operations.DeclineRefundFailed
}
