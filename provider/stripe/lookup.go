package stripe

import (
	"context"
	"errors"
	"net/http"

	stripe "github.com/stripe/stripe-go/v82"
	"github.com/stripe/stripe-go/v82/form"

	"refundd/operations"
)

// Of a listing: how many refunds Stripe lists at a time at most, and how many pages are read of a payment. There is no
// limit on a payment's refunds, but nobody gives one back in thousands of parts; a listing that goes on beyond is not
// complete.
const (
	pageSize = 100
	maxPages = 50
)

// Why a listing tells nothing.
var (
	errNoListing = errors.New("the answer is no page of refunds")
	errTooLong   = errors.New("the payment has more refunds than are read")
)

// Lookup reads all refunds of the payment, and finds the one of r's tenant and operation. One whose name is known
// already is read by it where the listing lacks it: listings lag, single refunds do not. See operations.Provider.
func (c *Client) Lookup(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	found := operations.NewListing(r)
	var e exchange
	named, err := c.readAll(ctx, &e, r, found)
	if err == nil && r.ProviderRefundID != "" && !named {
		err = c.readOne(ctx, &e, r, found)
	}
	if err != nil {
		return operations.ProviderResult{}, err
	}
	return found.Result(e.requestID)
}

// readAll adds the refunds of r that the payment's listing shows, and tells whether the one is among them whose name is
// known.
func (c *Client) readAll(ctx context.Context, e *exchange, r operations.ProviderRequest,
	found *operations.Listing) (named bool, err error) {
	after := ""
	for range maxPages {
		page, err := c.readPage(ctx, e, r, after)
		if err != nil {
			return named, err
		}
		for _, x := range page.Data {
			if isOf(x, r) {
				found.Add(listed(x, r))
			}
			named = named || x.ID == r.ProviderRefundID
		}
		if !page.HasMore {
			return named, nil
		}
		after = page.Data[len(page.Data)-1].ID
	}
	return named, e.error(operations.ErrorUnknown, errTooLong)
}

// readPage reads the refunds of r's payment that come after one. Each page is a request of its own, and either whole or
// an error.
func (c *Client) readPage(ctx context.Context, e *exchange, r operations.ProviderRequest,
	after string) (*stripe.RefundList, error) {
	*e = exchange{}
	p := &stripe.RefundListParams{ListParams: stripe.ListParams{Limit: stripe.Int64(pageSize)}}
	p.PaymentIntent, p.Charge = paymentParams(r.PaymentRef)
	if after != "" {
		p.StartingAfter = &after
	}
	query, common, page := &form.Values{}, of(r.Account), &stripe.RefundList{}
	form.AppendTo(query, p)
	common.Context = e.note(ctx)
	// The SDK's own iterator hides where a page ends. A payment that Stripe does not know is an error too, and not one
	// that has no refunds: the key may be another account's by now.
	err := c.backend.CallRaw(http.MethodGet, "/v1/refunds", string(c.key), []byte(query.Encode()), &common, page)
	switch {
	case err != nil:
		return nil, e.failed(err)
	case e.status != http.StatusOK, page.Data == nil, page.HasMore && len(page.Data) == 0:
		return nil, e.error(operations.ErrorUnknown, errNoListing)
	}
	for _, x := range page.Data {
		if x == nil || x.ID == "" || x.ID == after {
			return nil, e.error(operations.ErrorUnknown, errNoListing)
		}
	}
	return page, nil
}

// readOne adds the refund whose name is known, if it is r's.
func (c *Client) readOne(ctx context.Context, e *exchange, r operations.ProviderRequest,
	found *operations.Listing) error {
	*e = exchange{}
	x, err := c.api.V1Refunds.Retrieve(e.note(ctx), r.ProviderRefundID,
		&stripe.RefundRetrieveParams{Params: of(r.Account)})
	switch {
	case err != nil && codeOf(err) == stripe.ErrorCodeResourceMissing && e.status == http.StatusNotFound:
		return nil
	case err != nil:
		return e.failed(err)
	case e.status != http.StatusOK || x.ID != r.ProviderRefundID:
		return e.error(operations.ErrorUnknown, errOtherRefund)
	}
	if isOf(x, r) {
		found.Add(listed(x, r))
	}
	return nil
}
