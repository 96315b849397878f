package api

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
)

// wantPending wants the documented 202, of the first call or of a later one.
func wantPending(t *testing.T, a answered, operationID, state string, replayed bool) {
	t.Helper()
	wantAnswer(t, a, 202, "status=pending", "state="+state, "money_moved=unknown", "next_action=wait_then_get",
		"failure_code=null", "settled_at=null", "replayed="+strconv.FormatBool(replayed))
	mark := map[bool]string{true: "true", false: ""}[replayed]
	if a.header.Get("Location") != "/v1/refunds/"+operationID || a.header.Get("Idempotent-Replayed") != mark ||
		a.header.Get("Retry-After") == "" || a.body["retry_after_seconds"] != seconds(t, a) {
		t.Errorf("headers %v of %s", a.header, a.raw)
	}
}

// seconds is Retry-After.
func seconds(t *testing.T, a answered) float64 {
	t.Helper()
	n, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || n < 1 {
		t.Errorf("Retry-After %q: %s", a.header.Get("Retry-After"), a.raw)
	}
	return float64(n)
}

func TestProviderRefund_Succeeds_IsProcessedThenReplayed(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	first := p.refund(t, "A")
	wantAnswer(t, first, 201, "status=processed", "replayed=false", "state=succeeded", "money_moved=yes",
		"provider=simulator",
		"next_action=none", "retry_after_seconds=null", "failure_code=null")
	if first.text("provider_refund_id") == "" || first.text("settled_at") < first.text("created_at") {
		t.Errorf("receipt: %s", first.raw)
	}
	again := p.refund(t, "A")
	wantAnswer(t, again, 200, "status=already_processed", "replayed=true")
	read := p.do(t, "GET", "/v1/refunds/A", "")
	for _, name := range []string{"status", "replayed"} {
		delete(first.body, name)
		delete(again.body, name)
	}
	if d := cmp.Diff(first.body, again.body) + cmp.Diff(first.body, read.body); d != "" {
		t.Errorf("first, replay and refund differ:\n%s", d)
	}
	p.wantOrder(t, "A", 6000, 0)
	if n := p.executed(t, "A"); n != 1 {
		t.Errorf("the provider executed %d", n)
	}
}

func TestProviderRefund_AnswerIsLost_StaysPendingUntilARetryFindsIt(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.fault(t, `{"mode":"drop_after","count":1}`)
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	wantPending(t, p.refund(t, "A"), "A", "reserved", true) // in a hurry: nobody asks again within a second
	wantAnswer(t, p.do(t, "GET", "/v1/refunds/A", ""), 200, "state=reserved", "money_moved=unknown",
		"provider_refund_id=null")
	p.wantOrder(t, "A", 6000, 6000)
	wantAnswer(t, p.do(t, "POST", "/v1/refunds", submission("B", "A")), 422, "code=amount_exceeds_refundable",
		"money_moved=no")

	p.later(t, "A")
	found := p.refund(t, "A")
	wantAnswer(t, found, 201, "status=processed", "replayed=false", "state=succeeded", "money_moved=yes")
	if found.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers: %v", found.header)
	}
	wantAnswer(t, p.refund(t, "A"), 200, "status=already_processed", "replayed=true")
	p.wantOrder(t, "A", 6000, 0)
	if n := p.executed(t, "A"); n != 1 {
		t.Errorf("the provider executed %d", n)
	}
}

func TestProviderRefund_NotSent_IsPendingAndSentLater(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.fault(t, `{"mode":"refuse","count":1}`)
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	p.later(t, "A")
	wantAnswer(t, p.refund(t, "A"), 201, "status=processed", "replayed=false")
	if n := p.executed(t, "A"); n != 1 {
		t.Errorf("the provider executed %d", n)
	}
}

