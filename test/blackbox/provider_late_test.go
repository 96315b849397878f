package blackbox

import (
	"fmt"
	"testing"
	"time"

	"refundd/test/harness"
)

// A provider that never knows puts a human in front of the refund, with how long it has been so; from then on the
// caller is told not to ask again.
func TestA30_TheProviderNeverKnows_AHumanIsTold(t *testing.T) {
	t.Parallel()
	down := harness.Fields{"mode": "lookup_down"}
	for name, c := range map[string]struct {
		faults []harness.Fields
		age    string
		code   string
	}{
		"it fails":    {[]harness.Fields{down, {"mode": "error_before"}}, "73 hours", "outcome_overdue"},
		"it hangs up": {[]harness.Fields{down, {"mode": "drop_after"}}, "80 hours", "outcome_overdue"},
		"it refuses":  {[]harness.Fields{down, {"mode": "refuse"}}, "400 days", "outcome_overdue"},
		"it is misconfigured": {[]harness.Fields{down, {"mode": "error_before", "status": 401}}, "73 hours",
			"outcome_overdue"},
		"it is still at it": {[]harness.Fields{{"mode": "pending", "delay_ms": 1000 * 3600 * 24 * 29}}, "15 days",
			"outcome_overdue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaying(t, "--provider-breaker-open", "10ms")
			for _, fault := range c.faults {
				p.provider.Fault(fault["mode"].(string), fault)
			}
			p.refund("K", "P0", "pending")
			for range 2 { // an outage alone escalates nothing
				if s := p.reconcile(); s.NeedsAttention != 0 || s.ExitCode != 0 {
					t.Errorf("escalated at once: %+v", s)
				}
			}
			p.Exec(`UPDATE refund_operations SET created_at = created_at - $1::text::interval`, c.age)
			if s := p.reconcile(); s.NeedsAttention != 1 || s.ExitCode != 3 {
				t.Errorf("the run answers %+v", s)
			}
			p.stands("K", "needs_attention", c.code)
			for range 2 {
				// isRetryable false, escalate_to_human: by the table
				a := p.again("K", "P0", "operation_needs_attention")
				if a.Header.Get("X-Should-Retry") != "false" {
					t.Errorf("the caller is told to retry: %v", a.Header)
				}
				if s := p.reconcile(); s.NeedsAttention != 0 || s.ExitCode != 0 {
					t.Errorf("escalated again: %+v", s)
				}
			}
			p.wantMetric("refundd_operations", "needs_attention", 1, 1)
			hours := map[string]float64{"73 hours": 73, "80 hours": 80, "400 days": 9600, "15 days": 360}[c.age]
			p.wantMetric("refundd_operations_oldest_age_seconds", "needs_attention", hours*3600, hours*3600+600)
			p.balance("P0", 4000, 4000)
			p.Service.Audit(t)
		})
	}
}

// wantMetric fails the test where a metric of a state is not between two numbers.
func (p *paying) wantMetric(name, state string, least, most float64) {
	p.t.Helper()
	for _, s := range p.Service.Servers[0].Metrics(p.t) {
		if s.Name == name && s.Labels["state"] == state {
			if s.Value < least || s.Value > most {
				p.t.Errorf("%s of %s is %v, want %v to %v", name, state, s.Value, least, most)
			}
			return
		}
	}
	p.t.Errorf("no metric %s of %s", name, state)
}

