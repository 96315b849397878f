package simulator

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"refundd/operations"
)

// declines are the codes that the simulator documents for a decline: operations' closed list. Any other is not
// understood.
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
	errOtherRefund = errors.New("the answer is another refund's, or of a status that is not documented")
	errNoListing   = errors.New("the answer lists no refunds")
	errTooLong     = errors.New("the answer, or a refund of it, is too long")
)

// refund takes a refund that is r's, or a documented decline; everything else is unknown.
func (e exchanged) refund(r operations.ProviderRequest) (operations.ProviderResult, error) {
	switch e.status {
	case http.StatusCreated:
		var body refundBody
		if err := json.UnmarshalRead(e.body, &body); err != nil {
			return operations.ProviderResult{}, e.error(operations.ErrorUnknown, err)
		}
		found := operations.NewListing(r)
		if body.isOf(r) {
			found.Add(body.listed())
		}
		result, err := found.Result(e.requestID)
		if err != nil {
			return result, e.error(operations.ErrorUnknown, errOtherRefund)
		}
		return result, nil
	case http.StatusPaymentRequired:
		var body problem
		if err := json.UnmarshalRead(e.body, &body); err != nil {
			return operations.ProviderResult{}, e.error(operations.ErrorUnknown, err)
		}
		if declines[body.Code] {
			return operations.ProviderResult{
				Outcome: operations.OutcomeDeclined, DeclineCode: body.Code, RequestID: e.requestID,
			}, nil
		}
		return operations.ProviderResult{},
			e.error(operations.ErrorUnknown, fmt.Errorf("decline code %.200q", body.Code))
	}
	return operations.ProviderResult{}, e.refused(operations.ErrorUnknown)
}

// lookup finds r's refund among those of its payment.
func (e exchanged) lookup(r operations.ProviderRequest) (operations.ProviderResult, error) {
	if e.status != http.StatusOK {
		return operations.ProviderResult{}, e.refused(operations.ErrorUnknown)
	}
	part := &allowance{e.body, maxAnswer}
	answer := struct {
		Refunds listing `json:"refunds"`
	}{listing{of: r, found: operations.NewListing(r), next: part.renew}}
	if err := json.UnmarshalRead(part, &answer); err != nil || !answer.Refunds.whole {
		return operations.ProviderResult{}, e.error(operations.ErrorUnknown, errors.Join(errNoListing, err))
	}
	return answer.Refunds.found.Result(e.requestID)
}

// listing is what a payment's refunds come to for one request. They are read one by one, so that they take no more
// memory than one of them may.
type listing struct {
	of    operations.ProviderRequest
	next  func() // called after each refund
	found *operations.Listing
	whole bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *listing) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return errors.Join(errNoListing, err)
	}
	for d.PeekKind() != ']' {
		var b refundBody
		if err := json.UnmarshalDecode(d, &b); err != nil {
			return err
		}
		if b.isOf(l.of) {
			l.found.Add(b.listed())
		}
		l.next()
	}
	_, err := d.ReadToken()
	l.whole = err == nil
	return err
}

// allowance fails once a part has taken more bytes than are left.
type allowance struct {
	r    io.Reader
	left int
}

func (a *allowance) renew() { a.left = maxAnswer }

func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, errTooLong
	}
	n, err := a.r.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}

// isOf tells whether b is r's by its metadata, its key, or the name that the provider gave it before.
func (b refundBody) isOf(r operations.ProviderRequest) bool {
	return r.Marks(b.Metadata) ||
		b.Key == r.Key && r.Key != "" ||
		b.RefundID == r.ProviderRefundID && r.ProviderRefundID != ""
}

// listed is b with the outcome that its status tells. A status that is not documented tells none.
func (b refundBody) listed() operations.Listed {
	x := operations.Listed{ID: b.RefundID, PaymentRef: b.PaymentRef, AmountCents: b.AmountCents, Currency: b.Currency}
	switch b.Status {
	case statusSucceeded:
		x.Outcome = operations.OutcomeSucceeded
	case statusPending:
		x.Outcome = operations.OutcomePending
	case statusFailed:
		x.Outcome, x.DeclineCode = operations.OutcomeDeclined, operations.DeclineRefundFailed
		if b.FailureCode != nil && failures[*b.FailureCode] {
			x.DeclineCode = *b.FailureCode
		}
	}
	return x
}
