package api

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/operations"
	"refundd/provider/simulator"
)

// canary is in every text that the simulated provider says of its own.
const canary = "canary-5d1f"

// provided is the API over an engine whose provider is a simulator, reached through a real connection.
type provided struct {
	*service
	simulator string // its URL
}

// startProvided serves a tenant with a simulated provider. Its listing lags for no time that a test would notice.
func startProvided(t *testing.T, of operations.Config, change ...func(*Config)) *provided {
	t.Helper()
	s, err := simulator.New(simulator.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	client, err := simulator.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	of.Providers = map[string]operations.ProviderSetup{
		"simulator": {Provider: client, KeyRetention: simulator.KeyRetention, MaxKeyLength: simulator.MaxKeyLength},
	}
	if of.ListingLag == 0 {
		of.ListingLag = time.Millisecond
	}
	if of.BreakerFailures == 0 {
		of.BreakerFailures = 1000
	}
	p := &provided{startWith(t, of, change...), server.URL}
	t.Cleanup(func() { p.checkSecrets(t) })
	return p
}

// checkSecrets finds the provider's words in what outlives the answers: history, log and metrics.
func (p *provided) checkSecrets(t *testing.T) {
	t.Helper()
	p.log.mu.Lock()
	if strings.Contains(p.log.buf.String(), canary) {
		t.Errorf("the log has the provider's words:\n%s", p.log.buf.String())
	}
	p.log.mu.Unlock()
	families, err := p.metrics.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, family := range families {
		if strings.Contains(family.String(), canary) {
			t.Errorf("a metric has the provider's words: %s", family)
		}
	}
}

// do is the service's, and no answer has the provider's words.
func (p *provided) do(t *testing.T, method, path, body string, options ...option) answered {
	t.Helper()
	a := p.service.do(t, method, path, body, options...)
	if strings.Contains(a.raw, canary) {
		t.Errorf("%s %s: the answer has the provider's words: %s", method, path, a.raw)
	}
	return a
}

// paid makes an order of 10000 euro cents whose payment the provider has.
func (p *provided) paid(t *testing.T, orderID string) {
	t.Helper()
	a := p.do(t, "PUT", "/v1/orders/"+orderID,
		fmt.Sprintf(`{"currency":"EUR","captured_cents":10000,"provider":"simulator","provider_payment_ref":"pay-%s"}`,
			orderID))
	if a.status != http.StatusCreated {
		t.Fatalf("PUT order: %d %s", a.status, a.raw)
	}
}

// refund asks for 6000 of an order, as the operation named like it.
func (p *provided) refund(t *testing.T, orderID string, options ...option) answered {
	t.Helper()
	return p.do(t, "POST", "/v1/refunds", submission(orderID, orderID), options...)
}

func submission(operationID, orderID string) string {
	return fmt.Sprintf(`{"operation_id":%q,"order_id":%q,"amount_cents":6000}`, operationID, orderID)
}

func (p *provided) reconcile(t *testing.T, operationID string) answered {
	t.Helper()
	return p.do(t, "POST", "/v1/refunds/"+operationID+"/reconcile", "")
}

func (p *provided) resolve(t *testing.T, operationID, body string) answered {
	t.Helper()
	return p.do(t, "POST", "/v1/refunds/"+operationID+"/resolve", body)
}

// control speaks to the simulator's control routes.
func (p *provided) control(t *testing.T, method, path, body string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.simulator+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s (%v)", method, path, answer.StatusCode, raw, err)
	}
	return raw
}

// fault makes the simulator misbehave, and say the canary where it says anything.
func (p *provided) fault(t *testing.T, body string) {
	t.Helper()
	p.control(t, "POST", "/_faults", strings.TrimSuffix(body, "}")+`,"message":"`+canary+`"}`)
}

func (p *provided) behave(t *testing.T) {
	t.Helper()
	p.control(t, "DELETE", "/_faults", "")
}

// executed is how many refunds the provider made of an order's payment.
func (p *provided) executed(t *testing.T, orderID string) int {
	t.Helper()
	var ledger struct {
		Refunds []struct {
			PaymentRef string `json:"payment_ref"`
		} `json:"refunds"`
	}
	if err := json.Unmarshal(p.control(t, "GET", "/_ledger", ""), &ledger); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range ledger.Refunds {
		if r.PaymentRef == "pay-"+orderID {
			n++
		}
	}
	return n
}

// later moves time for an operation: whoever had its lease is gone for long.
func (p *provided) later(t *testing.T, operationID string) {
	t.Helper()
	p.update(t, operationID, `lease_until = '-infinity'`)
}

func (p *provided) update(t *testing.T, operationID, set string) {
	t.Helper()
	tag, err := p.db.Owner.Exec(t.Context(), `UPDATE refund_operations SET `+set+` WHERE operation_id = $1`,
		operationID)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%s: %v %v", set, tag, err)
	}
}

// lost leaves an operation in needs_attention: the provider did what the faults say, its answer was lost and its books
// hid it, and by now it may have forgotten the key.
func (p *provided) lost(t *testing.T, orderID string, faults ...string) {
	t.Helper()
	p.paid(t, orderID)
	for _, f := range faults {
		p.fault(t, f)
	}
	p.fault(t, `{"mode":"lookup_lag","delay_ms":60000}`)
	wantAnswer(t, p.refund(t, orderID), 202, "state=reserved")
	p.update(t, orderID, `provider_key_expires_at = now() - interval '1 hour'`)
	time.Sleep(5 * time.Millisecond) // the listing's lag
	wantAnswer(t, p.reconcile(t, orderID), 200, "state=needs_attention", "failure_code=provider_key_expired",
		"money_moved=unknown")
	p.behave(t)
}

// wantAnswer wants a status, and members as name=value, where null is null and an empty value is an absent member.
func wantAnswer(t *testing.T, a answered, status int, members ...string) {
	t.Helper()
	if a.status != status {
		t.Errorf("got %d %s, want %d", a.status, a.raw, status)
		return
	}
	for _, member := range members {
		name, want, _ := strings.Cut(member, "=")
		got := ""
		if v, present := a.body[name]; present {
			got = strings.Replace(fmt.Sprint(v), "<nil>", "null", 1)
		}
		if got != want {
			t.Errorf("got %s %q, want %q: %d %s", name, got, want, a.status, a.raw)
		}
	}
}

// wantOrder wants what of an order's 10000 is refunded, held ones included, and held.
func (p *provided) wantOrder(t *testing.T, orderID string, refunded, held int) {
	t.Helper()
	wantAnswer(t, p.do(t, "GET", "/v1/orders/"+orderID, ""), 200, fmt.Sprint("refunded_cents=", refunded),
		fmt.Sprint("held_cents=", held), fmt.Sprint("refundable_cents=", 10000-refunded), "provider=simulator",
		"provider_payment_ref=pay-"+orderID)
}

// eventually waits for what comes by time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
