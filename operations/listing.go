package operations

import (
	"fmt"
	"strings"
)

// Listed is a refund as a provider's books show it.
type Listed struct {
	ID          string
	PaymentRef  string
	AmountCents int64   // minor units
	Currency    string  // ISO 4217
	Outcome     Outcome // empty where its status is not documented
	DeclineCode string  // for OutcomeDeclined
}

// Listing finds one refund in a provider's complete listing of its payment, by the one rule that every implementation
// of Provider shares. Its memory does not grow with the listing.
type Listing struct {
	of    ProviderRequest
	shown []Listed // of's, each once; one more than are told
}

// maxShown is how many refunds of one operation are told.
const maxShown = 10

// NewListing begins a listing that is read for r.
func NewListing(r ProviderRequest) *Listing { return &Listing{of: r} }

// Add takes a refund that bears r's marks: the tenant and operation of its metadata, its key, or the name by which the
// provider knew it before. The same refund twice, as on two pages, is one.
func (l *Listing) Add(x Listed) {
	for _, known := range l.shown {
		if known == x {
			return
		}
	}
	if len(l.shown) <= maxShown {
		l.shown = append(l.shown, x)
	}
}

// Result is what the listing says of r: not found; the outcome of the one refund of r's payment, amount and currency,
// by the name that it had before; or contradictory, with what it shows. A refund whose status changed while it was
// read, or is not documented, tells nothing.
func (l *Listing) Result(requestID string) (ProviderResult, error) {
	failure := &ProviderError{RequestID: requestID}
	switch {
	case len(l.shown) == 0:
		failure.Kind = ErrorNotFound
	case !l.consistent():
		failure.Kind, failure.Shown = ErrorContradictory, l.shown
	case len(l.shown) > 1, l.shown[0].ID == "", l.shown[0].Outcome == "":
		failure.Kind = ErrorUnknown
	default:
		x := l.shown[0]
		return ProviderResult{Outcome: x.Outcome, ProviderRefundID: x.ID, DeclineCode: x.DeclineCode,
			RequestID: requestID}, nil
	}
	return ProviderResult{}, failure
}

// consistent tells whether all that is shown is one refund, and the one that was asked for.
func (l *Listing) consistent() bool {
	id := l.of.ProviderRefundID
	if id == "" {
		id = l.shown[0].ID
	}
	for _, x := range l.shown {
		if x.ID != id || x.PaymentRef != l.of.PaymentRef || x.AmountCents != l.of.AmountCents ||
			x.Currency != l.of.Currency {
			return false
		}
	}
	return true
}

// Shows tells ids, amounts and outcomes of what contradictory books show, in bounded words, of which none may be a text
// of the provider's; "" for an error of another kind.
func (e *ProviderError) Shows() string {
	told := make([]string, 0, maxShown+1)
	for i, x := range e.Shown {
		if i == maxShown {
			told = append(told, "and more")
			break
		}
		id, currency, outcome := x.ID, x.Currency, x.Outcome
		if id == "" || !isName(id) {
			id = "unnamed"
		}
		if len(currency) != 3 || !isName(currency) {
			currency = "of an unknown currency"
		}
		if outcome != OutcomeSucceeded && outcome != OutcomePending && outcome != OutcomeDeclined {
			outcome = "of an unknown status"
		}
		told = append(told, fmt.Sprintf("%s %d %s %s", id, x.AmountCents, currency, outcome))
	}
	return strings.Join(told, ", ")
}
