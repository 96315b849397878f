// Package stripe holds refundd with Stripe as its provider, as a black box: real processes, a real Postgres, and a fake
// of Stripe that is written from Stripe's documentation.
package stripe

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/stripefake"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

// shop is a tenant that sells through Stripe.
type shop struct {
	*harness.Tenant
	fake *harness.Stripe
	t    *testing.T
	ids  *atomic.Int64
}

// open is a service of the test's own, with one server, and a shop in it.
func open(t *testing.T, flags ...string) *shop {
	t.Helper()
	s := harness.NewAtStripe(t, append([]string{"--listing-lag", "300ms", "--pool-size", "6"}, flags...)...)
	s.AddServer(t)
	return &shop{s.OpenTenant(t), s.Stripe, t, &atomic.Int64{}}
}

// sell registers an order with a payment of 10000 EUR at Stripe, all of it captured.
func (s *shop) sell(change ...func(*stripefake.Payment)) string {
	s.t.Helper()
	id := fmt.Sprint("O", s.ids.Add(1))
	p := stripefake.Payment{ID: "pi_" + strings.ReplaceAll(s.ID, "-", "") + id, Currency: "eur", Amount: 10000,
		Captured: 10000}
	for _, f := range change {
		f(&p)
	}
	body := harness.Fields{"currency": "EUR", "captured_cents": 10000, "provider": "stripe",
		"provider_payment_ref": s.fake.Add(p)}
	if p.Account != "" {
		body["provider_account"] = p.Account
	}
	if a := s.Client().Put(harness.OrderPath(id), body); a.Status != http.StatusCreated {
		s.t.Fatalf("register %s: %d %s", id, a.Status, a.Body)
	}
	return id
}

// paid is a refund of 4000 of a new order that ended as status says, and its name at Stripe.
func (s *shop) paid(operation string, change ...func(*stripefake.Payment)) (order, refund string) {
	s.t.Helper()
	order = s.sell(change...)
	if a := s.Client().Refund(operation, order, 4000); a.Status >= 400 {
		s.t.Fatalf("refund %s: %d %s", operation, a.Status, a.Body)
	}
	made := s.fake.Of(s.ID, operation)
	if len(made) != 1 {
		s.t.Fatalf("%s: Stripe made %d refunds", operation, len(made))
	}
	return order, made[0].ID
}

// deliver posts an event, and wants its answer to be this status and, where it is 200, this result.
func (s *shop) deliver(event []byte, status int, result string) {
	s.t.Helper()
	a := s.post(event, stripefake.Signature(event, time.Now(), harness.StripeSecret))
	if a.Status != status || status == http.StatusOK && !strings.Contains(string(a.Body), `"`+result+`"`) {
		s.t.Errorf("%.200s: answered %d %s, want %d %s", event, a.Status, a.Body, status, result)
	}
}

// post posts an event with a signature, without an API key.
func (s *shop) post(event []byte, signature string) harness.Answer {
	s.t.Helper()
	return s.Client().With("").Do(harness.Request{Method: http.MethodPost, Path: "/v1/webhooks/stripe", Body: event,
		Header: http.Header{"Stripe-Signature": {signature}, "Content-Type": {"application/json; charset=utf-8"}}})
}

// stands wants an operation to be in a state, with a failure code or none.
func (s *shop) stands(operation, state, code string) {
	s.t.Helper()
	if body := string(s.Client().Get(harness.RefundPath(operation)).Body); !strings.Contains(body,
		`"state":"`+state+`"`) ||
		code != "" && !strings.Contains(body, `"failure_code":"`+code+`"`) {
		s.t.Errorf("%s: %s, want %s %s", operation, body, state, code)
	}
}

// refundable wants so much of an order to be left.
func (s *shop) refundable(order string, cents int) {
	s.t.Helper()
	if body := string(s.Client().Get(harness.OrderPath(order)).Body); !strings.Contains(body,
		fmt.Sprintf(`"refundable_cents":%d,`, cents)) {
		s.t.Errorf("%s: %s, want %d to be refundable", order, body, cents)
	}
}

// rows are all rows of the tenant, to be compared with what they were.
func (s *shop) rows() string { return s.Rows() }

// once wants an operation to have moved money once at Stripe.
func (s *shop) once(operation string) {
	s.t.Helper()
	alive := slices.DeleteFunc(s.fake.Of(s.ID, operation),
		func(r stripefake.Refund) bool { return r.Status == "failed" })
	if len(alive) != 1 {
		s.t.Errorf("%s: Stripe made %+v", operation, alive)
	}
}
