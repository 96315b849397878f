package blackbox

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

// paying is a tenant whose orders a simulator of its own refunds, and a service of its own.
type paying struct {
	*harness.Tenant
	harness.Client
	t        *testing.T
	provider *harness.Simulator
}

// listingLag is what refundd is told of the simulator's listing.
const listingLag = 200 * time.Millisecond

// newPaying has one server, and orders P0 … P9 of 10000 captured.
func newPaying(t *testing.T, flags ...string) *paying {
	t.Helper()
	return payingOn(t, harness.NewPaying(t), flags...)
}

func payingOn(t *testing.T, s *harness.Service, flags ...string) *paying {
	t.Helper()
	s.Flags = append(s.Flags,
		slices.Concat([]string{"--listing-lag", listingLag.String(), "--provider-breaker-failures", "1000000"},
			flags)...)
	s.AddServer(t)
	p := &paying{Tenant: s.OpenTenant(t), t: t, provider: s.Simulator}
	p.Client = p.Tenant.Client()
	for _, order := range names("P", 10) {
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
	}
	return p
}

// refund asks for 4000 of an order and wants an answer, by Says.
func (p *paying) refund(operation, order, says string) harness.Answer {
	p.t.Helper()
	a := p.Refund(operation, order, 4000)
	want(p.t, a, says)
	return a
}

// again lets the lease and the rest after it pass, and asks again.
func (p *paying) again(operation, order, says string) harness.Answer {
	p.t.Helper()
	p.Service.Due(p.t)
	return p.refund(operation, order, says)
}

// reconcile lets time pass and runs the job.
func (p *paying) reconcile(flags ...string) harness.Summary {
	p.t.Helper()
	p.Service.Due(p.t)
	return p.Service.Reconcile(p.t, flags...)
}

// lookUp has an operation looked up at once, over HTTP.
func (p *paying) lookUp(operation string) harness.Refund {
	p.t.Helper()
	p.Service.Due(p.t)
	return harness.Read[harness.Refund](p.t, p.Post(harness.RefundPath(operation)+"/reconcile", harness.Fields{}))
}

// read is the operation as it stands.
func (p *paying) read(operation string) harness.Refund {
	p.t.Helper()
	return harness.Read[harness.Refund](p.t, p.Get(harness.RefundPath(operation)))
}

// stands fails the test where an operation is not in a state, with what that says of the money.
func (p *paying) stands(operation, state, failureCode string) harness.Refund {
	p.t.Helper()
	moved := map[string]string{"succeeded": "yes", "failed": "no"}[state]
	if moved == "" {
		moved = "unknown"
	}
	r := p.read(operation)
	if code := deref(r.FailureCode); r.State != state || r.MoneyMoved != moved || code != failureCode {
		p.t.Errorf("%s is %s %s with money_moved %s, want %s %s with %s", operation, r.State, code, r.MoneyMoved, state,
			failureCode, moved)
	}
	return r
}

// balance fails the test where an order has not refunded (held included) and held so much.
func (p *paying) balance(order string, refunded, held int64) {
	p.t.Helper()
	o := harness.Read[harness.Order](p.t, p.Get(harness.OrderPath(order)))
	if o.RefundedCents != refunded || o.HeldCents != held {
		p.t.Errorf("order %s has refunded %d and holds %d of it, want %d and %d", order, o.RefundedCents, o.HeldCents,
			refunded, held)
	}
}

// chain fails the test where an operation's transfers are others.
func (p *paying) chain(operation string, kinds ...string) {
	p.t.Helper()
	var got []string
	for _, e := range p.timeline(operation) {
		if e.Transfer != nil {
			got = append(got, e.Transfer.Kind)
		}
	}
	if diff := cmp.Diff(kinds, got); diff != "" {
		p.t.Errorf("transfers of %s: %s", operation, diff)
	}
}

