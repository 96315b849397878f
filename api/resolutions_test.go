package api

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
)

func TestReconcile_WithoutAProvider_AnswersTheRefundAsItIs(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A")
	s.do(t, "POST", "/v1/refunds", `{"operation_id":"k","order_id":"A","amount_cents":1}`)
	read := s.do(t, "GET", "/v1/refunds/k", "")
	for _, body := range []string{"", "{}", " {\n} "} {
		a := s.do(t, "POST", "/v1/refunds/k/reconcile", body)
		if a.status != http.StatusOK || a.raw != read.raw {
			t.Errorf("%q: %d %s", body, a.status, a.raw)
		}
	}
	for body, code := range map[string]string{
		`{"now":true}`: "malformed_request", "null": "malformed_request", "[]": "malformed_request", "{": "malformed_request",
		strings.Repeat(" ", maxBody+1): "request_too_large",
	} {
		wantAnswer(t, s.do(t, "POST", "/v1/refunds/k/reconcile", body), kinds[code].status, "code="+code,
			"money_moved=unknown", "operation_id=k")
	}
	a := s.do(t, "POST", "/v1/refunds/k/reconcile", "{}", header("Content-Type", "text/plain"))
	wantAnswer(t, a, 415, "code=unsupported_media_type", "money_moved=unknown")
	wantAnswer(t, s.do(t, "POST", "/v1/refunds/none/reconcile", ""), 404, "code=refund_not_found",
		"money_moved=unknown")
	resolution := `{"outcome":"succeeded","evidence":"seen"}`
	wantAnswer(t, s.do(t, "POST", "/v1/refunds/k/resolve", resolution), 422, "code=resolution_conflict",
		"money_moved=unknown")
	wantAnswer(t, s.do(t, "POST", "/v1/refunds/none/resolve", resolution), 404, "code=refund_not_found",
		"money_moved=unknown")
}

func TestReconcile_ProviderCanNotBeReached_AnswersWhatIsKnown(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{ProviderTimeout: 300 * time.Millisecond,
		BreakerOpen: 100 * time.Millisecond})
	p.paid(t, "A")
	p.fault(t, `{"mode":"drop_after","count":1}`)
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	for _, fault := range []string{
		`{"mode":"lookup_down"}`, `{"mode":"lookup_down","status":401}`, `{"mode":"lookup_down","status":429}`,
		`{"mode":"lookup_down","delay_ms":1000}`,
	} {
		p.fault(t, fault)
		wantAnswer(t, p.reconcile(t, "A"), 200, "state=reserved", "money_moved=unknown")
	}
	p.wantOrder(t, "A", 6000, 6000)
	p.behave(t)
	eventually(t, "it is found", func() bool { return p.reconcile(t, "A").text("state") == "succeeded" })
	wantAnswer(t, p.reconcile(t, "A"), 200, "state=succeeded", "money_moved=yes")
}

func TestReconcile_WhileLeased_IsInProgress(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	wantAnswer(t, p.refund(t, "A"), 201)
	p.update(t, "A", `lease_until = now() + interval '1 hour'`)
	a := p.reconcile(t, "A")
	wantAnswer(t, a, 409, "code=operation_in_progress", "money_moved=unknown", "operation_id=A")
	if a.body["retry_after_seconds"] != seconds(t, a) {
		t.Errorf("%v %s", a.header, a.raw)
	}
}

func TestReconcile_DeadlineOfTheCallerIsShorter_SaysThatNothingIsKnown(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{}, func(c *Config) { c.RequestTimeout = time.Second })
	p.paid(t, "A")
	p.fault(t, `{"mode":"drop_after","count":1}`)
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	p.fault(t, `{"mode":"lookup_down","delay_ms":3000,"count":1}`)
	wantAnswer(t, p.reconcile(t, "A"), 504, "code=deadline_exceeded", "money_moved=unknown",
		"next_action=wait_then_get", "operation_id=A")
	wantAnswer(t, p.reconcile(t, "A"), 409, "code=operation_in_progress") // the lookup goes on
	eventually(t, "the lease is free", func() bool { return p.reconcile(t, "A").text("state") == "succeeded" })
}

