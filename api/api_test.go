package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRefunds_MoveOnceAndReplay(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A-1001")
	const body = `{"operation_id":"op-1","order_id":"A-1001","amount_cents":4999,"reason":"broken","metadata":{"b":"2","a":"1"}}`

	first := s.do(t, "POST", "/v1/refunds", body)
	if first.status != http.StatusCreated || first.text("status") != "processed" || first.body["replayed"] != false ||
		first.text("provider") != "ledger" || first.text("money_moved") != "yes" ||
		first.text("next_action") != "none" {
		t.Fatalf("first: %d %s", first.status, first.raw)
	}
	again := s.do(t, "POST", "/v1/refunds", `{"amount_cents":4999, "order_id":"A-1001","reason":"other"}`,
		header("Idempotency-Key", `"op-1"`))
	if again.status != http.StatusOK || again.header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("again: %d %s", again.status, again.raw)
	}
	for _, a := range []answered{first, again} {
		delete(a.body, "status")
		delete(a.body, "replayed")
	}
	if d := cmp.Diff(first.body, again.body); d != "" {
		t.Errorf("receipts differ:\n%s", d)
	}
	other := s.do(t, "POST", "/v1/refunds", `{"operation_id":"op-1","order_id":"A-1001","amount_cents":5000}`)
	if other.text("code") != "operation_id_conflict" || other.text("money_moved") != "no" ||
		other.text("operation_id") != "op-1" {
		t.Errorf("other amount: %d %s", other.status, other.raw)
	}
	tooMuch := s.do(t, "POST", "/v1/refunds", `{"operation_id":"op-2","order_id":"A-1001","amount_cents":5002}`)
	if tooMuch.text("code") != "amount_exceeds_refundable" || tooMuch.text("money_moved") != "no" ||
		tooMuch.body["refundable_cents"] != 5001.0 {
		t.Errorf("more than the remainder: %d %s", tooMuch.status, tooMuch.raw)
	}
	order := s.do(t, "GET", "/v1/orders/A-1001", "")
	if order.body["refunded_cents"] != 4999.0 || order.body["refundable_cents"] != 5001.0 {
		t.Errorf("order: %s", order.raw)
	}
	events := s.do(t, "GET", "/v1/refunds/op-1/events", "")
	if data, _ := events.body["data"].([]any); len(data) != 1 {
		t.Errorf("timeline: %s", events.raw)
	}
	list := s.do(t, "GET", "/v1/refunds?order_id=A-1001&state=succeeded&limit=1", "")
	if data, _ := list.body["data"].([]any); len(data) != 1 || list.body["next_cursor"] != nil {
		t.Errorf("list: %s", list.raw)
	}
	one := s.do(t, "GET", "/v1/refunds/op-1", "")
	if one.text("refund_id") != first.text("refund_id") ||
		!strings.HasPrefix(one.raw, `{"operation_id":"op-1","refund_id":`) {
		t.Errorf("get: %s", one.raw)
	}
}

