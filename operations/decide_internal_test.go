package operations

import (
	"fmt"
	"strings"
	"testing"
)

// everyDecision calls visit with every row and fact that there can be, as far as the state machine tells them apart.
func everyDecision(visit func(name string, r reservation, f fact, remainder int64, c change)) {
	bools := []bool{false, true}
	rows := map[State][]*string{
		StateReserved: {nil}, StatePending: {nil}, StateSucceeded: {nil},
		StateFailed:         {ptrTo(DeclineDeclined), ptrTo(FailureLate), ptrTo(FailureResolvedByOperator)},
		StateNeedsAttention: {ptrTo(attentionKeyExpired), ptrTo(attentionPaidAfterAll), ptrTo(FailureOverRefund)},
	}
	facts := []fact{
		{source: sourceRefund, result: ProviderResult{Outcome: OutcomeSucceeded, ProviderRefundID: "p"}},
		{source: sourceRefund, result: ProviderResult{Outcome: OutcomePending, ProviderRefundID: "p"}},
		{source: sourceRefund, result: ProviderResult{Outcome: OutcomeDeclined, DeclineCode: DeclineDeclined}},
		{source: sourceRefund, result: ProviderResult{Outcome: OutcomeDeclined, DeclineCode: DeclineAlreadyRefunded}},
		{source: sourceRefund, result: ProviderResult{Outcome: OutcomeDeclined, DeclineCode: DeclineExceedsUnrefunded}},
		{source: sourceRefund, kind: ErrorUnknown}, {source: sourceRefund, kind: ErrorNotSent}, {source: sourceRefund,
			kind: ErrorMisconfigured},
		{source: sourceLookup, result: ProviderResult{Outcome: OutcomeSucceeded, ProviderRefundID: "p"}},
		{source: sourceLookup, result: ProviderResult{Outcome: OutcomePending, ProviderRefundID: "p"}},
		{source: sourceLookup, result: ProviderResult{Outcome: OutcomeDeclined, DeclineCode: DeclineRefundFailed,
			ProviderRefundID: "p"}},
		{source: sourceLookup, kind: ErrorUnknown}, {source: sourceLookup, kind: ErrorNotSent}, {source: sourceLookup,
			kind: ErrorMisconfigured},
		{source: sourceLookup, kind: ErrorNotFound}, {source: sourceLookup, kind: ErrorContradictory},
		{source: sourceHuman, result: ProviderResult{Outcome: OutcomeSucceeded}},
		{source: sourceHuman, result: ProviderResult{Outcome: OutcomeDeclined, DeclineCode: FailureResolvedByOperator}},
	}
	for state, codes := range rows {
		for _, code := range codes {
			for i, f := range facts {
				for flags := range 1 << 9 {
					bit := func(n int) bool { return bools[flags>>n&1] }
					r := reservation{
						Operation: Operation{TenantID: "t", OperationID: "k", OrderID: "o", AmountCents: 100,
							State: state, FailureCode: code},
						attempts: 1, leased: !bit(8), keyAlive: bit(0), lagOver: bit(1), tooOld: bit(2), lastSeq: 3,
					}
					if bit(3) {
						r.attempts = 2
					}
					if bit(4) && (state == StateReserved || state == StateNeedsAttention) {
						r.doubted = ptrTo(DeclineDeclined)
					}
					f.lease = Lease{attempts: r.attempts, State: state}
					if bit(5) {
						f.lease.attempts-- // somebody took the lease since
					}
					if bit(6) {
						f.lease.State = StateReserved // which somebody's proof ended since, the lease notwithstanding
					}
					f.barred = bit(7)
					for _, remainder := range []int64{-1, 0, 99, 100} {
						name := fmt.Sprintf("%s(%s) fact %d flags %09b remainder %d", state, deref(code), i, flags,
							remainder)
						visit(name, r, f, remainder, r.decide(f, remainder))
					}
				}
			}
		}
	}
}

