package blackbox

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"refundd/test/harness"
)

// failedThoughPaid leaves an operation failed, though the provider executed it, in ways that a provider can bring
// about.
func failedThoughPaid(p *paying, operation, order string, byHuman bool) {
	p.t.Helper()
	p.provider.Fault("drop_after", harness.Times(1))
	p.refund(operation, order, "pending")
	p.provider.Forget()
	p.provider.Fault("lookup_lag", harness.After(24*time.Hour)) // a listing that lags for longer than it is said to
	if byHuman {
		p.Exec(`UPDATE refund_operations SET provider_key_expires_at = clock_timestamp() - interval '1 hour'
			WHERE operation_id = $1`, operation)
		time.Sleep(listingLag)
		p.reconcile()
		p.stands(operation, "needs_attention", "provider_key_expired")
		p.resolvable()
		want(p.t, p.resolve(operation, "failed"), "200")
		p.stands(operation, "failed", "resolved_failed")
	} else {
		p.provider.Fault("decline", harness.Times(1))
		p.again(operation, order, "pending") // sent again, declined, doubted
		time.Sleep(listingLag)
		p.reconcile()
		p.stands(operation, "failed", "declined")
	}
	p.refund(operation, order, "refund_declined")
	p.balance(order, 0, 0)
}

func TestA54_FailedButPaid_IsHeldAgainInFrontOfAHuman(t *testing.T) {
	t.Parallel()
	for i, byHuman := range []bool{false, true} {
		t.Run(fmt.Sprint("by human ", byHuman), func(t *testing.T) {
			t.Parallel()
			p := newPaying(t)
			failedThoughPaid(p, "K", "P0", byHuman)
			p.provider.Heal()
			if i == 0 {
				p.lookUp("K") // nobody looks by himself at what was declined
			} else {
				p.reconcile() // a human's decision is looked after
			}
			p.stands("K", "needs_attention", "paid_after_failure")
			p.chain("K", "hold", "release", "hold")
			p.balance("P0", 4000, 4000)
			p.Service.Audit(t)
			p.refund("K", "P0", "operation_needs_attention")
			want(t, p.Refund("K-more", "P0", 6001), "amount_exceeds_refundable")
			p.resolvable()
			want(t, p.resolve("K", "failed"), "provider_disagrees")
			p.stands("K", "needs_attention", "paid_after_failure")
			p.reconcile() // the refused resolution made it due
			p.stands("K", "succeeded", "")
			p.chain("K", "hold", "release", "hold", "settle")
			p.executed("K")
			p.Service.Audit(t)
		})
	}
}

// A refund that was declined, and that the provider shows as pending, is looked at again: it may be paid yet.
func TestA54_FailedButPending_IsLookedAtAgain(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.provider.Fault("pending", harness.Times(1), harness.After(time.Hour))
	failedThoughPaid(p, "K", "P0", false)
	p.provider.Heal()
	for range 3 {
		p.lookUp("K")
		p.stands("K", "failed", "declined")
		p.balance("P0", 0, 0)
		p.Exec(`UPDATE refund_operations SET next_check_at = next_check_at - interval '25 hours'`) // a day goes by
		if s := p.Service.Reconcile(t); s.Claimed != 1 || s.ExitCode != 0 {
			t.Errorf("the run answers %+v", s)
		}
	}
	p.executed("K")
	p.Service.Audit(t)
}

// overdue is an operation that a human has to decide on, of which the provider's books show what the faults made of it.
func overdue(p *paying, operation, order string, faults ...harness.Fields) {
	p.t.Helper()
	for _, fault := range faults {
		p.provider.Fault(fault["mode"].(string), fault)
	}
	p.provider.Fault("drop_after", harness.Times(1))
	p.refund(operation, order, "pending")
	p.provider.Fault("lookup_down")
	p.Exec(`UPDATE refund_operations SET created_at = created_at - interval '80 hours'
		WHERE operation_id = $1`, operation)
	p.reconcile()
	p.stands(operation, "needs_attention", "outcome_overdue")
	p.resolvable()
}