func TestA31_OverlappingRuns_AskOncePerOperation(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-timeout", "20s")
	const n = 24
	var all []string
	for i := range n {
		operation, order, mode := fmt.Sprint("K", i), fmt.Sprint("L", i),
			[]string{"refuse", "drop_after", "drop_before"}[i%3]
		all = append(all, operation)
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
		p.provider.Fault(mode, harness.Times(1))
		p.refund(operation, order, "pending")
	}
	p.provider.Fault("hang", harness.After(700*time.Millisecond))
	p.Service.Due(t)
	summaries := make([]harness.Summary, 3)
	together(3, func(i int) { summaries[i] = p.Service.Reconcile(t, "--concurrency", "5") })
	claimed := int64(0)
	for _, s := range summaries {
		claimed += s.Claimed
	}
	if claimed != n {
		t.Errorf("%d operations were claimed, want each of %d once: %+v", claimed, n, summaries)
	}
	p.executed(all...)
	requests := p.provider.Requests()
	for i, operation := range all {
		p.stands(operation, "succeeded", "")
		wantRequests := []int{2, 1, 2}[i%3]
		wantAttempts := []map[string]int{{"refund": 2, "lookup": 1}, {"refund": 1, "lookup": 1},
			{"refund": 2, "lookup": 1}}[i%3]
		got := p.attempts(operation)
		if requests[p.ProviderKey(operation)] != wantRequests || fmt.Sprint(got) != fmt.Sprint(wantAttempts) {
			t.Errorf("%s was sent %d times, want %d; its history tells of %v, want %v", operation,
				requests[p.ProviderKey(operation)], wantRequests, got, wantAttempts)
		}
	}
	p.Service.Audit(t)
}

// While the first call hangs, its lease is taken away; what it brings then comes too late to say anything.
func TestA32_ReconciliationSettlesWhileTheFirstCallHangs_ItsLateErrorChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-timeout", "20s", "--provider-breaker-open", "1ms") // 401 opens it at once
	for i, late := range []harness.Fields{{"mode": "error_after"}, {"mode": "drop_after"},
		{"mode": "error_after", "status": 429},
		{"mode": "error_after", "status": 401}, {"mode": "error_after", "status": 402, "code": "declined"}} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		p.provider.Fault(late["mode"].(string), late, harness.Times(1), harness.After(4*time.Second))
		answered := make(chan harness.Answer, 1)
		go func() { answered <- p.Refund(operation, order, 4000) }()
		eventually(t, "the provider executes", func() bool { return len(p.provider.Refunds()) == i+1 })
		if i%2 == 0 {
			p.reconcile()
		} else {
			p.lookUp(operation)
		}
		before := p.stands(operation, "succeeded", "")
		first := <-answered
		if says := first.Says(); says != "already_processed" && says != "processed" {
			t.Errorf("%v: the first caller is told %d %s", late, first.Status, first.Body)
		}
		if after := p.stands(operation, "succeeded", ""); deref(after.SettledAt) != deref(before.SettledAt) {
			t.Errorf("%v: settled at %s and again at %s", late, deref(before.SettledAt), deref(after.SettledAt))
		}
		p.chain(operation, "hold", "settle")
		p.balance(order, 4000, 0)
		if a := p.attempts(operation); a["refund"] != 1 || a["lookup"] != 1 {
			t.Errorf("%v: the history tells of %v", late, a)
		}
	}
	p.Service.Audit(t)
}

// What reconciliation finds again and again changes nothing, whatever the operation's end.
func TestA36_RepeatedAndStaleFindings_ChangeNothing(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.refund("K0", "P0", "processed")
	p.provider.Fault("decline", harness.Times(1))
	p.refund("K1", "P1", "refund_declined")
	p.provider.Fault("fail_later", harness.Times(1), harness.After(100*time.Millisecond))
	p.refund("K2", "P2", "processed")
	p.provider.Fault("pending", harness.Times(1), harness.After(100*time.Millisecond))
	p.refund("K3", "P3", "pending")
	p.provider.Fault("pending", harness.Times(1), harness.After(100*time.Millisecond))
	p.provider.Fault("fail_later", harness.Times(1), harness.After(100*time.Millisecond))
	p.refund("K4", "P4", "pending")
	time.Sleep(200 * time.Millisecond)
	p.reconcile()
	ends := map[string][]string{
		"K0": {"succeeded", "", "hold", "settle"}, "K1": {"failed", "declined", "hold", "release"},
		"K2": {"failed", "late_failure", "hold", "settle", "reversal"}, "K3": {"succeeded", "", "hold", "settle"},
		"K4": {"failed", "expired_or_canceled_card", "hold", "release"},
	}
	settled := map[string]harness.Refund{}
	for operation, end := range ends {
		settled[operation] = p.stands(operation, end[0], end[1])
	}
	for range 3 {
		together(4, func(i int) {
			if i == 0 {
				p.Service.Reconcile(t)
			}
			for operation := range ends {
				p.Post(harness.RefundPath(operation)+"/reconcile", harness.Fields{}) // 409 while another one looks
			}
		})
		p.Service.Due(t)
	}
	for operation, end := range ends {
		if after := p.stands(operation, end[0], end[1]); deref(after.SettledAt) != deref(settled[operation].SettledAt) {
			t.Errorf("%s settled at %s and again at %s", operation, deref(settled[operation].SettledAt),
				deref(after.SettledAt))
		}
		p.chain(operation, end[2:]...)
	}
	p.Service.Audit(t)
}

