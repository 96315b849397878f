package simulator_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/provider/simulator"
)

// executions wants a number of refunds in the ledger.
func (p provider) executions(t *testing.T, n int) {
	t.Helper()
	if l := p.ledger(t); len(l) != n {
		t.Fatalf("the ledger has %d refunds, want %d: %+v", len(l), n, l)
	}
}

func (p provider) status(t *testing.T) string {
	t.Helper()
	return p.lookup(t, "pay-1")[0].Status
}

func TestErrorBefore_ExecutesAndStoresNothing(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"error_before","count":2,"delay_ms":0}`)
	p.refund(t, "k").refused(t, http.StatusInternalServerError, "internal_error")
	p.refund(t, "k").refused(t, http.StatusInternalServerError, "internal_error")
	p.executions(t, 0)
	p.refund(t, "k").want(t, http.StatusCreated)
	if l := p.ledger(t); len(l) != 1 || l[0].Requests != 3 {
		t.Errorf("got %+v", l)
	}
}

func TestErrorAfter_ExecutesAndStoresTheOutcome(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"error_after","count":1}`)
	p.refund(t, "k").refused(t, http.StatusInternalServerError, "internal_error")
	p.executions(t, 1)
	a := p.refund(t, "k").want(t, http.StatusCreated)
	if a.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the second answer is not a replay")
	}
	p.executions(t, 1)
}

func TestErrorAfter_WithDelay_ShowsTheRefundBeforeItsLateAnswer(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"error_after","count":1,"delay_ms":700}`)
	first := make(chan answer)
	go func() { first <- p.refund(t, "k") }()
	eventually(t, "the refund shows", func() bool { return len(p.lookup(t, "pay-1")) == 1 })
	p.refund(t, "k").refused(t, http.StatusConflict, "idempotency_key_in_use")
	(<-first).want(t, http.StatusInternalServerError)
	p.refund(t, "k").want(t, http.StatusCreated)
	p.executions(t, 1)
}

func TestDropBefore_ClosesTheConnectionAndExecutesNothing(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"drop_before","count":1}`)
	p.refund(t, "k").dropped(t)
	p.executions(t, 0)
	p.refund(t, "k").want(t, http.StatusCreated)
}

func TestDropAfter_ClosesTheConnectionAndExecutes(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"drop_after","count":1}`)
	p.refund(t, "k").dropped(t)
	p.executions(t, 1)
	p.refund(t, "k").want(t, http.StatusCreated)
	p.executions(t, 1)
}

func TestHang_ExecutesAfterTheDelayAndAnswers(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"hang","count":1,"delay_ms":300}`)
	began := time.Now()
	p.refund(t, "k").want(t, http.StatusCreated)
	if d := time.Since(began); d < 300*time.Millisecond {
		t.Errorf("it took %v", d)
	}
	p.executions(t, 1)
}

func TestHang_ClientLeaves_ExecutesAllTheSame(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"hang","count":1,"delay_ms":800}`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p.send(ctx, "POST", "/refunds", "k", body("pay-1")).dropped(t)

	p.refund(t, "k").refused(t, http.StatusConflict, "idempotency_key_in_use")
	p.refund(t, "k2").want(t, http.StatusCreated) // another key is not held up
	p.executions(t, 1)
	p.send(t.Context(), "DELETE", "/_faults", "", "").want(t, http.StatusOK)
	eventually(t, "the hanging refund executes", func() bool { return len(p.ledger(t)) == 2 })
	eventually(t, "its key is free", func() bool { return p.refund(t, "k").status == http.StatusCreated })
	p.executions(t, 2)
}

func TestHang_KeysExpireMeanwhile_ExecutesOnce(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"hang","count":1,"delay_ms":500}`)
	first := make(chan answer)
	go func() { first <- p.refund(t, "k") }()
	eventually(t, "the key is busy", func() bool {
		return strings.Contains(p.send(t.Context(), "GET", "/_keys", "", "").body, `"busy":true`)
	})
	p.send(t.Context(), "POST", "/_keys/expire", "", "").want(t, http.StatusOK)
	p.refund(t, "k").refused(t, http.StatusConflict, "idempotency_key_in_use")
	(<-first).want(t, http.StatusCreated)
	p.refund(t, "k").want(t, http.StatusCreated)
	p.executions(t, 1)
}