func TestResolve_NamesEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{}`, []string{"/outcome required", "/evidence required"}},
		{`{"outcome":null,"evidence":null,"override":null}`, []string{"/outcome required", "/evidence required"}},
		{`{"outcome":"pending","evidence":"","provider_refund_id":"","resolved_by":""}`,
			[]string{"/outcome invalid", "/evidence invalid", "/provider_refund_id invalid", "/resolved_by invalid"}},
		{`{"outcome":"Failed","evidence":"` + strings.Repeat("é", 4001) + `","provider_refund_id":"` +
			strings.Repeat("r", 256) + `","resolved_by":"` + strings.Repeat("b", 256) + `"}`,
			[]string{"/outcome invalid", "/evidence too_long", "/provider_refund_id too_long",
				"/resolved_by too_long"}},
	} {
		a := s.do(t, "POST", "/v1/refunds/k/resolve", c.body)
		if d := cmp.Diff(c.want, a.errorsOf()); d != "" {
			t.Errorf("%.80s: %d %s\n%s", c.body, a.status, a.raw, d)
		}
		wantAnswer(t, a, 422, "code=invalid_request", "money_moved=unknown", "operation_id=k")
	}
	for _, body := range []string{
		`{"outcome":"failed","evidence":"e","override":"true"}`, `{"outcome":"failed","evidence":"e","override":1}`,
		`{"outcome":true,"evidence":"e"}`, `{"outcome":"failed","evidence":"e","actor":"ada"}`, `{"outcome":"failed","Evidence":"e"}`,
		`{"outcome":"failed","evidence":"e","evidence":"e"}`, `{"outcome":"failed","evidence":"\u0000"}`,
		`{"outcome":"failed","evidence":"e"}x`, ``, `null`,
	} {
		code := "malformed_request"
		if body == "" {
			code = "unsupported_media_type"
		}
		wantAnswer(t, s.do(t, "POST", "/v1/refunds/k/resolve", body), kinds[code].status, "code="+code,
			"money_moved=unknown")
	}
	longest := `{"outcome":"failed","evidence":"` + strings.Repeat("é", 4000) + `"}`
	wantAnswer(t, s.do(t, "POST", "/v1/refunds/k/resolve", longest), 404, "code=refund_not_found")
}

func TestResolve_Failed_GivesTheMoneyBackAndAnswersAlikeAgain(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.lost(t, "A", `{"mode":"error_before","count":1}`)
	const failed = `{"outcome":"failed","evidence":"support says none","resolved_by":"ada"}`
	first := p.resolve(t, "A", failed)
	wantAnswer(t, first, 200, "state=failed", "money_moved=no", "failure_code=resolved_failed")
	p.wantOrder(t, "A", 0, 0)
	for _, body := range []string{failed, `{"outcome":"failed","evidence":"another one","override":true}`} {
		if again := p.resolve(t, "A", body); again.status != 200 || again.raw != first.raw {
			t.Errorf("again: %d %s", again.status, again.raw)
		}
	}
	wantAnswer(t, p.resolve(t, "A", `{"outcome":"succeeded","evidence":"no"}`), 422, "code=resolution_conflict",
		"money_moved=unknown",
		"isRetryable=false", "next_action=escalate_to_human", "operation_id=A")
	wantAnswer(t, p.refund(t, "A"), 422, "code=refund_declined", "failure_code=resolved_failed", "replayed=true",
		"money_moved=no")
}

func TestResolve_Succeeded_KeepsATypedNameAsAClaim(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.lost(t, "A", `{"mode":"error_before","count":1}`)
	wantAnswer(t, p.resolve(t, "A",
		`{"outcome":"succeeded","evidence":"on the payout report","provider_refund_id":"re_by_hand"}`), 200,
		"state=succeeded", "money_moved=yes", "failure_code=null", "provider_refund_id=null")
	p.wantOrder(t, "A", 6000, 0)
	wantAnswer(t, p.refund(t, "A"), 200, "status=already_processed", "provider_refund_id=null")
}

