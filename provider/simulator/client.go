package simulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/operations"
)

// The names of a refund's metadata that tell whose it is.
const (
	metadataTenant    = "tenant_id"
	metadataOperation = "operation_id"
)

// Client asks a simulator on behalf of the engine. Each method sends one request, never again by itself, and ends with its
// context. It may be used concurrently.
type Client struct {
	base *url.URL
	// Refunds share connections: net/http resends a request on a reused one only if it can read its body again, which ours
	// can not. It resends every GET, so that lookups have a connection each.
	refunds, lookups *http.Transport
}

var _ operations.Provider = (*Client)(nil)

// NewClient returns a client of the simulator at an http URL, such as http://127.0.0.1:4010.
func NewClient(base string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse the simulator's URL: %w", err)
	}
	if u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("the simulator's URL is not of the form http://host:port")
	}
	if u.Path == "" {
		u.Path = "/" // of an empty one, JoinPath makes a relative path
	}
	return &Client{base: u, refunds: newTransport(false), lookups: newTransport(true)}, nil
}

// newTransport speaks HTTP/1.1 without proxies. HTTP/2 has resends of its own.
func newTransport(fresh bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		Protocols:           protocols,
		DisableKeepAlives:   fresh,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     30 * time.Second, // well before the server's
	}
}

// Close closes the connections that nothing uses.
func (c *Client) Close() {
	c.refunds.CloseIdleConnections()
	c.lookups.CloseIdleConnections()
}

// Refund asks for the refund of r under r.Key. See operations.Provider.
func (c *Client) Refund(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	p := params{
		PaymentRef: r.PaymentRef, AmountCents: r.AmountCents, Currency: r.Currency,
		Metadata: map[string]string{metadataTenant: r.TenantID, metadataOperation: r.OperationID},
	}
	body, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return operations.ProviderResult{}, &operations.ProviderError{Kind: operations.ErrorNotSent, Cause: err}
	}
	request := &http.Request{
		Method:        http.MethodPost,
		URL:           c.base.JoinPath("refunds"),
		Header:        http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {r.Key}},
		Body:          io.NopCloser(bytes.NewReader(body)), // without GetBody, see Client
		ContentLength: int64(len(body)),
	}
	e, err := exchange(ctx, c.refunds, request)
	if err != nil {
		return operations.ProviderResult{}, err
	}
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
	return e.lookup(r)
}

// exchanged is an answer that came whole and is neither 401, 403 nor 429.
type exchanged struct {
	status    int
	body      []byte
	requestID string
}

// maxAnswer is the longest answer in bytes: a payment with some 100,000 refunds. A longer one is unknown.
const maxAnswer = 64 << 20

// exchange sends r once. What never had a connection was not sent. GotConn is the last event that is sure to be seen: what
// net/http writes after it, it writes from another goroutine, which may outlive the call.
func exchange(ctx context.Context, t http.RoundTripper, r *http.Request) (exchanged, error) {
	kind := operations.ErrorNotSent
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { kind = operations.ErrorUnknown }}
	response, err := t.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		return exchanged{}, &operations.ProviderError{Kind: kind, Cause: err}
	}
	defer response.Body.Close()
	e := exchanged{status: response.StatusCode, requestID: response.Header.Get("Request-Id")}
	if e.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err != nil {
		return exchanged{}, e.error(operations.ErrorUnknown, err)
	}
	switch {
	case len(e.body) > maxAnswer:
		return exchanged{}, e.error(operations.ErrorUnknown, errTooLong)
	case e.status == http.StatusTooManyRequests:
		return exchanged{}, e.error(operations.ErrorNotSent, e.refusal())
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		return exchanged{}, e.error(operations.ErrorMisconfigured, e.refusal())
	}
	return e, nil
}

func (e exchanged) error(kind operations.ErrorKind, cause error) error {
	return &operations.ProviderError{Kind: kind, RequestID: e.requestID, Cause: cause}
}

// refusal is the answer in its own words.
func (e exchanged) refusal() error { return fmt.Errorf("status %d: %.200q", e.status, e.body) }
