package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// requestWait bounds one exchange: longer than any deadline of a server.
const requestWait = 45 * time.Second

// transport never resends by itself: it may do so for a request that carries Idempotency-Key, unless GetBody is nil.
var transport = &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 512, IdleConnTimeout: 30 * time.Second}

// Client talks to one server with one API key, and holds every exchange against the contract.
type Client struct {
	URL    string
	Key    string
	T      testing.TB
	Faulty bool // 500 is expected
}

// Request is one HTTP request; the API key and the media type are added unless Header has them.
type Request struct {
	Method string
	Path   string      // escaped, with its query
	Body   []byte      // nil: none
	Header http.Header // an empty value list leaves a header out
	Valid  bool        // meant to be what the contract asks for
	Wait   time.Duration
}

// Answer is one HTTP response.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Try sends a request. An error says that no complete answer arrived; an answer that breaks the contract fails the
// test.
func (c Client) Try(r Request) (Answer, error) {
	c.T.Helper()
	wait := r.Wait
	if wait == 0 {
		wait = requestWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	req, err := c.build(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	res, err := (&http.Client{Transport: transport, CheckRedirect: stay}).Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	x := exchange{req, r.Body, Answer{res.StatusCode, res.Header, body}}
	c.judge(x, r.Valid)
	return x.answer, nil
}

// Do sends a request and fails the test where no answer arrives; it may be called from any goroutine.
func (c Client) Do(r Request) Answer {
	c.T.Helper()
	a, err := c.Try(r)
	if err != nil {
		c.T.Errorf("%s %s: %v", r.Method, r.Path, err)
	}
	return a
}

func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c Client) build(ctx context.Context, r Request) (*http.Request, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, c.URL+r.Path, body)
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	req.GetBody = nil
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range r.Header {
		if len(values) == 0 {
			req.Header.Del(name)
			continue
		}
		req.Header[name] = values
	}
	return req, nil
}

// judge fails the test where an answer breaks the contract.
func (c Client) judge(x exchange, valid bool) {
	c.T.Helper()
	complain := func(err error) {
		if err != nil {
			c.T.Errorf("%s %s %.300s\nanswers %d %v\n%.600s\n%.3000v", x.request.Method, x.request.URL, x.body,
				x.answer.Status, x.answer.Header, x.answer.Body, err)
		}
	}
	complain(x.faults(valid))
	if x.answer.Status >= 400 {
		complain(x.problemFaults())
	}
	if x.answer.Status == http.StatusInternalServerError && !c.Faulty {
		complain(errors.New("an internal error"))
	}
	if leak := LeakIn(fmt.Sprint(x.answer.Header, string(x.answer.Body))); leak != "" {
		complain(fmt.Errorf("a secret got out: %s", leak))
	}
}

// Get reads a path.
func (c Client) Get(path string) Answer {
	c.T.Helper()
	return c.Do(Request{Method: http.MethodGet, Path: path, Valid: true})
}

// Put writes a body to a path.
func (c Client) Put(path string, body any) Answer {
	c.T.Helper()
	return c.Do(Request{Method: http.MethodPut, Path: path, Body: JSON(body), Valid: true})
}

// Post sends a body to a path.
func (c Client) Post(path string, body any) Answer {
	c.T.Helper()
	return c.Do(Request{Method: http.MethodPost, Path: path, Body: JSON(body), Valid: true})
}

// Fields is a JSON object.
type Fields map[string]any

// JSON is v as a body.
func JSON(v any) []byte {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err) // the tests' own maps
	}
	return body
}

// OrderPath is where an order is.
func OrderPath(orderID string) string { return "/v1/orders/" + url.PathEscape(orderID) }

// AuthorizationPath is where an authorization is.
func AuthorizationPath(operationID string) string {
	return "/v1/authorizations/" + url.PathEscape(operationID)
}

// RefundPath is where a refund is.
func RefundPath(operationID string) string { return "/v1/refunds/" + url.PathEscape(operationID) }