func TestA37_SucceededThenFailedDaysLater_IsReversedAndANewRefundMayFollow(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	byJob := func(string) { p.reconcile() }
	byLookUp := func(operation string) { p.lookUp(operation) }
	for i, c := range []struct {
		pending bool
		code    string
		finds   func(string)
	}{{false, "expired_or_canceled_card", byJob}, {false, "never_heard_of", byLookUp}, {true, "lost_or_stolen_card",
		byJob}, {true, "declined", byLookUp}} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		says := "processed"
		if c.pending {
			says = "pending"
			p.provider.Fault("pending", harness.Times(1), harness.After(300*time.Millisecond))
		}
		p.provider.Fault("fail_later", harness.Times(1), harness.After(6*time.Second), harness.Fields{"code": c.code})
		p.refund(operation, order, says)
		if c.pending {
			time.Sleep(350 * time.Millisecond)
			p.reconcile()
		}
		p.stands(operation, "succeeded", "")
		p.refund(operation, order, "already_processed")
		want(t, p.Refund(operation+"-more", order, 6001), "amount_exceeds_refundable")
		p.Exec(`UPDATE refund_operations SET created_at = created_at - interval '6 days'
			WHERE operation_id = $1`, operation)
		eventually(t, "the provider fails it",
			func() bool { return p.provider.Ledger()[p.ProviderKey(operation)].Status == "failed" })
		c.finds(operation)
		p.stands(operation, "failed", "late_failure")
		p.chain(operation, "hold", "settle", "reversal")
		p.balance(order, 0, 0)
		a := p.refund(operation, order, "refund_declined")
		if problem := harness.Read[harness.Problem](t, a); problem.FailureCode != "late_failure" ||
			problem.MoneyMoved != "no" {
			t.Errorf("answered %s", a.Body)
		}
		want(t, p.Refund(operation+"-new", order, 10000), "processed")
		p.balance(order, 10000, 0)
		p.stands(operation, "failed", "late_failure")
	}
	p.Service.Audit(t)
}

func TestA48_TheProviderNeverAnnouncesSuccess_ReconciliationReachesIt(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for i, c := range []struct {
		fails bool
		state string
		code  string
		says  string
	}{{false, "succeeded", "", "already_processed"}, {true, "failed", "insufficient_funds", "refund_declined"}} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		p.provider.Fault("pending", harness.Times(1), harness.After(time.Second))
		if c.fails {
			p.provider.Fault("fail_later", harness.Times(1), harness.After(time.Millisecond),
				harness.Fields{"code": c.code})
		}
		p.refund(operation, order, "pending")
		for range 3 {
			p.again(operation, order, "pending") // without a call
		}
		p.stands(operation, "pending", "")
		if a := p.attempts(operation); a["refund"] != 1 || a["lookup"] != 0 {
			t.Errorf("asked %v", a)
		}
		p.balance(order, 4000, 4000)
		time.Sleep(1100 * time.Millisecond)
		if s := p.reconcile(); s.OldestUnknown != 0 {
			t.Errorf("nothing is unknown, and the oldest of it is old: %+v", s)
		}
		p.stands(operation, c.state, c.code)
		p.refund(operation, order, c.says)
	}
	p.executed("K0", "K1")
	p.Service.Audit(t)
}