func TestRefuse_SaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"refuse","count":1}`)
	a := p.refund(t, "k")
	a.refused(t, http.StatusTooManyRequests, "rate_limited")
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("got Retry-After %q", a.header.Get("Retry-After"))
	}
	p.executions(t, 0)
	p.refund(t, "k").want(t, http.StatusCreated)
}

func TestDecline_IsStoredAndMakesNoRefund(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"decline","count":2,"code":"insufficient_funds","message":"the bank's own words"}`)
	a := p.refund(t, "k")
	a.refused(t, http.StatusPaymentRequired, "insufficient_funds")
	p.send(t.Context(), "DELETE", "/_faults", "", "").want(t, http.StatusOK)
	again := p.refund(t, "k").want(t, http.StatusPaymentRequired)
	if again.body != a.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %s", again.body)
	}
	p.executions(t, 0)
	p.send(t.Context(), "POST", "/refunds", "k", body("pay-2")).refused(t, http.StatusUnprocessableEntity,
		"idempotency_key_reuse")
	p.send(t.Context(), "POST", "/_keys/expire", "", "").want(t, http.StatusOK)
	p.refund(t, "k").want(t, http.StatusCreated)

	p.fault(t, `{"mode":"decline"}`)
	p.refund(t, "k2").refused(t, http.StatusPaymentRequired, "declined")
	p.refund(t, "k").want(t, http.StatusCreated) // what is stored is stored
}

func TestPending_SucceedsAfterTheDelay(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"pending","count":1,"delay_ms":500}`)
	a := p.refund(t, "k").want(t, http.StatusCreated)
	if got := decode[entry](t, a.body).Status; got != "pending" {
		t.Errorf("it began %s", got)
	}
	if got := p.status(t); got != "pending" {
		t.Errorf("it went on %s", got)
	}
	p.send(t.Context(), "DELETE", "/_faults", "", "").want(t, http.StatusOK)
	eventually(t, "it succeeds", func() bool { return p.status(t) == "succeeded" })
	if again := p.refund(t, "k").want(t, http.StatusCreated); again.body != a.body {
		t.Errorf("a replay is the stored answer, got %s", again.body)
	}
}

func TestFailLater_SucceedsThenFails(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"fail_later","count":1,"delay_ms":500,"code":"lost_or_stolen_card"}`)
	a := p.refund(t, "k").want(t, http.StatusCreated)
	if got := decode[entry](t, a.body).Status; got != "succeeded" {
		t.Errorf("it began %s", got)
	}
	eventually(t, "it fails", func() bool { return p.status(t) == "failed" })
	if got := p.lookup(t, "pay-1")[0].FailureCode; got == nil || *got != "lost_or_stolen_card" {
		t.Errorf("got the failure code %v", got)
	}
	if got := p.ledger(t)[0].Status; got != "failed" {
		t.Errorf("the ledger says %s", got)
	}
}

func TestPendingWithFailLater_FailsWithoutSucceeding(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"pending","count":1,"delay_ms":300}`)
	p.fault(t, `{"mode":"fail_later","count":1}`)
	p.refund(t, "k").want(t, http.StatusCreated)
	seen := map[string]bool{}
	eventually(t, "it fails", func() bool { seen[p.status(t)] = true; return seen["failed"] })
	if d := cmp.Diff(map[string]bool{"pending": true, "failed": true}, seen); d != "" {
		t.Error(d)
	}
}

func TestLookupDown_HidesTheBooksButNotTheLedger(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"lookup_down","count":1}`)
	p.refund(t, "k").want(t, http.StatusCreated) // consumes none of a GET's
	p.executions(t, 1)
	p.send(t.Context(), "GET", "/refunds?payment_ref=pay-1", "", "").refused(t, http.StatusServiceUnavailable,
		"internal_error")
	if l := p.lookup(t, "pay-1"); len(l) != 1 {
		t.Errorf("got %+v", l)
	}
}

