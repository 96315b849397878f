package operations

import "testing"

// What an event made us look for is recorded only over the row that was read before the look; a success that was read,
// or told, before the provider's books showed the same refund as failed is no proof against that.
func TestDecide_WhatWasSeenBeforeAFailure_IsLookedUpAnew(t *testing.T) {
	t.Parallel()
	seen := ProviderResult{Outcome: OutcomeSucceeded, ProviderRefundID: "re_1"}
	failed := reservation{Operation: Operation{AmountCents: 100, State: StateFailed, FailureCode: ptrTo(FailureLate),
		ProviderRefundID: ptrTo("re_1")},
		attempts: 2, leased: true}
	another, byPerson, unnamed := failed, failed, failed
	another.ProviderRefundID, unnamed.ProviderRefundID = ptrTo("re_2"), nil
	byPerson.FailureCode = ptrTo(FailureResolvedByOperator)
	of := func(s source, attempts int, from State, hinted bool) fact {
		return fact{source: s, result: seen, hinted: hinted, lease: Lease{attempts: attempts, State: from}}
	}
	for name, test := range map[string]struct {
		row   reservation
		f     fact
		state State
		next  schedule
		stale bool
	}{
		"our own call's answer": {failed, of(sourceRefund, 2, StateReserved, false), StateFailed,
			nextNow, true},
		"a look's": {failed, of(sourceLookup, 2, StateSucceeded, false), StateFailed,
			nextNow, true},
		"an event's look": {failed, of(sourceLookup, 0, StatePending, true), StateFailed,
			nextNever, true},
		"a look that began after it": {failed, of(sourceLookup, 2, StateFailed, false), StateNeedsAttention,
			nextSlowest, false},
		"an event's that began after it": {failed, of(sourceLookup, 0, StateFailed, true), StateNeedsAttention,
			nextSlowest, false},
		"of another refund": {another, of(sourceLookup, 2, StateReserved, false), StateNeedsAttention,
			nextSlowest, false},
		"of a refund that nobody named": {unnamed, of(sourceRefund, 2, StateReserved, false), StateNeedsAttention,
			nextSlowest, false},
		"over a person's word": {byPerson, of(sourceLookup, 2, StateReserved, false), StateNeedsAttention,
			nextSlowest, false},
	} {
		c := test.row.decide(test.f, 1000)
		if c.state != test.state || c.stale != test.stale || c.next != test.next {
			t.Errorf("%s: %s, stale %v, next %v", name, c.state, c.stale, c.next)
		}
	}
}

func TestDecide_ADoubtfulDecline_Waits(t *testing.T) {
	t.Parallel()
	row := reservation{Operation: Operation{AmountCents: 100, State: StateReserved}, attempts: 1, leased: true}
	for doubtful, want := range map[bool]State{true: StateReserved, false: StateFailed} {
		f := fact{source: sourceRefund, lease: Lease{attempts: 1, State: StateReserved},
			result: ProviderResult{Outcome: OutcomeDeclined, DeclineCode: DeclineChargeDisputed, Doubtful: doubtful}}
		if c := row.decide(f, 1000); c.state != want || (c.doubted != nil) != doubtful {
			t.Errorf("doubtful %v: %s, doubted %v", doubtful, c.state, c.doubted)
		}
	}
}
