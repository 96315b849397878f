// Package client is the Go client of refundd: one place that retries, so that no other has to.
//
// Its promises:
//
//   - Every attempt of a call presents the same operation id. Sending it again moves money at most once.
//   - No answer is never told as "it did not happen": the error is ErrUnknown, and before a refund whose answer was
//     lost is sent again, the operation is looked up.
//   - A call makes at most Attempts requests that change something, and all calls of a Client together make at most a
//     fraction (RetryBudget) more requests than calls. A service in trouble is not hit harder for it.
//   - No wait passes the deadline: a call that would have to wait for longer returns the answer in hand at once.
//   - After BreakerFailures transient failures in a row, calls fail at once for BreakerOpen.
//   - Nothing is kept: every answer comes from the service.
//
// Whether an attempt is followed by another is decided in this order: what the server says (X-Should-Retry, then
// Retry-After, then the problem's isRetryable), and the status last (408, 409, 429 and 5xx). A call that got no answer
// may be repeated.
package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config is what a Client needs; the zero value of each optional field means its default.
type Config struct {
	BaseURL string // of the service, such as https://refunds.example.com
	APIKey  string // sent as a bearer token, never logged

	Transport      http.RoundTripper // optional: instead of one that never resends by itself
	Attempts       int               // requests of one call that may change something; default 3
	Deadline       time.Duration     // of a whole call, its waits included; default 60 s. A context's may be earlier
	AttemptTimeout time.Duration     // of one request; default 20 s
	Layer          string            // the retrying layer that this client is; default tool_transport

	RetryBudget     float64       // further requests as a fraction of calls; default 0.1
	RetryBurst      int           // further requests that may be made before any call earned one; default 10
	BreakerFailures int           // transient failures in a row that open the breaker; default 10
	BreakerOpen     time.Duration // how long it stays open; default 5 s

	OnAttempt   func(Attempt)   // optional: told of every request, for logs and metrics
	OnRateLimit func(RateLimit) // optional: told of the limits that answers carry
	WarnAt      float64         // utilization from which a rate limit is a warning; default 0.8
}

// Layers of an agent that may repeat a call, for Config.Layer and WithLayer.
const (
	LayerModelTransport = "model_transport"
	LayerAgentLoop      = "agent_loop"
	LayerToolTransport  = "tool_transport"
	LayerBusiness       = "business"
)

func (c *Config) setDefaults() {
	setDefault(&c.Attempts, 3)
	setDefault(&c.Deadline, time.Minute)
	setDefault(&c.AttemptTimeout, 20*time.Second)
	setDefault(&c.Layer, LayerToolTransport)
	setDefault(&c.RetryBudget, 0.1)
	setDefault(&c.RetryBurst, 10)
	setDefault(&c.BreakerFailures, 10)
	setDefault(&c.BreakerOpen, 5*time.Second)
	setDefault(&c.WarnAt, 0.8)
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	if c.OnAttempt == nil {
		c.OnAttempt = func(Attempt) {}
	}
	if c.OnRateLimit == nil {
		c.OnRateLimit = func(RateLimit) {}
	}
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func (c *Config) validate() error {
	var faults []error
	if u, err := url.Parse(c.BaseURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		faults = append(faults, errors.New("the base URL is no http or https URL"))
	}
	if c.APIKey == "" || strings.ContainsAny(c.APIKey, " \t\r\n") {
		faults = append(faults, errors.New("the API key is empty or has white space"))
	}
	for _, negative := range []struct {
		is   bool
		name string
	}{
		{c.Attempts < 0, "attempts"}, {c.Deadline < 0, "deadline"}, {c.AttemptTimeout < 0, "attempt timeout"},
		{c.RetryBudget < 0, "retry budget"}, {c.RetryBurst < 0, "retry burst"}, {c.BreakerFailures < 0,
			"breaker failures"},
		{c.BreakerOpen < 0, "breaker's open time"}, {c.WarnAt < 0, "warning utilization"},
	} {
		if negative.is {
			faults = append(faults, fmt.Errorf("the %s is negative", negative.name))
		}
	}
	return errors.Join(faults...)
}

// Client calls one service with one API key. Its methods may be called at once from any number of goroutines.
type Client struct {
	config  Config
	base    string
	http    *http.Client
	breaker *breaker
	budget  *budget
	jitter  func() float64 // in [0, 1)
}

// New returns a client, or every fault of its configuration.
func New(c Config) (*Client, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure client: %w", err)
	}
	c.setDefaults()
	return &Client{
		config:  c,
		base:    strings.TrimRight(c.BaseURL, "/"),
		http:    &http.Client{Transport: c.Transport, CheckRedirect: followNone},
		breaker: newBreaker(c.BreakerFailures, c.BreakerOpen),
		budget:  newBudget(c.RetryBudget, c.RetryBurst),
		jitter:  rand.Float64,
	}, nil
}

// As returns a client with another API key. The two share connections, breaker and budget: they are of the same
// service.
func (c *Client) As(apiKey string) *Client {
	other := *c
	other.config.APIKey = apiKey
	return &other
}

// newTransport returns a transport that leaves repeating to the client. net/http resends a request by itself on a
// connection that the server closed, if it knows the body again or the request carries Idempotency-Key: requests here
// have neither.
func newTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

// followNone keeps a key from going wherever a redirect points.
func followNone(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