// happening is an entry of a timeline.
type happening struct {
	At       string `json:"at"`
	Transfer *struct {
		Seq           int    `json:"seq"`
		Kind          string `json:"kind"`
		DebitAccount  string `json:"debit_account"`
		CreditAccount string `json:"credit_account"`
		AmountCents   int64  `json:"amount_cents"`
		Currency      string `json:"currency"`
	} `json:"transfer"`
	Event *struct {
		Kind              string            `json:"kind"`
		FromState         *string           `json:"from_state"`
		ToState           *string           `json:"to_state"`
		Attempt           *int              `json:"attempt"`
		Layer             *string           `json:"layer"`
		Actor             *string           `json:"actor"`
		ErrorKind         *string           `json:"error_kind"`
		ProviderRequestID *string           `json:"provider_request_id"`
		Detail            map[string]string `json:"detail"`
	} `json:"event"`
}

// timeline is the first hundred entries of an operation's history.
func (p *paying) timeline(operation string) []happening {
	p.t.Helper()
	return harness.Read[harness.List[happening]](p.t, p.Get(harness.RefundPath(operation)+"/events?limit=100")).Data
}

// attempts counts the requests to the provider that an operation's history tells of, by what they were.
func (p *paying) attempts(operation string) map[string]int {
	p.t.Helper()
	n := map[string]int{}
	for _, e := range p.timeline(operation) {
		if e.Event != nil && (e.Event.Kind == "refund" || e.Event.Kind == "lookup") {
			n[e.Event.Kind]++
		}
	}
	return n
}

// executed fails the test where the provider did not execute exactly these operations, once each and by their keys.
func (p *paying) executed(operations ...string) map[string]harness.Executed {
	p.t.Helper()
	books := p.provider.Ledger()
	var keys, got []string
	for _, operation := range operations {
		keys = append(keys, p.ProviderKey(operation))
	}
	for key := range books {
		got = append(got, key)
	}
	slices.Sort(keys)
	slices.Sort(got)
	if diff := cmp.Diff(keys, got); diff != "" {
		p.t.Errorf("executed at the provider: %s", diff)
	}
	return books
}

// resolve is a person's decision.
func (p *paying) resolve(operation, outcome string, more ...harness.Fields) harness.Answer {
	p.t.Helper()
	body := harness.Fields{"outcome": outcome, "evidence": "ticket 4711"}
	for _, fields := range more {
		for name, value := range fields {
			body[name] = value
		}
	}
	return p.Post(harness.RefundPath(operation)+"/resolve", body)
}