func TestProviderRefund_Declined_IsTheSameDeclineEverAfter(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.fault(t, `{"mode":"decline","code":"insufficient_funds","count":1}`)
	first := p.refund(t, "A")
	wantAnswer(t, first, 422, "code=refund_declined", "replayed=false", "failure_code=insufficient_funds",
		"money_moved=no",
		"isRetryable=false", "next_action=request_authorization", "operation_id=A")
	again := p.refund(t, "A")
	wantAnswer(t, again, 422, "code=refund_declined", "replayed=true")
	if first.header.Get("Idempotent-Replayed") != "" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("headers: %v and %v", first.header, again.header)
	}
	for _, a := range []answered{first, again} {
		delete(a.body, "replayed")
		delete(a.body, "diagnostic_ref")
	}
	if d := cmp.Diff(first.body, again.body); d != "" {
		t.Errorf("declines differ:\n%s", d)
	}
	read := p.do(t, "GET", "/v1/refunds/A", "")
	wantAnswer(t, read, 200, "state=failed", "money_moved=no", "failure_code=insufficient_funds",
		"provider_refund_id=null",
		"created_at="+first.text("created_at"), "settled_at="+first.text("settled_at"))
	p.wantOrder(t, "A", 0, 0)
	wantAnswer(t, p.do(t, "POST", "/v1/refunds", submission("B", "A")), 201, "status=processed")
}

func TestProviderRefund_Pending_WaitsForTheFinalWord(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.fault(t, `{"mode":"pending","delay_ms":2500,"count":1}`)
	first := p.refund(t, "A")
	wantPending(t, first, "A", "pending", false)
	if first.text("provider_refund_id") == "" {
		t.Errorf("receipt: %s", first.raw)
	}
	wantPending(t, p.refund(t, "A"), "A", "pending", true)
	wantAnswer(t, p.reconcile(t, "A"), 200, "state=pending", "money_moved=unknown")
	list := p.do(t, "GET", "/v1/refunds?state=pending", "")
	if data, _ := list.body["data"].([]any); len(data) != 1 {
		t.Errorf("list: %s", list.raw)
	}
	p.wantOrder(t, "A", 6000, 6000)
	eventually(t, "it succeeds", func() bool { return p.reconcile(t, "A").text("state") == "succeeded" })
	wantAnswer(t, p.refund(t, "A"), 200, "status=already_processed",
		"provider_refund_id="+first.text("provider_refund_id"))
	p.wantOrder(t, "A", 6000, 0)
}

func TestProviderRefund_FailsLater_IsALateFailure(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.fault(t, `{"mode":"fail_later","delay_ms":400,"count":1}`)
	first := p.refund(t, "A")
	wantAnswer(t, first, 201, "status=processed", "state=succeeded", "money_moved=yes")
	eventually(t, "it fails", func() bool { return p.reconcile(t, "A").text("state") == "failed" })
	late := p.refund(t, "A")
	wantAnswer(t, late, 422, "code=refund_declined", "failure_code=late_failure", "money_moved=no", "replayed=true",
		"created_at="+first.text("created_at"))
	if late.header.Get("Idempotent-Replayed") != "true" || late.text("settled_at") <= first.text("settled_at") {
		t.Errorf("late failure: %v %s", late.header, late.raw)
	}
	p.wantOrder(t, "A", 0, 0)
	wantAnswer(t, p.do(t, "POST", "/v1/refunds", submission("B", "A")), 201, "status=processed")
}

func TestProviderRefund_DeadlineOfTheCallerIsShorter_AnswersInTime(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{ProviderTimeout: 20 * time.Second},
		func(c *Config) { c.RequestTimeout = time.Second })
	p.paid(t, "A")
	p.fault(t, `{"mode":"hang","delay_ms":4500,"count":1}`)
	began := time.Now()
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("answered after %v", took)
	}
	for path, body := range map[string]string{
		"/v1/refunds": submission("A", "A"), "/v1/refunds/A/reconcile": "{}",
	} {
		busy := p.do(t, "POST", path, body)
		wantAnswer(t, busy, 409, "code=operation_in_progress", "money_moved=unknown", "isRetryable=true",
			"operation_id=A",
			"next_action=retry_same_operation")
		if busy.body["retry_after_seconds"] != seconds(t, busy) {
			t.Errorf("%s: %v %s", path, busy.header, busy.raw)
		}
	}
	eventually(t, "the call that went on is recorded", func() bool {
		return p.do(t, "GET", "/v1/refunds/A", "").text("state") == "succeeded"
	})
	wantAnswer(t, p.refund(t, "A"), 200, "status=already_processed", "replayed=true")
}

