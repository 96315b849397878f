// Package stripe is Stripe as a provider of refunds: operations.Provider on stripe-go, and the reading of its events.
//
// Its promises: a method sends each of its requests once. The SDK's retries and telemetry are off, and beneath it works
// internal/sendonce, whose connections carry one request each, whose clocks are asked after every wait, and which tells
// what was never written from what may have arrived. A decline is one of a closed list, made from what Stripe publishes
// (see declines); whatever else Stripe says, or does not say, is unknown. A look reads all refunds of the payment,
// every page, and never the search, which Stripe keeps up to date within about a minute at best; the refund whose name
// is known is read by it as well. An amount is converted between our minor units (ISO 4217) and Stripe's, and a refund
// that is no whole number of ours is never taken for one. A key of test mode never reads what is live, nor the other
// way round.
//
// Stripe's documentation is named where a rule comes from it. Its pages are under https://docs.stripe.com.
package stripe

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	stripe "github.com/stripe/stripe-go/v82"

	"refundd/internal/sendonce"
	"refundd/operations"
)

// What Stripe documents of its idempotency keys (/api/idempotent_requests).
const (
	KeyRetention = 24 * time.Hour
	MaxKeyLength = 255 // characters
)

// DefaultBase is where Stripe's API is.
const DefaultBase = "https://api.stripe.com"

// RatePerSecond is how many requests reconciliation sends per second, at most: a fifth of what Stripe allows an account
// in live mode, and less than it allows in test mode (/rate-limits), so that refunds and everything else of the account
// go on.
const RatePerSecond = 20

// Config is what a Client needs.
type Config struct {
	Key  Secret // sk_… or rk_…: of live or of test mode
	Base string // default DefaultBase
}

// Secret is a text that is never shown.
type Secret string

// String implements fmt.Stringer.
func (Secret) String() string { return "(secret)" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "(secret)" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("(secret)") }

// Client asks Stripe on behalf of the engine. It may be used concurrently.
type Client struct {
	api     *stripe.Client
	backend stripe.Backend
	key     Secret
	live    bool // the key's mode
}

var (
	_ operations.Provider      = (*Client)(nil)
	_ operations.PaymentReader = (*Client)(nil)
)

// The longest answers, in bytes: a page of a hundred refunds with all of their metadata; the headers.
const (
	maxAnswer = 1 << 20
	maxHeader = 32 << 10
)

// ErrKey reports an API key that names no mode: it is no secret or restricted key.
var ErrKey = errors.New("not a secret key (sk_live_…, sk_test_…) nor a restricted one (rk_live_…, rk_test_…)")

