package operations_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"refundd/operations"
)

// marks hint at an operation by its marks, and at its refund by name.
func marks(tenantID, operationID, refund string) operations.Hint {
	return operations.Hint{Refunds: []operations.HintedRefund{
		{ProviderRefundID: refund, TenantID: tenantID, OperationID: operationID},
	}}
}

// heeds wants a hint to come to a result.
func (p *paying) heeds(h operations.Hint, want operations.Heeded) {
	p.t.Helper()
	if got, err := p.Heed(p.t.Context(), "simulator", h); err != nil || got != want {
		p.t.Errorf("%+v: %s, %v, want %s", h, got, err, want)
	}
}

// lost is an operation of 100 that the provider executed, whose answer was lost.
func (p *paying) lost(id string) {
	p.t.Helper()
	p.fault("drop_after", 1, 0)
	expect(p.t, p.submit(p.pay(id, 100)), operations.StatusPending)
}

func TestHeed_FindsWhatIsMeant_AndAppliesItOnce(t *testing.T) {
	p := newPaying(t)
	for i, hint := range []func(id string) operations.Hint{
		func(id string) operations.Hint { return marks(tenant, id, "") },
		func(string) operations.Hint { return operations.Hint{PaymentRefs: []string{"", "pay-1"}} },
	} {
		id := fmt.Sprint("K", i)
		p.lost(id)
		p.heeds(hint(id), operations.HeededApplied)
		if s := p.state(id).State; s != operations.StateSucceeded {
			t.Errorf("%s is %s", id, s)
		}
		p.heeds(marks(tenant, id, ""), operations.HeededUnchanged)
		p.heeds(marks("", "", *p.state(id).ProviderRefundID), operations.HeededUnchanged) // by its name alone
	}
	p.heeds(operations.Hint{PaymentRefs: []string{"pay-1"}}, operations.HeededNotOurs) // all of its refunds have an end
}

func TestHeed_WhatIsNotOurs_IsNotLookedAt(t *testing.T) {
	p := newPaying(t)
	p.lost("K")
	account := marks(tenant, "K", "")
	account.Account = "acct_7"
	p.fault("lookup_down", 1000, 0) // a look would fail
	for name, h := range map[string]operations.Hint{
		"nothing": {}, "no name": marks("", "", ""), "another account": account, "another tenant": marks("other", "K",
			""),
		"another operation": marks(tenant, "L", ""), "no text": marks("a\x00b", "K",
			""), "no text, of an operation": marks(tenant, "K\xff", ""),
		"a long name":     marks(tenant, "K", fmt.Sprint(300, fmt.Sprintf("%0300d", 1))),
		"another payment": {PaymentRefs: []string{"pay-2"}},
	} {
		if got, err := p.Heed(t.Context(), "simulator", h); err != nil || got != operations.HeededNotOurs {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, provider := range []string{"simulator", "stripe"} { // that can not be asked, and that nobody here knows
		if _, err := p.Heed(t.Context(), provider, marks(tenant, "K", "")); !errors.Is(err,
			operations.ErrProviderUnavailable) {
			t.Errorf("%s: %v", provider, err)
		}
	}
	if s := p.state("K").State; s != operations.StateReserved {
		t.Errorf("K is %s", s)
	}
}

// What is no proof changes nothing, but makes reconciliation look where nobody else would.
func TestHeed_WhatIsNoProof_IsLeftToReconciliation(t *testing.T) {
	p := newPaying(t)
	rest := func() { p.exec(`UPDATE refund_operations SET next_check_at = 'infinity', lease_until = '-infinity'`) }
	due := func(what string, want bool) {
		t.Helper()
		if got := p.count(`SELECT count(*) FROM refund_operations WHERE next_check_at <= now()`) == 1; got != want {
			t.Errorf("%s: due %v", what, got)
		}
	}
	p.fault("pending", 1, 3_600_000)
	p.lost("K")
	p.exec(`UPDATE refund_operations SET state = 'failed', failure_code = 'declined',
		settled_at = now()`) // as a decline believed wrongly
	rest()
	p.heeds(marks(tenant, "K", ""), operations.HeededUnchanged)
	due("failed, and pending there", true)
	p.exec(`UPDATE refund_operations SET state = 'reserved', failure_code = NULL, settled_at = NULL, amount_cents = 99`)
	rest()
	p.heeds(marks(tenant, "K", ""), operations.HeededUnchanged)
	due("another amount there", true)
	p.exec(`UPDATE refund_operations SET operation_id = 'L', provider_key = 'acme:L'`)
	rest()
	p.heeds(marks(tenant, "L", ""), operations.HeededUnchanged)
	due("not found there", false)
	if n := p.count(`SELECT count(*) FROM operation_events WHERE kind = 'lookup'`); n != 0 {
		t.Errorf("%d looks that found nothing new are in the history", n)
	}
}

func TestHeed_OfAPaymentOfManyRefunds_LooksAtSome(t *testing.T) {
	p := newPaying(t)
	for i := range 23 {
		p.lost(fmt.Sprint("K", i))
	}
	p.heeds(operations.Hint{PaymentRefs: []string{"pay-1"}}, operations.HeededApplied)
	if n := p.count(`SELECT count(*) FROM refund_operations WHERE state = 'succeeded'`); n != 20 {
		t.Errorf("%d of 23 were looked at, want 20", n)
	}
	p.call(http.MethodDelete, "/_faults", "")
}