func TestDecide_KeepsItsPromisesInEveryCase(t *testing.T) {
	t.Parallel()
	cases, failures := 0, 0
	everyDecision(func(name string, r reservation, f fact, remainder int64, c change) {
		cases++
		ours := f.lease.attempts == r.attempts && f.lease.State == r.State && (r.leased || f.source == sourceRefund)
		after := r
		after.Operation = c.apply(r.Operation, r.CreatedAt)
		fail := func(why string) {
			if failures++; failures > 5 {
				t.Fatal("and more")
			}
			t.Errorf("%s: %s; becomes %s(%s), %+v", name, why, c.state, deref(c.failureCode), c)
		}

		var balance, inTransit int64
		if r.held() {
			inTransit = r.AmountCents
		}
		for i, p := range c.postings {
			balance += p.Change()
			switch kind := fmt.Sprintf("%+v", p); {
			case strings.Contains(kind, "hold"):
				inTransit += r.AmountCents
			case strings.Contains(kind, "settle"), strings.Contains(kind, "release"):
				inTransit -= r.AmountCents
			}
			if want := fmt.Sprintf("seq:%d", r.lastSeq+1+i); !strings.Contains(fmt.Sprintf("%+v", p), want) {
				fail("a transfer is not the next of its operation")
			}
		}
		if wantTransit := map[bool]int64{true: r.AmountCents}[after.held()]; inTransit != wantTransit {
			fail("what is in transit is not what the state holds")
		}
		paidAfterAll := r.State == StateFailed && f.is(OutcomeSucceeded) && f.source != sourceHuman
		if balance > 0 && !paidAfterAll {
			fail("the order gives back what no proof says it paid")
		}
		if paidAfterAll && (deref(c.failureCode) == FailureOverRefund) != (balance > remainder) {
			fail("what is beyond the capture has another name, or the name something else")
		}
		if r.overRefunded() && remainder < 0 && c.state == StateSucceeded && f.source != sourceHuman {
			fail("an excess was settled by nobody")
		}
		live := func(r reservation) int64 {
			if r.held() || r.State == StateSucceeded {
				return r.AmountCents
			}
			return 0
		}
		if live(r)+balance != live(after) {
			fail("the order's balance is not the sum of its live operations")
		}

		proof := f.is(OutcomeSucceeded) && f.source != sourceHuman
		switch {
		case proof && c.state != StateSucceeded && c.state != StateNeedsAttention:
			fail("proof of success was dropped")
		case proof && (r.State == StateReserved || r.State == StatePending) && c.state != StateSucceeded:
			fail("proof of success did not settle it")
		case f.kind != "" && c.state != r.State && !ours:
			fail("somebody else's lease, and yet it moved without an outcome")
		case f.source == sourceRefund && f.is(OutcomeDeclined) && !ours && c.state != r.State:
			fail("a late decline was believed")
		case r.State == StateSucceeded && c.state != StateSucceeded &&
			(f.source != sourceLookup || !f.is(OutcomeDeclined)):
			fail("a success ended by something else than the provider's late failure")
		case r.State == StateFailed && c.state != StateFailed && !proof:
			fail("a failure was taken back without proof")
		case f.source == sourceHuman && r.State != StateNeedsAttention && ours && c.state != r.State:
			fail("a human decided what does not wait for one")
		case f.source == sourceHuman && !ours && (c.state != r.State || !c.stale):
			fail("a human decided after the lease had run out")
		}

		if c.resend && (r.State != StateReserved || !ours || f.barred || f.kind != ErrorNotFound || !r.keyAlive ||
			r.doubted != nil || c.state != StateReserved) {
			fail("sent again where it must not be")
		}
		if c.state == StateFailed && r.State == StateReserved && f.source == sourceRefund && (r.attempts > 1 ||
			f.result.DeclineCode == DeclineAlreadyRefunded || f.result.DeclineCode == DeclineExceedsUnrefunded) {
			fail("a doubtful decline was believed")
		}
		if c.state == StateFailed && r.State != StateFailed && f.kind == ErrorNotFound &&
			(r.doubted == nil || !r.lagOver) {
			fail("failed for being not found, without a decline or within the lag")
		}
		if c.notSent && f.source == sourceRefund && f.kind != ErrorNotSent {
			fail("a request that may have been sent counts as not sent")
		}
		if (c.state == StateFailed) != (c.failureCode != nil) && c.state != StateNeedsAttention {
			fail("failure code and state contradict each other")
		}
		if c.state != r.State && c.next == nextNever &&
			(c.state != StateFailed || r.doubted != nil && f.kind == ErrorNotFound) {
			fail("it is never looked at again")
		}
		if f.is(OutcomePending) && f.source == sourceLookup && ours && c.next == nextNever {
			fail("the provider's last word is to come, and nobody hears it")
		}
		if c.state == StateSucceeded && r.State != StateSucceeded && f.source == sourceRefund && r.attempts > 1 &&
			c.next != nextLag {
			fail("whether it was executed twice is not looked up")
		}
		if c.doubted != nil && c.state != StateReserved && c.state != StateNeedsAttention {
			fail("a doubt outlives its end")
		}
	})
	if want := 9 * 18 * (1 << 9) * 4; cases != want { // states with their codes, facts, flags, remainders
		t.Errorf("%d cases, want %d", cases, want)
	}
}