func TestA55_AHumansWord_DoesNotStandAgainstTheProvidersBooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  []harness.Fields
		outcome string // that the human claims
		state   string // that stands then
		code    string
	}{
		"failed, it shows success": {nil, "failed", "succeeded", ""},
		"failed, it still works on it": {[]harness.Fields{{"mode": "pending", "delay_ms": 3600000}}, "failed",
			"needs_attention", "outcome_overdue"},
		"succeeded, it shows a failure": {[]harness.Fields{{"mode": "fail_later", "delay_ms": 1}}, "succeeded",
			"failed", "expired_or_canceled_card"},
		"succeeded, it failed at once": {[]harness.Fields{{"mode": "pending", "delay_ms": 1},
			{"mode": "fail_later", "delay_ms": 1}}, "succeeded", "failed", "expired_or_canceled_card"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaying(t)
			overdue(p, "K", "P0", c.faults...)
			p.provider.Heal()
			for _, override := range []bool{false, true} {
				want(t, p.resolve("K", c.outcome, harness.Fields{"override": override}), "provider_disagrees")
				p.stands("K", "needs_attention", "outcome_overdue")
				p.resolvable()
			}
			p.lookUp("K")
			p.stands("K", c.state, c.code)
			p.executed("K")
			p.Service.Audit(t)
		})
	}
}

func TestA55_AHumansWord_StandsWhereTheProviderIsSilent(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"failed", "succeeded"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			p := newPaying(t)
			p.provider.Fault("error_before", harness.Times(1))
			p.provider.Fault("drop_after", harness.Times(0))
			overdue(p, "K", "P0")
			chain := map[string]string{"failed": "release", "succeeded": "settle"}[outcome]
			a := p.resolve("K", outcome)
			want(t, a, "provider_unavailable")
			if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
				t.Errorf("answered %d %v", a.Status, a.Header)
			}
			p.stands("K", "needs_attention", "outcome_overdue")
			p.provider.Heal() // it did nothing, and says so
			want(t, p.resolve("K", outcome), "200")
			want(t, p.resolve("K", outcome), "200")
			other := map[string]string{"failed": "succeeded", "succeeded": "failed"}[outcome]
			want(t, p.resolve("K", other), "resolution_conflict")
			r := p.read("K")
			if r.State != outcome {
				t.Errorf("K is %s, want %s", r.State, outcome)
			}
			p.chain("K", "hold", chain)
			p.Service.Audit(t)
		})
	}
}

func TestA55_BooksThatContradictThemselves_AreNoFailure(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	overdue(p, "K", "P0")
	p.provider.Heal()
	p.provider.Refund("somebody-elses",
		harness.Fields{"payment_ref": p.Ref("P0"), "amount_cents": 4000, "currency": "EUR",
			"metadata": map[string]string{"tenant_id": p.ID, "operation_id": "K"}})
	want(t, p.resolve("K", "failed"), "provider_disagrees")
	p.stands("K", "needs_attention", "outcome_overdue")
	p.reconcile()
	p.stands("K", "needs_attention", "outcome_overdue")
	p.balance("P0", 4000, 4000)
	p.Service.Audit(t)
}

// While the provider's listing may lack the request that was sent last, nobody may call it failed.
func TestA55_WithinTheListingsLag_OnlyAnOverrideStands(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--listing-lag", "1h")
	p.provider.Fault("error_before", harness.Times(1))
	p.provider.Fault("lookup_down")
	p.refund("K", "P0", "pending")
	p.Exec(`UPDATE refund_operations SET created_at = created_at - interval '80 hours'`)
	p.reconcile()
	p.stands("K", "needs_attention", "outcome_overdue")
	p.provider.Heal()
	p.Service.Due(t)
	want(t, p.resolve("K", "failed"), "operation_in_progress")
	p.stands("K", "needs_attention", "outcome_overdue")
	want(t, p.resolve("K", "failed", harness.Fields{"override": true}), "200")
	p.stands("K", "failed", "resolved_failed")
	found := false
	for _, e := range p.timeline("K") {
		found = found || e.Event != nil && e.Event.Detail["override"] == "true" &&
			e.Event.Detail["evidence"] == "ticket 4711" && deref(e.Event.Actor) != ""
	}
	if !found {
		t.Errorf("the history does not tell of the override: %+v", p.timeline("K"))
	}
	p.Service.Audit(t)
}
