package simulator_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"refundd/provider/simulator"
)

func TestRefund_AnswersWhatWasExecuted(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	before := time.Now().Add(-time.Second)

	a := p.refund(t, "acme:op-1").want(t, http.StatusCreated)
	got := decode[entry](t, a.body)
	want := entry{
		Key: "acme:op-1", PaymentRef: "pay-1", AmountCents: 4999, Currency: "EUR",
		Metadata: map[string]string{"operation_id": "op-1"}, Status: "succeeded",
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(entry{}, "RefundID", "CreatedAt")); d != "" {
		t.Error(d)
	}
	if got.RefundID == "" || got.CreatedAt.Before(before) || a.header.Get("Request-Id") == "" {
		t.Errorf("got refund_id %q, created_at %v, Request-Id %q", got.RefundID, got.CreatedAt,
			a.header.Get("Request-Id"))
	}
	for _, path := range []string{"/refunds?payment_ref=pay-1", "/refunds?idempotency_key=acme:op-1",
		"/refunds?idempotency_key=acme:op-1&payment_ref=pay-1"} {
		if d := cmp.Diff([]entry{got}, p.list(t, path)); d != "" {
			t.Errorf("%s: %s", path, d)
		}
	}
	for _, path := range []string{"/refunds?payment_ref=pay-2", "/refunds?idempotency_key=acme:op-2",
		"/refunds?idempotency_key=acme:op-1&payment_ref=pay-2"} {
		if d := cmp.Diff([]entry{}, p.list(t, path)); d != "" {
			t.Errorf("%s: %s", path, d)
		}
	}
}

func TestLedger_HasItsDocumentedMembersAlone(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	if got := p.send(t.Context(), "GET", "/_ledger", "", "").body; got != `{"refunds":[]}` {
		t.Errorf("got %s", got)
	}
	p.refund(t, "k").want(t, http.StatusCreated)
	p.refund(t, "k").want(t, http.StatusCreated)
	a := p.send(t.Context(), "GET", "/_ledger", "", "")
	got := decode[struct {
		Refunds []map[string]any `json:"refunds"`
	}](t, a.body).Refunds[0]
	want := map[string]any{"idempotency_key": "k", "payment_ref": "pay-1", "amount_cents": 4999.0, "currency": "EUR",
		"status": "succeeded", "requests": 2.0, "refund_id": got["refund_id"], "created_at": got["created_at"]}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRefund_SameKeyAgain_ReplaysTheFirstAnswer(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	first := p.refund(t, "k").want(t, http.StatusCreated)
	for range 4 {
		again := p.refund(t, "k").want(t, http.StatusCreated)
		if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %s, replayed %q", again.body, again.header.Get("Idempotent-Replayed"))
		}
	}
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}
	if l := p.ledger(t); len(l) != 1 || l[0].Requests != 5 {
		t.Errorf("got %+v", l)
	}
}

func TestRefund_SameKeyOtherParameters_IsRefused(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.refund(t, "k").want(t, http.StatusCreated)
	for _, other := range []string{
		body("pay-2"),
		strings.Replace(body("pay-1"), "4999", "5000", 1),
		strings.Replace(body("pay-1"), "EUR", "JPY", 1),
		strings.Replace(body("pay-1"), "op-1", "op-2", 1),
	} {
		p.send(t.Context(), "POST", "/refunds", "k", other).refused(t, http.StatusUnprocessableEntity,
			"idempotency_key_reuse")
	}
	if l := p.ledger(t); len(l) != 1 {
		t.Errorf("got %+v", l)
	}
}

func TestRefund_TwoKeys_AreTwoRefunds(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.refund(t, "k1").want(t, http.StatusCreated)
	p.refund(t, "k2").want(t, http.StatusCreated)
	if l := p.lookup(t, "pay-1"); len(l) != 2 || l[0].Key != "k1" || l[1].Key != "k2" ||
		l[0].RefundID == l[1].RefundID {
		t.Errorf("got %+v", l)
	}
}

