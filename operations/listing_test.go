package operations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"refundd/operations"
)

func TestListing_IsReadByOneRule(t *testing.T) {
	t.Parallel()
	request := operations.ProviderRequest{PaymentRef: "pay", AmountCents: 100, Currency: "EUR"}
	known := request
	known.ProviderRefundID = "re_1"
	one := operations.Listed{ID: "re_1", PaymentRef: "pay", AmountCents: 100, Currency: "EUR",
		Outcome: operations.OutcomeSucceeded}
	with := func(change func(*operations.Listed)) operations.Listed { x := one; change(&x); return x }
	two := with(func(x *operations.Listed) { x.ID = "re_2" })
	unclear := with(func(x *operations.Listed) { x.Outcome = "" })
	later := with(func(x *operations.Listed) { x.Outcome = operations.OutcomePending })
	many := make([]operations.Listed, 100)
	for i := range many {
		many[i] = with(func(x *operations.Listed) { x.ID = fmt.Sprintf("re_%d", i) })
	}
	for name, c := range map[string]struct {
		of     operations.ProviderRequest
		listed []operations.Listed
		kind   operations.ErrorKind
		shows  string // where it is contradictory; else the refund's name
	}{
		"none":                {request, nil, operations.ErrorNotFound, ""},
		"one":                 {request, []operations.Listed{one}, "", "re_1"},
		"the same one thrice": {request, []operations.Listed{one, one, one}, "", "re_1"},
		"two": {request, []operations.Listed{one, two, one}, operations.ErrorContradictory,
			"re_1 100 EUR succeeded, re_2 100 EUR succeeded"},
		"another amount": {request,
			[]operations.Listed{with(func(x *operations.Listed) { x.AmountCents = 99 })}, operations.ErrorContradictory,
			"re_1 99 EUR succeeded"},
		"another currency": {request,
			[]operations.Listed{with(func(x *operations.Listed) { x.Currency = "USD" })}, operations.ErrorContradictory,
			"re_1 100 USD succeeded"},
		"another payment": {request,
			[]operations.Listed{with(func(x *operations.Listed) { x.PaymentRef = "other" })},
			operations.ErrorContradictory, "re_1 100 EUR succeeded"},
		"the one of before": {known, []operations.Listed{one}, "", "re_1"},
		"another than before": {known, []operations.Listed{two}, operations.ErrorContradictory,
			"re_2 100 EUR succeeded"},
		"it changes meanwhile":    {request, []operations.Listed{later, one}, operations.ErrorUnknown, ""},
		"a status without a word": {request, []operations.Listed{unclear}, operations.ErrorUnknown, ""},
		"no name": {request, []operations.Listed{with(func(x *operations.Listed) { x.ID = "" })},
			operations.ErrorUnknown, ""},
		"texts instead of names": {request,
			[]operations.Listed{one, with(func(x *operations.Listed) {
				x.ID, x.Currency, x.Outcome = "<a b>", "a text",
					"a text"
			})},
			operations.ErrorContradictory, "re_1 100 EUR succeeded, unnamed 100 of an unknown currency of an unknown status"},
	} {
		got, err := read(c.of, c.listed)
		var failure *operations.ProviderError
		switch errors.As(err, &failure); {
		case c.kind == "" && (err != nil || got.ProviderRefundID != c.shows ||
			got.Outcome != operations.OutcomeSucceeded || got.RequestID != "req"):
			t.Errorf("%s: %+v, %v", name, got, err)
		case c.kind != "" && (failure == nil || failure.Kind != c.kind || failure.Shows() != c.shows ||
			failure.RequestID != "req"):
			t.Errorf("%s: %+v, %v, want %s %q", name, got, err, c.kind, c.shows)
		}
	}
	_, err := read(request, many)
	var failure *operations.ProviderError
	if !errors.As(err, &failure) || !strings.HasSuffix(failure.Shows(), "re_9 100 EUR succeeded, and more") ||
		len(failure.Shown) > 11 {
		t.Errorf("of 100 it shows %s", failure.Shows())
	}
}

func read(of operations.ProviderRequest, listed []operations.Listed) (operations.ProviderResult, error) {
	l := operations.NewListing(of)
	for _, x := range listed {
		l.Add(x)
	}
	return l.Result("req")
}
