package harness

import (
	"strings"
	"testing"
	"time"

	"refundd/test/stripefake"
	"refundd/test/testdb"
)

// Provider is what suites do to a provider of refunds, whichever it is.
type Provider interface {
	Fault(mode string, more ...Fields)
	Heal()
	ForgetKey(key string)
	Ledger() map[string]Executed
	Requests() map[string]int
	Kill()
	Start()
	Flags() []string // of processes that refund through it
}

// Flags implements Provider.
func (s *Simulator) Flags() []string { return []string{"--simulator-url", s.URL} }

// The fake's key and the secret of its webhook endpoint.
const (
	StripeKey    = "sk_test_" + Canary
	StripeSecret = "whsec_" + Canary
)

// Stripe is a fake of Stripe that speaks of its books and its faults as the simulator does.
type Stripe struct {
	*stripefake.Fake
	base string
	t    testing.TB
}

// NewStripe starts a fake, which ends with the test.
func NewStripe(t testing.TB) *Stripe {
	t.Helper()
	fake := stripefake.New()
	fake.Let(StripeKey, "test")
	s := &Stripe{fake, fake.URL, t}
	t.Cleanup(func() { s.Fake.Stop() })
	return s
}

// NewAtStripe is a service of the test's own, without servers yet, whose processes refund through a fake of Stripe.
func NewAtStripe(t testing.TB, flags ...string) *Service {
	t.Helper()
	s := NewStripe(t)
	return &Service{DB: testdb.New(t), Stripe: s, Flags: append(flags, s.Flags()...)}
}

// Flags implements Provider.
func (s *Stripe) Flags() []string {
	return []string{"--stripe-api-key", StripeKey, "--stripe-api-base", s.base, "--stripe-webhook-secret", StripeSecret}
}

// Kill implements Provider.
func (s *Stripe) Kill() { s.Stop() }

// Start implements Provider.
func (s *Stripe) Start() {
	s.t.Helper()
	if err := s.Again(); err != nil {
		s.t.Errorf("start Stripe again: %v", err)
	}
}

// Fault implements Provider, with the simulator's modes.
func (s *Stripe) Fault(mode string, more ...Fields) {
	times, delay, status := 1<<30, time.Duration(0), 500
	for _, f := range more {
		if n, ok := f["count"].(int); ok {
			times = n
		}
		if ms, ok := f["delay_ms"].(int64); ok {
			delay = time.Duration(ms) * time.Millisecond
		}
		if n, ok := f["status"].(int); ok {
			status = n
		}
	}
	const post = "POST"
	switch mode {
	case "error_before":
		s.put(stripefake.Fault{On: post, Do: "status_before", Status: status, Times: times, Wait: delay})
	case "error_after":
		s.put(stripefake.Fault{On: post, Do: "status_after", Status: status, Times: times, Wait: delay})
	case "drop_before", "drop_after":
		s.put(stripefake.Fault{On: post, Do: mode, Times: times, Wait: delay})
	case "refuse":
		s.put(stripefake.Fault{On: post, Do: "status_before", Status: 429, Type: "invalid_request_error",
			Code: "rate_limit", Times: times, Wait: delay})
	case "decline":
		s.put(stripefake.Fault{On: post, Do: "decline", Code: "charge_not_refundable", Times: times})
	case "hang":
		s.put(stripefake.Fault{On: post, Do: "slow", Times: times, Wait: delay})
	case "pending":
		s.Turn("pending", "succeeded", delay)
	case "fail_later":
		s.Turn("succeeded", "failed", delay)
	case "lookup_down":
		s.put(stripefake.Fault{On: "GET", Do: "status_before", Status: 500, Times: times})
	case "lookup_lag":
		s.Lag(delay)
	default:
		s.t.Errorf("Stripe has no mode %s", mode)
	}
}

// put makes a fault happen instead of an earlier one of its kind.
func (s *Stripe) put(f stripefake.Fault) {
	s.Clear(f.Do)
	s.Fail(f)
}

// Heal implements Provider: what is scheduled for refunds that were made happens all the same.
func (s *Stripe) Heal() {
	s.Fake.Heal()
	s.Turn("succeeded", "", 0)
	s.Lag(0)
}

// ForgetKey implements Provider.
func (s *Stripe) ForgetKey(key string) { s.Forget(key) }

// Requests implements Provider.
func (s *Stripe) Requests() map[string]int { return s.PerKey() }

// Ledger implements Provider; a key that was executed twice fails the test.
func (s *Stripe) Ledger() map[string]Executed {
	s.t.Helper()
	books, requests := map[string]Executed{}, s.PerKey()
	for _, r := range s.Refunds() {
		if first, again := books[r.Key]; again {
			s.t.Errorf("Stripe refunded %s twice: %+v, %+v", r.Key, first, r)
		}
		books[r.Key] = Executed{
			RefundID: r.ID, Key: r.Key, PaymentRef: r.Payment, AmountCents: r.Amount, Currency: strings.ToUpper(r.Currency),
			Status: r.Status, CreatedAt: r.Created, Requests: requests[r.Key],
		}
	}
	return books
}

// capture makes the payment of an order, and answers its name.
func (s *Stripe) capture(t *Tenant, p Payment) string {
	currency := p.Currency
	if currency == "" {
		currency = "EUR"
	}
	return s.Add(stripefake.Payment{
		ID: "pi_" + strings.ReplaceAll(t.ID+"x"+p.OrderID,
			"-", "x"), Currency: strings.ToLower(currency), Amount: p.Cents, Captured: p.Cents,
	})
}