func TestLookupLag_HidesYoungRefunds(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"lookup_lag","delay_ms":600}`)
	p.refund(t, "k").want(t, http.StatusCreated)
	if l := p.lookup(t, "pay-1"); len(l) != 0 {
		t.Errorf("got %+v", l)
	}
	if l := p.list(t, "/refunds?idempotency_key=k"); len(l) != 0 {
		t.Errorf("got %+v", l)
	}
	p.executions(t, 1)
	eventually(t, "it is old enough to show", func() bool { return len(p.lookup(t, "pay-1")) == 1 })
	p.refund(t, "k2").want(t, http.StatusCreated)
	p.fault(t, `{"mode":"lookup_lag","delay_ms":60000,"count":1}`)
	if l := p.lookup(t, "pay-1"); len(l) != 0 {
		t.Errorf("got %+v", l)
	}
	if l := p.lookup(t, "pay-1"); len(l) != 2 {
		t.Errorf("got %+v", l)
	}
}

func TestFaults_PostingAModeReplacesOnlyThatMode(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"error_before","count":5}`)
	p.fault(t, `{"mode":"decline","count":1,"code":"charge_disputed"}`)
	p.fault(t, `{"mode":"error_before","count":1,"status":401}`)
	p.refund(t, "k1").want(t, http.StatusUnauthorized)
	p.refund(t, "k1").refused(t, http.StatusPaymentRequired, "charge_disputed")
	p.refund(t, "k2").want(t, http.StatusCreated)
}

func TestFaults_ARequestMeetsOneOfEachStage(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"hang","count":1,"delay_ms":200}`)
	p.fault(t, `{"mode":"decline","count":1}`)
	p.fault(t, `{"mode":"drop_after","count":1}`)
	p.refund(t, "k").dropped(t)
	p.refund(t, "k").refused(t, http.StatusPaymentRequired, "declined") // the decline was stored, its answer lost
	p.executions(t, 0)
	p.refund(t, "k2").want(t, http.StatusCreated)
}

func TestFaults_CountsAreConsumedAndShown(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	list := func() string { return p.send(t.Context(), "GET", "/_faults", "", "").body }
	p.fault(t, `{"mode":"error_before","count":3}`)
	p.refund(t, "k")
	if got := list(); !strings.Contains(got, `"count":2`) {
		t.Errorf("got %s", got)
	}
	p.fault(t, `{"mode":"error_before","count":0}`)
	if got := list(); got != `{"faults":[]}` {
		t.Errorf("a count of 0 ends the mode, got %s", got)
	}
	p.fault(t, `{"mode":"error_before"}`)
	for range 4 {
		p.refund(t, "k").want(t, http.StatusInternalServerError)
	}
	p.send(t.Context(), "DELETE", "/_faults", "", "").want(t, http.StatusOK)
	p.refund(t, "k").want(t, http.StatusCreated)
}

func TestFaults_MalformedOnes_AreRefused(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	for body, status := range map[string]int{
		`{"mode":"explode"}`:            422,
		`{}`:                            422,
		`{"mode":"hang","delay_ms":-1}`: 422,
		`{"mode":"hang","delay_ms":9223372036854775807}`: 422,
		`{"mode":"hang","count":-1}`:                     422,
		`{"mode":"error_before","status":200}`:           422,
		`{"mode":"hang","count":1.5}`:                    400,
		`{"mode":"hang","Count":1}`:                      400,
		`{"mode":"hang","count":1,"count":2}`:            400,
		`{"mode":"hang","delay":"1s"}`:                   400,
	} {
		p.send(t.Context(), "POST", "/_faults", "", body).want(t, status)
	}
	if got := p.send(t.Context(), "GET", "/_faults", "", "").body; got != `{"faults":[]}` {
		t.Errorf("got %s", got)
	}
}