// TestDecide_FollowsTheTable is the reconciliation table of the design, row by row.
func TestDecide_FollowsTheTable(t *testing.T) {
	t.Parallel()
	lookup := func(kind ErrorKind) fact { return fact{source: sourceLookup, kind: kind} }
	row := func(s State, change func(*reservation)) reservation {
		r := reservation{Operation: Operation{AmountCents: 1, State: s}, attempts: 2, leased: true}
		if change != nil {
			change(&r)
		}
		return r
	}
	pending := fact{source: sourceLookup, result: ProviderResult{Outcome: OutcomePending}}
	doubted := func(r *reservation) { r.doubted = ptrTo(DeclineDeclined) }
	recheckOver := func(r *reservation) { r.recheckOver = true }
	for _, c := range []struct {
		name   string
		row    reservation
		f      fact
		state  State
		code   string
		resend bool
		next   schedule
	}{
		{"doubted, within the lag", row(StateReserved, doubted), lookup(ErrorNotFound), StateReserved, "", false,
			nextLag},
		{"doubted, after the lag", row(StateReserved, func(r *reservation) { doubted(r); r.lagOver = true }),
			lookup(ErrorNotFound), StateFailed, DeclineDeclined, false, nextDaily},
		{"key alive, within the lag", row(StateReserved, func(r *reservation) { r.keyAlive = true }),
			lookup(ErrorNotFound), StateReserved, "", true, nextBackoff},
		{"key alive, after the lag", row(StateReserved, func(r *reservation) { r.keyAlive, r.lagOver = true, true }),
			lookup(ErrorNotFound), StateReserved, "", true, nextBackoff},
		{"never asked, overdue", row(StateReserved, func(r *reservation) { r.tooOld = true }),
			fact{source: sourceLookup, kind: ErrorNotSent, unasked: true}, StateReserved, "", false, nextRest},
		{"failed for good, looked up in vain", row(StateFailed, nil), lookup(ErrorUnknown), StateFailed, "", false,
			nextDaily},
		{"failed for good, looked up", row(StateFailed, nil), lookup(ErrorNotFound), StateFailed, "", false, nextNever},
		{"failed for good, pending there", row(StateFailed, nil), pending, StateFailed, "", false, nextDaily},
		{"failed long ago, pending there", row(StateFailed, recheckOver), pending, StateFailed, "", false, nextDaily},
		{"succeeded long ago, pending there", row(StateSucceeded, recheckOver), pending, StateSucceeded, "", false,
			nextDaily},
		{"key expired, within the lag", row(StateReserved, nil), lookup(ErrorNotFound), StateReserved, "", false,
			nextLag},
		{"key expired, after the lag", row(StateReserved, func(r *reservation) { r.lagOver = true }),
			lookup(ErrorNotFound), StateNeedsAttention, attentionKeyExpired, false, nextSlowest},
		{"pending, not found", row(StatePending, nil), lookup(ErrorNotFound), StatePending, "", false, nextBackoff},
		{"succeeded, not found", row(StateSucceeded, nil), lookup(ErrorNotFound), StateSucceeded, "", false, nextDaily},
		{"succeeded, contradictory", row(StateSucceeded, nil), lookup(ErrorContradictory), StateSucceeded, "", false,
			nextDaily},
		{"succeeded long ago", row(StateSucceeded, recheckOver), lookup(ErrorUnknown), StateSucceeded, "", false,
			nextNever},
		{"reserved, contradictory", row(StateReserved, nil), lookup(ErrorContradictory), StateNeedsAttention,
			attentionContradictory, false, nextSlowest},
		{"reserved, outage", row(StateReserved, nil), lookup(ErrorUnknown), StateReserved, "", false, nextBackoff},
		{"reserved, misconfigured", row(StateReserved, nil), lookup(ErrorMisconfigured), StateReserved, "", false,
			nextBackoff},
		{"reserved, outage, overdue", row(StateReserved, func(r *reservation) { r.tooOld = true }),
			lookup(ErrorUnknown), StateNeedsAttention, attentionTooOld, false, nextSlowest},
		{"pending for ever", row(StatePending, func(r *reservation) { r.tooOld = true }), pending, StateNeedsAttention,
			attentionTooOld, false, nextSlowest},
	} {
		c.f.lease = Lease{attempts: c.row.attempts, State: c.row.State}
		got := c.row.decide(c.f, 0)
		if got.state != c.state || deref(got.failureCode) != c.code || got.resend != c.resend || got.next != c.next {
			t.Errorf("%s: %s(%s) resend %v next %d, want %s(%s) %v %d", c.name,
				got.state, deref(got.failureCode), got.resend, got.next, c.state, c.code, c.resend, c.next)
		}
	}
}
