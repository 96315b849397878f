package simulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/internal/sendonce"
	"refundd/operations"
)

// Client asks a simulator on behalf of the engine. Each method sends one request, never again by itself, and ends with
// its context. It may be used concurrently.
type Client struct {
	base             *url.URL
	refunds, lookups *sendonce.Transport
}

var _ operations.Provider = (*Client)(nil)

// The longest answers, in bytes: one refund or problem; a payment with some 3,000 refunds. A longer one is unknown.
const (
	maxAnswer  = 64 << 10
	maxListing = 1 << 20
)

// NewClient returns a client of the simulator at a URL such as http://127.0.0.1:4010.
func NewClient(base string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse the simulator's URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("the simulator's URL is not of the form http://host:port")
	}
	if u.Path == "" {
		u.Path = "/" // of an empty one, JoinPath makes a relative path
	}
	return &Client{u, &sendonce.Transport{MaxBody: maxAnswer}, &sendonce.Transport{MaxBody: maxListing}}, nil
}

// Refund asks for the refund of r under r.Key. See operations.Provider.
func (c *Client) Refund(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	p := params{
		PaymentRef: r.PaymentRef, AmountCents: r.AmountCents, Currency: r.Currency,
		Metadata: r.Metadata(),
	}
	body, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return operations.ProviderResult{}, &operations.ProviderError{Kind: operations.ErrorNotSent, Cause: err}
	}
	request := &http.Request{
		Method:        http.MethodPost,
		URL:           c.base.JoinPath("refunds"),
		Header:        http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {r.Key}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	e, err := exchange(sendonce.NotAfter(ctx, r.NotAfter), c.refunds, request)
	if err != nil {
		return operations.ProviderResult{}, err
	}
	defer e.body.Close()
	return e.refund(r)
}

// Lookup reads all refunds of the payment, and finds the one of r's tenant and operation. See operations.Provider.
func (c *Client) Lookup(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	u := c.base.JoinPath("refunds")
	u.RawQuery = url.Values{"payment_ref": {r.PaymentRef}}.Encode()
	request := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}
	e, err := exchange(ctx, c.lookups, request)
	if err != nil {
		return operations.ProviderResult{}, err
	}
	defer e.body.Close()
	return e.lookup(r)
}

// exchanged is the beginning of an answer that is neither 401, 403 nor 429.
type exchanged struct {
	status     int
	body       io.ReadCloser
	requestID  string
	retryAfter time.Duration
}

// exchange sends r once.
func exchange(ctx context.Context, t http.RoundTripper, r *http.Request) (exchanged, error) {
	response, err := t.RoundTrip(r.WithContext(ctx)) //nolint:bodyclose // who gets the answer closes it
	switch {
	case errors.Is(err, sendonce.ErrNotSent):
		return exchanged{}, &operations.ProviderError{Kind: operations.ErrorNotSent, Unwritten: true, Cause: err}
	case err != nil:
		return exchanged{}, &operations.ProviderError{Kind: operations.ErrorUnknown, Cause: err}
	}
	e := exchanged{response.StatusCode, response.Body, response.Header.Get("Request-Id"), sendonce.RetryAfter(response)}
	kind := operations.ErrorKind("")
	switch e.status {
	case http.StatusTooManyRequests:
		kind = operations.ErrorNotSent
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = operations.ErrorMisconfigured
	default:
		return e, nil
	}
	defer e.body.Close()
	return exchanged{}, e.refused(kind)
}

func (e exchanged) error(kind operations.ErrorKind, cause error) error {
	return &operations.ProviderError{Kind: kind, RequestID: e.requestID, RetryAfter: e.retryAfter, Cause: cause}
}

// refused is an error of this kind with the answer in its own words, or an unknown one if the answer did not come
// whole.
func (e exchanged) refused(kind operations.ErrorKind) error {
	text, err := io.ReadAll(&allowance{e.body, maxAnswer})
	if err != nil {
		return e.error(operations.ErrorUnknown, err)
	}
	return e.error(kind, fmt.Errorf("status %d: %.200q", e.status, text))
}