func TestResolve_SameDecisionAtOnce_IsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.lost(t, "A", `{"mode":"error_before","count":1}`)
	answers := make([]answered, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = p.resolve(t, "A", `{"outcome":"failed","evidence":"none"}`) })
	}
	all.Wait()
	for _, a := range answers {
		if a.status != 200 && a.status != 409 {
			t.Errorf("got %d %s", a.status, a.raw)
		}
	}
	p.wantOrder(t, "A", 0, 0)
}

func TestResolve_ProviderDisagrees_ChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  []string
		outcome string
		then    string // once it is looked at
	}{
		"failed, but paid": {[]string{`{"mode":"drop_after","count":1}`}, "failed", "succeeded"},
		"succeeded, but not": {[]string{`{"mode":"drop_after","count":1}`, `{"mode":"fail_later","count":1}`},
			"succeeded", "failed"},
		"failed, but accepted": {[]string{`{"mode":"drop_after","count":1}`,
			`{"mode":"pending","delay_ms":60000,"count":1}`}, "failed", "needs_attention"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvided(t, operations.Config{})
			p.lost(t, "A", c.faults...)
			for _, override := range []string{"false", "true"} {
				wantAnswer(t, p.resolve(t, "A", `{"outcome":"`+c.outcome+`","evidence":"e","override":`+override+`}`),
					422,
					"code=provider_disagrees", "money_moved=unknown", "isRetryable=false", "next_action=escalate_to_human", "operation_id=A")
			}
			wantAnswer(t, p.do(t, "GET", "/v1/refunds/A", ""), 200, "state=needs_attention")
			p.wantOrder(t, "A", 6000, 6000)
			wantAnswer(t, p.do(t, "POST", "/v1/refunds/A/reconcile", ""), 200, "state="+c.then)
		})
	}
}

func TestResolve_ProviderCanNotBeReached_TakesAnOverride(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.lost(t, "A", `{"mode":"error_before","count":1}`)
	p.fault(t, `{"mode":"lookup_down"}`)
	refused := p.resolve(t, "A", `{"outcome":"failed","evidence":"e"}`)
	wantAnswer(t, refused, 503, "code=provider_unavailable", "money_moved=unknown", "isRetryable=true",
		"operation_id=A",
		"next_action=retry_same_operation")
	if refused.body["retry_after_seconds"] != seconds(t, refused) {
		t.Errorf("%v %s", refused.header, refused.raw)
	}
	wantAnswer(t, p.do(t, "GET", "/v1/refunds/A", ""), 200, "state=needs_attention")
	wantAnswer(t, p.resolve(t, "A", `{"outcome":"failed","evidence":"e","override":true}`), 200, "state=failed")
}

func TestResolve_SentTooRecently_Waits(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{ListingLag: time.Hour})
	p.paid(t, "A")
	p.fault(t, `{"mode":"error_before","count":1}`)
	wantPending(t, p.refund(t, "A"), "A", "reserved", false)
	p.update(t, "A", `created_at = now() - interval '80 hours'`)
	wantAnswer(t, p.reconcile(t, "A"), 200, "state=needs_attention", "failure_code=outcome_overdue")
	wait := p.resolve(t, "A", `{"outcome":"failed","evidence":"e"}`)
	wantAnswer(t, wait, 409, "code=operation_in_progress", "money_moved=unknown", "isRetryable=true", "operation_id=A")
	if s := seconds(t, wait); s < 3000 || s > 3601 || wait.body["retry_after_seconds"] != s {
		t.Errorf("%v %s", wait.header, wait.raw)
	}
	wantAnswer(t, p.resolve(t, "A", `{"outcome":"failed","evidence":"e","override":true}`), 200, "state=failed")
}

func TestResolve_WhileLeased_IsInProgress(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.lost(t, "A", `{"mode":"error_before","count":1}`)
	p.update(t, "A", `lease_until = now() + interval '1 hour'`)
	wantAnswer(t, p.resolve(t, "A", `{"outcome":"failed","evidence":"e"}`), 409, "code=operation_in_progress",
		"money_moved=unknown")
}