func TestRefund_MalformedRequests_AreRefusedAndNotCounted(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"drop_before"}`)
	good := body("pay-1")
	cases := []struct {
		name, key, body, code string
		status                int
	}{
		{"no key", "", good, "idempotency_key_required", 400},
		{"a key too long", strings.Repeat("k", 256), good, "idempotency_key_required", 400},
		{"a key beyond ASCII", "ké", good, "idempotency_key_required", 400},
		{"no JSON", "k", "refund", "malformed_request", 400},
		{"no body", "k", "", "malformed_request", 400},
		{"trailing data", "k", good + "{}", "malformed_request", 400},
		{"an unknown member", "k", strings.Replace(good, `"metadata"`, `"meta"`, 1), "malformed_request", 400},
		{"another case", "k", strings.Replace(good, "currency", "Currency", 1), "malformed_request", 400},
		{"a duplicate", "k", strings.Replace(good, "{", `{"amount_cents":1,`, 1), "malformed_request", 400},
		{"a fraction", "k", strings.Replace(good, "4999", "49.99", 1), "malformed_request", 400},
		{"an exponent", "k", strings.Replace(good, "4999", "1e2", 1), "malformed_request", 400},
		{"beyond int64", "k", strings.Replace(good, "4999", "9223372036854775808", 1), "malformed_request", 400},
		{"a string", "k", strings.Replace(good, "4999", `"4999"`, 1), "malformed_request", 400},
		{"zero", "k", strings.Replace(good, "4999", "0", 1), "invalid_request", 422},
		{"less than zero", "k", strings.Replace(good, "4999", "-1", 1), "invalid_request", 422},
		{"null", "k", "null", "invalid_request", 422},
		{"no payment", "k", body(""), "invalid_request", 422},
		{"no currency", "k", strings.Replace(good, "EUR", "", 1), "invalid_request", 422},
		{"too large", "k", body(strings.Repeat("p", 70<<10)), "request_too_large", 413},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p.send(t.Context(), "POST", "/refunds", c.key, c.body).refused(t, c.status, c.code)
		})
	}
	if got := p.send(t.Context(), "GET", "/_keys", "", "").body; got != `{"keys":[]}` {
		t.Errorf("got %s", got)
	}
	for _, path := range []string{"/refunds", "/refunds?payment_ref=", "/refunds?id=1",
		"/refunds?payment_ref=a&payment_ref=b"} {
		p.send(t.Context(), "GET", path, "", "").refused(t, http.StatusUnprocessableEntity, "invalid_request")
	}
}

func TestRefund_OneKeyFromManyClients_ExecutesOnce(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{Latency: 20 * time.Millisecond})
	const clients = 50
	answers := make([]answer, clients)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = p.refund(t, "k") })
	}
	all.Wait()
	executed, fresh := map[string]bool{}, 0
	for _, a := range answers {
		switch a.status {
		case http.StatusCreated:
			executed[a.body] = true
			if a.header.Get("Idempotent-Replayed") == "" {
				fresh++
			}
		default:
			a.refused(t, http.StatusConflict, "idempotency_key_in_use")
		}
	}
	l := p.ledger(t)
	if len(executed) != 1 || fresh != 1 || len(l) != 1 || l[0].Requests != clients {
		t.Errorf("%d answers, %d of them first ones; the ledger has %+v", len(executed), fresh, l)
	}
}

func TestLatency_IsTheTimeOfEveryAnswerOfRefunds(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{Latency: 80 * time.Millisecond})
	takes := func(f func()) time.Duration {
		began := time.Now()
		f()
		return time.Since(began)
	}
	if d := takes(func() { p.refund(t, "k").want(t, http.StatusCreated) }); d < 80*time.Millisecond {
		t.Errorf("a refund took %v", d)
	}
	if d := takes(func() { p.lookup(t, "pay-1") }); d < 80*time.Millisecond {
		t.Errorf("a lookup took %v", d)
	}
}

func TestKeys_ForgottenOne_ExecutesAgain(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.refund(t, "k1").want(t, http.StatusCreated)
	p.refund(t, "k2").want(t, http.StatusCreated)
	p.send(t.Context(), "POST", "/_keys/expire", "", `{"idempotency_key":"k1"}`).want(t, http.StatusOK)
	p.refund(t, "k1").want(t, http.StatusCreated)
	p.refund(t, "k2").want(t, http.StatusCreated)
	if l := p.ledger(t); len(l) != 3 || l[2].Key != "k1" || l[0].RefundID == l[2].RefundID || l[2].Requests != 2 {
		t.Fatalf("got %+v", l)
	}
	p.send(t.Context(), "POST", "/_keys/expire", "", "").want(t, http.StatusOK)
	if l := p.list(t, "/refunds?idempotency_key=k1"); len(l) != 2 {
		t.Errorf("executed refunds must stay, got %+v", l)
	}
	p.refund(t, "k2").want(t, http.StatusCreated)
	if l := p.ledger(t); len(l) != 4 || l[3].Key != "k2" {
		t.Errorf("got %+v", l)
	}
}

func TestKeys_AreForgottenAfterTheirRetention(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{KeyRetention: 50 * time.Millisecond})
	p.refund(t, "k").want(t, http.StatusCreated)
	eventually(t, "the key executes again", func() bool {
		p.refund(t, "k").want(t, http.StatusCreated)
		return len(p.ledger(t)) == 2
	})
}

func TestKeys_ListsWhatExecutedNothing(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"error_before","count":2}`)
	p.refund(t, "k1").want(t, http.StatusInternalServerError)
	p.refund(t, "k1").want(t, http.StatusInternalServerError)
	p.fault(t, `{"mode":"decline","count":1}`)
	p.refund(t, "k2").want(t, http.StatusPaymentRequired)
	p.refund(t, "k3").want(t, http.StatusCreated)
	want := `{"keys":[{"idempotency_key":"k1","requests":2,"refunds":0,"busy":false,"stored":null},` +
		`{"idempotency_key":"k2","requests":1,"refunds":0,"busy":false,"stored":"decline"},` +
		`{"idempotency_key":"k3","requests":1,"refunds":1,"busy":false,"stored":"refund"}]}`
	if d := cmp.Diff(want, p.send(t.Context(), "GET", "/_keys", "", "").body); d != "" {
		t.Error(d)
	}
}