func TestAuthorizations_StandAsApprovedExecutedOrRevoked(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A-1")
	const approval = `{"case_id":"c 1","order_id":"A-1","amount_cents":100,"approved_by":"ada","expires_at":"2999-01-31T10:00:00+02:00"}`
	for i, want := range []int{201, 200} {
		a := s.do(t, "PUT", "/v1/authorizations/op-1", approval)
		if a.status != want || a.text("state") != "open" || a.text("expires_at") != "2999-01-31T08:00:00.000000Z" {
			t.Fatalf("PUT %d: %d %s", i, a.status, a.raw)
		}
	}
	if a := s.do(t, "PUT", "/v1/authorizations/op-1",
		strings.Replace(approval, "100", "101", 1)); a.text("code") != "operation_id_conflict" {
		t.Errorf("another approval: %d %s", a.status, a.raw)
	}
	if a := s.do(t, "PUT", "/v1/authorizations/op-2",
		strings.Replace(approval, "A-1", "A-2", 1)); a.text("code") != "order_not_found" ||
		a.text("money_moved") != "no" {
		t.Errorf("unknown order: %d %s", a.status, a.raw)
	}
	s.do(t, "PUT", "/v1/authorizations/op-3", approval)
	for range 2 {
		if a := s.do(t, "POST", "/v1/authorizations/op-3/revoke", ""); a.status != 200 || a.text("state") != "revoked" {
			t.Errorf("revoke: %d %s", a.status, a.raw)
		}
	}
	if a := s.do(t, "POST", "/v1/refunds",
		`{"operation_id":"op-3","order_id":"A-1","amount_cents":100}`); a.text("code") != "authorization_revoked" ||
		a.text("money_moved") != "no" {
		t.Errorf("refund of a revoked one: %d %s", a.status, a.raw)
	}
	s.do(t, "POST", "/v1/refunds", `{"operation_id":"op-1","order_id":"A-1","amount_cents":100}`)
	late := s.do(t, "POST", "/v1/authorizations/op-1/revoke", `{"reason":"mistake","revoked_by":"ada"}`)
	if late.text("code") != "already_executed" || late.text("money_moved") != "yes" {
		t.Errorf("revoke after execution: %d %s", late.status, late.raw)
	}
	found := s.do(t, "GET", "/v1/authorizations?case_id=c%201", "")
	if found.body["count"] != 2.0 {
		t.Errorf("by case: %s", found.raw)
	}
	executed := s.do(t, "GET", "/v1/authorizations/op-1", "")
	if refund, _ := executed.body["refund"].(map[string]any); refund["state"] != "succeeded" {
		t.Errorf("executed: %s", executed.raw)
	}
	if a := s.do(t, "GET", "/v1/authorizations/op-9", ""); a.text("code") != "authorization_not_found" ||
		a.text("money_moved") != "no" {
		t.Errorf("unknown: %d %s", a.status, a.raw)
	}
}

func TestOrders_RegisterKeepAndRefuse(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		body string
		want int
		code string
	}{
		{`{"currency":"EUR"}`, 422, "invalid_request"},
		{`{"currency":"EUR","captured_cents":100,"provider":"stripe"}`, 422, "invalid_request"},
		{`{"currency":"EUR","captured_cents":100,"provider_payment_ref":"x"}`, 422, "invalid_request"},
		{`{"currency":"EUR","captured_cents":100,"provider":"stripe","provider_payment_ref":"pi_1","provider_account":"1"}`, 422, "invalid_request"},
		{`{"currency":"EUR","captured_cents":100,"provider_account":"acct_1"}`, 422, "invalid_request"},
		{`{"currency":"EUR","captured_cents":100,"customer":{"email":"Ada@Example.com"}}`, 201, ""},
		{`{}`, 200, ""},
		{`{"captured_cents":200,"customer":null,"currency":null}`, 200, ""},
		{`{"captured_cents":199}`, 422, "order_immutable"},
		{`{"currency":"USD"}`, 422, "order_immutable"},
	} {
		a := s.do(t, "PUT", "/v1/orders/A-1", c.body)
		if a.status != c.want || a.text("code") != c.code {
			t.Errorf("%s: %d %s", c.body, a.status, a.raw)
		}
		if a.status >= 400 && a.text("money_moved") != "no" {
			t.Errorf("%s: money_moved %s", c.body, a.text("money_moved"))
		}
	}
	if a := s.do(t, "PUT", "/v1/orders/B-1", `{}`); !cmp.Equal(a.errorsOf(),
		[]string{"/currency required", "/captured_cents required"}) {
		t.Errorf("incomplete: %s", a.raw)
	}
	if a := s.do(t, "GET", "/v1/orders?customer_email=ada@example.COM", ""); a.body["count"] != 1.0 {
		t.Errorf("by e-mail: %s", a.raw)
	}
	if a := s.do(t, "GET", "/v1/orders/none", ""); a.text("code") != "order_not_found" ||
		a.text("money_moved") != "no" {
		t.Errorf("unknown: %s", a.raw)
	}
}