// NewClient returns a client of Stripe, or reports what makes no sense. It sends nothing.
func NewClient(c Config) (*Client, error) {
	live, err := isLive(c.Key)
	if err != nil {
		return nil, err
	}
	if c.Base == "" {
		c.Base = DefaultBase
	}
	u, err := url.Parse(c.Base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("the API's base is not of the form https://host")
	}
	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: stripe.String(strings.TrimSuffix(c.Base, "/")),
		HTTPClient: &http.Client{
			Transport:     noting{&sendonce.Transport{MaxBody: maxAnswer, MaxHeader: maxHeader}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	api := stripe.NewClient(string(c.Key), stripe.WithBackends(&stripe.Backends{API: backend}))
	return &Client{api, backend, c.Key, live}, nil
}

// isLive tells a key's mode by its documented beginning (/keys).
func isLive(key Secret) (bool, error) {
	for _, prefix := range []string{"sk_", "rk_"} {
		if mode, ok := strings.CutPrefix(string(key), prefix); ok {
			switch {
			case strings.HasPrefix(mode, "live_") && len(mode) > len("live_"):
				return true, nil
			case strings.HasPrefix(mode, "test_") && len(mode) > len("test_"):
				return false, nil
			}
		}
	}
	return false, ErrKey
}

// Refund asks for the refund of r under r.Key. See operations.Provider.
func (c *Client) Refund(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	amount, ok := toStripe(r.AmountCents, r.Currency)
	if !ok {
		return operations.ProviderResult{Outcome: operations.OutcomeDeclined, DeclineCode: operations.DeclineDeclined},
			nil
	}
	p := &stripe.RefundCreateParams{
		Params:   of(r.Account),
		Amount:   &amount,
		Metadata: r.Metadata(),
	}
	p.IdempotencyKey = &r.Key
	p.PaymentIntent, p.Charge = paymentParams(r.PaymentRef)
	var e exchange
	made, err := c.api.V1Refunds.Create(e.note(sendonce.NotAfter(ctx, r.NotAfter)), p)
	if err != nil {
		return e.refused(r, err)
	}
	return e.taken(r, made)
}

// of are the parameters of every request: the account that took the payment, and no word of the machine that asks.
func of(account string) stripe.Params {
	p := stripe.Params{Headers: http.Header{"X-Stripe-Client-User-Agent": {`{"application":{"name":"refundd"}}`}}}
	if account != "" {
		p.StripeAccount = &account
	}
	return p
}

// paymentParams name a payment in a request: by its intent, or by its charge.
func paymentParams(ref string) (intent, charge *string) {
	if isCharge(ref) {
		return nil, &ref
	}
	return &ref, nil
}

// isCharge tells a charge's name from a payment intent's. Charges of other rails than cards are called payments.
func isCharge(ref string) bool { return strings.HasPrefix(ref, "ch_") || strings.HasPrefix(ref, "py_") }

// exchange is what is noted of one request's answer, beside what the SDK makes of it.
type exchange struct {
	status     int // 0 where no answer began
	requestID  string
	retryAfter time.Duration
}

type exchangeKey struct{}

// note makes e the one whose answer is noted.
func (e *exchange) note(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

// noting notes each answer in the exchange of its request.
type noting struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := n.next.RoundTrip(r)
	if e, ok := r.Context().Value(exchangeKey{}).(*exchange); ok && err == nil {
		*e = exchange{response.StatusCode, response.Header.Get("Request-Id"), sendonce.RetryAfter(response)}
	}
	return response, err
}

func (e *exchange) error(kind operations.ErrorKind, cause error) *operations.ProviderError {
	failure := &operations.ProviderError{Kind: kind, RequestID: e.requestID, RetryAfter: e.retryAfter, Cause: cause}
	if kind == operations.ErrorUnknown {
		failure.Reason = reasonOf(cause)
	}
	return failure
}

// failed is what a request without an answer, or with an error for one, comes to: never an outcome.
func (e *exchange) failed(err error) *operations.ProviderError {
	switch {
	case errors.Is(err, sendonce.ErrNotSent):
		failure := e.error(operations.ErrorNotSent, err)
		failure.Unwritten = true
		return failure
	case e.status == http.StatusTooManyRequests && isError(err):
		return e.error(operations.ErrorNotSent, err)
	case codeOf(err) == stripe.ErrorCodeAccountInvalid:
		return e.error(operations.ErrorUnknown, err) // of one order's account, not of our key
	case (e.status == http.StatusUnauthorized || e.status == http.StatusForbidden) && isError(err):
		return e.error(operations.ErrorMisconfigured, err)
	}
	return e.error(operations.ErrorUnknown, err)
}

// isError tells an error that Stripe said in full from an answer that broke off, or was somebody else's.
func isError(err error) bool {
	_, ok := errors.AsType[*stripe.Error](err)
	return ok
}

func codeOf(err error) stripe.ErrorCode {
	if e, ok := errors.AsType[*stripe.Error](err); ok {
		return e.Code
	}
	return ""
}

// refused is what an error in answer to a request for a refund says.
func (e *exchange) refused(r operations.ProviderRequest, err error) (operations.ProviderResult, error) {
	if d, ok := e.declined(err); ok {
		return operations.ProviderResult{
			Outcome: operations.OutcomeDeclined, DeclineCode: d.code, Doubtful: d.doubtful, RequestID: e.requestID,
		}, nil
	}
	return operations.ProviderResult{}, e.failed(err)
}

var errOtherRefund = errors.New("the answer is another refund's, or of a status that is not documented")

// taken takes a refund that is r's.
func (e *exchange) taken(r operations.ProviderRequest, made *stripe.Refund) (operations.ProviderResult, error) {
	found := operations.NewListing(r)
	if e.status == http.StatusOK && isOf(made, r) {
		found.Add(listed(made, r))
	}
	result, err := found.Result(e.requestID)
	if err != nil {
		return operations.ProviderResult{}, e.error(operations.ErrorUnknown, errOtherRefund)
	}
	return result, nil
}

// isOf tells whether x is r's, by its metadata or by the name that it had before.
func isOf(x *stripe.Refund, r operations.ProviderRequest) bool {
	return r.Marks(x.Metadata) || x.ID == r.ProviderRefundID && r.ProviderRefundID != ""
}

// listed is x as operations compares it with r.
func listed(x *stripe.Refund, r operations.ProviderRequest) operations.Listed {
	l := operations.Listed{ID: x.ID, Currency: strings.ToUpper(string(x.Currency))}
	l.AmountCents = fromStripe(x.Amount, l.Currency)
	for _, ref := range paymentsOf(x) {
		if l.PaymentRef == "" || ref == r.PaymentRef {
			l.PaymentRef = ref
		}
	}
	l.Outcome, l.DeclineCode = outcomeOf(x)
	return l
}

// paymentsOf are the names of the payment that x gives back: its intent's and its charge's.
func paymentsOf(x *stripe.Refund) (names []string) {
	if x.PaymentIntent != nil {
		names = append(names, x.PaymentIntent.ID)
	}
	if x.Charge != nil {
		names = append(names, x.Charge.ID)
	}
	return names
}

// outcomeOf is what a refund's status tells (/api/refunds/object); none where it is not documented.
func outcomeOf(x *stripe.Refund) (operations.Outcome, string) {
	switch x.Status {
	case stripe.RefundStatusSucceeded:
		return operations.OutcomeSucceeded, ""
	case stripe.RefundStatusPending, stripe.RefundStatusRequiresAction:
		return operations.OutcomePending, ""
	case stripe.RefundStatusFailed:
		return operations.OutcomeDeclined, failure(string(x.FailureReason))
	case stripe.RefundStatusCanceled:
		return operations.OutcomeDeclined, operations.DeclineRefundFailed
	}
	return "", ""
}