func TestProviderRefund_ProviderHangs_IsUnknownAndNeverSentTwice(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{ProviderTimeout: 300 * time.Millisecond})
	p.paid(t, "A")
	p.fault(t, `{"mode":"hang","delay_ms":3000,"count":1}`)
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	// the provider still works on the key
	wantAnswer(t, p.reconcile(t, "A"), 200, "state=reserved", "money_moved=unknown")
	eventually(t, "it is found", func() bool { return p.reconcile(t, "A").text("state") == "succeeded" })
	if n := p.executed(t, "A"); n != 1 {
		t.Errorf("the provider executed %d", n)
	}
}

func TestProviderRefund_BreakerIsOpen_ReservesNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]string{
		"misconfigured": `{"mode":"error_before","status":401}`,
		"failing":       `{"mode":"error_before"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvided(t, operations.Config{BreakerFailures: map[bool]int{true: 1000,
				false: 1}[name == "misconfigured"]})
			p.paid(t, "A")
			p.paid(t, "B")
			p.fault(t, fault)
			wantPending(t, p.refund(t, "A"), "A", "reserved", false)
			refused := p.refund(t, "B")
			wantAnswer(t, refused, 503, "code=provider_unavailable", "money_moved=no", "isRetryable=true",
				"operation_id=B",
				"next_action=retry_same_operation")
			if refused.body["retry_after_seconds"] != seconds(t, refused) {
				t.Errorf("refused: %v %s", refused.header, refused.raw)
			}
			wantAnswer(t, p.do(t, "GET", "/v1/refunds/B", ""), 404, "code=refund_not_found")
			p.wantOrder(t, "B", 0, 0)
			p.later(t, "A")
			wantPending(t, p.refund(t, "A"), "A", "reserved", true)
			wantAnswer(t, p.reconcile(t, "A"), 200, "state=reserved")
		})
	}
}

func TestProviderRefund_ProviderIsNotConfigured_ReservesNothing(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.do(t, "PUT", "/v1/orders/A",
		`{"currency":"EUR","captured_cents":10000,"provider":"stripe","provider_payment_ref":"pi_1"}`)
	wantAnswer(t, p.refund(t, "A"), 503, "code=provider_unavailable", "money_moved=no")
	wantAnswer(t, p.do(t, "GET", "/v1/orders/A", ""), 200, "held_cents=0", "refunded_cents=0")
}

func TestProviderRefund_WaitsForAPerson_SaysSo(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.lost(t, "A", `{"mode":"error_before","count":1}`)
	wantAnswer(t, p.refund(t, "A"), 422, "code=operation_needs_attention", "money_moved=unknown", "isRetryable=false",
		"next_action=escalate_to_human", "failure_code=provider_key_expired", "operation_id=A", "replayed=")
	wantAnswer(t, p.do(t, "GET", "/v1/refunds/A", ""), 200, "state=needs_attention",
		"failure_code=provider_key_expired", "settled_at=null")
	p.wantOrder(t, "A", 6000, 6000)
	if n := p.executed(t, "A"); n != 0 {
		t.Errorf("the provider executed %d", n)
	}
	wantAnswer(t, p.do(t, "POST", "/v1/refunds", `{"operation_id":"A","order_id":"A","amount_cents":5999}`), 422,
		"code=operation_id_conflict", "money_moved=no")
}

func TestProviderRefund_Authorized_CanNotBeRevokedWhileItsOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.do(t, "PUT", "/v1/authorizations/A", `{"case_id":"c","order_id":"A","amount_cents":6000,"approved_by":"ada"}`)
	p.fault(t, `{"mode":"drop_after","count":1}`)
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	wantAnswer(t, p.do(t, "POST", "/v1/authorizations/A/revoke", ""), 422, "code=already_executed",
		"money_moved=unknown")
	executed := p.do(t, "GET", "/v1/authorizations/A", "")
	if refund, _ := executed.body["refund"].(map[string]any); executed.status != http.StatusOK ||
		refund["state"] != "reserved" {
		t.Errorf("authorization: %s", executed.raw)
	}
}