// resolvable frees the lease and lets the provider's listing lag pass since the last request.
func (p *paying) resolvable() {
	p.t.Helper()
	p.Service.Due(p.t)
	time.Sleep(listingLag)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestA5_AlikeOperations_HaveTheirOwnProviderKeys(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	long := strings.Repeat("x", 254)
	operations := []string{"K", "k", "K1", "K2", "K:1", "K.1", "1", "01", long + "a", long + "b"}
	together(len(operations), func(i int) { want(t, p.Refund(operations[i], "P0", 600), "processed") })
	for _, operation := range operations {
		want(t, p.Refund(operation, "P0", 600), "already_processed")
	}
	keys := map[string]bool{}
	for _, e := range p.provider.Refunds() {
		keys[e.Key] = true
		if len(e.Key) > 255 || e.Requests != 1 || e.AmountCents != 600 || e.PaymentRef != p.Ref("P0") {
			t.Errorf("the provider executed %+v", e)
		}
	}
	if len(keys) != len(operations) {
		t.Errorf("%d provider keys for %d operations: %v", len(keys), len(operations), keys)
	}
	p.balance("P0", 6000, 0)
	p.Service.Audit(t)
}

func TestA5_AnotherTenantsOperationOfThatName_HasAnotherProviderKey(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	other := p.Service.OpenTenant(t)
	other.Pay(harness.Payment{OrderID: "P0", Cents: 10000})
	p.refund("K", "P0", "processed")
	want(t, other.Client().Refund("K", "P0", 600), "processed")
	books := p.provider.Ledger()
	if books[p.ProviderKey("K")].AmountCents != 4000 || books[other.ProviderKey("K")].AmountCents != 600 ||
		len(books) != 2 {
		t.Errorf("the provider executed %+v", books)
	}
}

func TestA16_AmountsAndCurrencies_ReachTheProviderUnchanged(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for i, c := range []struct {
		currency string
		cents    int64
	}{{"JPY", 5800}, {"KWD", 1234}, {"EUR", 1}, {"USD", 9007199254740991}, {"BHD", 1005}, {"KRW", 100}, {"ISK",
		99}, {"HUF", 12345}} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("C", i)
		p.Pay(harness.Payment{OrderID: order, Currency: c.currency, Cents: c.cents})
		other := "EUR"
		if c.currency == "EUR" {
			other = "USD"
		}
		body := harness.Fields{"operation_id": operation, "order_id": order, "amount_cents": c.cents, "currency": other}
		want(t, p.Post("/v1/refunds", body), "currency_mismatch")
		body["currency"] = c.currency
		want(t, p.Post("/v1/refunds", body), "processed")
		if paid := p.provider.Ledger()[p.ProviderKey(operation)]; paid.AmountCents != c.cents ||
			paid.Currency != c.currency {
			t.Errorf("%d %s reached the provider as %d %s", c.cents, c.currency, paid.AmountCents, paid.Currency)
		}
	}
	p.Service.Audit(t)
}

func TestA45_TheClientDisconnectsWhileTheProviderWorks_TheOutcomeIsRecorded(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for i, c := range []struct {
		mode  string
		state string
	}{{"", "succeeded"}, {"decline", "failed"}, {"pending", "pending"}, {"error_after", "reserved"}} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		p.provider.Fault("hang", harness.Times(1), harness.After(3*time.Second))
		if c.mode != "" {
			p.provider.Fault(c.mode, harness.Times(1), harness.After(time.Millisecond))
		}
		_, err := p.Try(harness.Request{Method: http.MethodPost, Path: "/v1/refunds", Wait: 1500 * time.Millisecond,
			Body: harness.JSON(harness.Fields{"operation_id": operation, "order_id": order, "amount_cents": 4000})})
		if err == nil {
			t.Errorf("%s: answered while the provider hangs", operation)
		}
		eventually(t, "the outcome is recorded", func() bool { return len(p.attempts(operation)) > 0 })
		if r := p.read(operation); r.State != c.state {
			t.Errorf("%s is %s, want %s", operation, r.State, c.state)
		}
		if a := p.attempts(operation); a["refund"] != 1 || a["lookup"] != 0 {
			t.Errorf("%s: the provider was asked %v", operation, a)
		}
	}
}

// A caller is answered within its own deadline, and the call to the provider goes on.
func TestA45_TheRequestsDeadlinePassesWhileTheProviderWorks_TheOutcomeIsRecorded(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-timeout", "20s")
	hasty := p.ClientOf(p.Service.AddServer(t, "--request-timeout", "1500ms"))
	p.provider.Fault("hang", harness.Times(1), harness.After(5*time.Second))
	began := time.Now()
	a := hasty.Refund("K", "P0", 4000)
	want(t, a, "pending")
	if took := time.Since(began); took > 4500*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
	if r := harness.Read[harness.Receipt](t, a); a.Status != http.StatusAccepted || r.MoneyMoved != "unknown" ||
		r.NextAction != "wait_then_get" {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
	want(t, p.Refund("K", "P0", 4000), "operation_in_progress")
	eventually(t, "the outcome is recorded", func() bool { return p.read("K").State == "succeeded" })
	p.refund("K", "P0", "already_processed")
	p.executed("K")
	p.chain("K", "hold", "settle")
}

// eventually waits for what comes by time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
