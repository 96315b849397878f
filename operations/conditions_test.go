package operations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
)

// Two tenants who have an order and an operation of the same names share nothing.
func TestSubmit_KnowsNoOtherTenant(t *testing.T) { onBothRoads(t, testSubmitKnowsNoOtherTenant) }

func testSubmitKnowsNoOtherTenant(t *testing.T, newBundle func(*testing.T) *bundle) {
	b := newBundle(t)
	b.order("P", 10000)
	mine := b.approve("K", "P", 4000)
	b.exec(`INSERT INTO tenants (tenant_id) VALUES ('rival')`)
	b.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents) VALUES ('rival', 'P', 'USD', 10000)`)
	theirs := mine
	theirs.TenantID = "rival"

	expectErr(t, b.submit(theirs), operations.ErrAuthorizationNotFound)
	_, err := b.Revoke(t.Context(), operations.Revocation{TenantID: "rival", OperationID: "K"})
	if !errors.Is(err, operations.ErrAuthorizationNotFound) {
		t.Errorf("the other's approval is withdrawn: %v", err)
	}
	expect(t, b.submit(mine), operations.StatusProcessed)
	b.exec(`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency,
		approved_by)
		VALUES ('rival', 'K', 'case-1', 'P', 4000, 'USD', 'bob')`)
	expect(t, b.submit(theirs), operations.StatusProcessed)
	b.approve("R", "P", 9)
	b.exec(`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency,
		approved_by)
		VALUES ('rival', 'R', 'case-1', 'P', 5, 'USD', 'bob')`)
	if _, err := b.Revoke(t.Context(), operations.Revocation{TenantID: "rival", OperationID: "R"}); err != nil {
		t.Error(err)
	}
	if n := b.count(`SELECT sum(amount_cents)::bigint FROM refund_operations WHERE operation_id = 'R'`); n != 5 {
		t.Errorf("an approval of %d was withdrawn", n)
	}
	for _, id := range []string{tenant, "rival"} {
		if n := b.count(`SELECT refunded_cents FROM orders WHERE tenant_id = $1`, id); n != 4000 {
			t.Errorf("%s gave back %d", id, n)
		}
	}
}

// An approval is compared with the clock once the order is there, not when the wait for it began.
func TestSubmit_AnApprovalThatExpiresWhileTheOrderIsAwaited_IsExpired(t *testing.T) {
	onBothRoads(t, testSubmitAnApprovalThatExpiresWhileTheOrderIsAwaitedIsExpired)
}

func testSubmitAnApprovalThatExpiresWhileTheOrderIsAwaitedIsExpired(t *testing.T,
	newBundle func(*testing.T) *bundle) {
	b := newBundle(t)
	b.order("P", 10000)
	r := b.approve("K", "P", 4000)
	holder := b.rival()
	holder.lock("P")
	refund := b.start(t.Context(), r)
	b.untilBlocked(1)
	b.exec(`UPDATE refund_authorizations SET expires_at = clock_timestamp()`)
	holder.commit()
	expectErr(t, wait(t, refund), operations.ErrAuthorizationExpired)
	if got := b.moved("P"); got != 0 {
		t.Errorf("moved %d", got)
	}
}

// Taking the lease of one tenant's operation leaves another tenant's of the same name alone.
func TestLease_IsOfOneTenantsOperation(t *testing.T) {
	p := newPaying(t)
	p.exec(`INSERT INTO tenants (tenant_id, require_authorization) VALUES ('rival', false)`)
	p.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
		VALUES ('rival', 'P', 'USD', 10000, 'simulator', 'pay-2')`)
	p.fault("drop_before", 2, 0)
	mine := p.pay("K", 4000)
	theirs := mine
	theirs.TenantID = "rival"
	expect(t, p.submit(mine), operations.StatusPending)
	expect(t, p.submit(theirs), operations.StatusPending)
	p.due()
	row := func() string {
		t.Helper()
		var text string
		err := p.db.Owner.QueryRow(t.Context(), `SELECT o::text FROM refund_operations o
			WHERE tenant_id = 'rival'`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := row()
	if op, err := p.Reconcile(t.Context(), tenant, "K"); err != nil || op.TenantID != tenant ||
		op.State != operations.StateSucceeded {
		t.Errorf("%+v, %v", op, err)
	}
	if diff := cmp.Diff(before, row()); diff != "" {
		t.Errorf("the other tenant's row changed (-before +after):\n%s", diff)
	}
}

// A state that was not written takes its transfers back.
func TestRecord_AStateThatIsNotWritten_TakesItsTransfersBack(t *testing.T) {
	p := newPaying(t)
	p.exec(`CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	p.exec(`CREATE TRIGGER swallowed BEFORE UPDATE ON refund_operations FOR EACH ROW WHEN (NEW.state <> OLD.state)
		EXECUTE FUNCTION swallow()`)
	expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
	p.books("K", 4000, "hold")
	p.exec(`DROP TRIGGER swallowed ON refund_operations`)
	p.due()
	p.reconcile()
	p.books("K", 4000, "hold", "settle")
	if diff := cmp.Diff(map[string]int{key: 1}, p.executed()); diff != "" {
		t.Errorf("provider (-want +got):\n%s", diff)
	}
}

// A holder whose lease ran out during its look sends nothing, whoever has the lease now, if anybody.
func TestResolve_ALeaseThatRanOutMeanwhile_SendsNothing(t *testing.T) {
	p := newPaying(t)
	p.fault("drop_before", 1, 0)
	expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
	p.due()
	l := p.claim(operations.Claim{})[0]
	p.exec(`UPDATE refund_operations SET lease_until = '-infinity'`)
	if r, err := p.Pursue(t.Context(), l); err != nil || r.Resent || r.Operation.State != operations.StateReserved {
		t.Errorf("%+v, %v", r, err)
	}
	if n := len(p.executed()); n != 0 {
		t.Errorf("%d refunds were executed", n)
	}
}

// Whoever sends again keeps the lease while the request is on its way.
func TestResolve_SendsAgainUnderItsLease(t *testing.T) {
	p := newPaying(t, func(c *operations.Config) { c.ProviderTimeout, c.Lease = 5*time.Second, 30*time.Second })
	p.fault("drop_before", 1, 0)
	expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
	p.due()
	p.fault("hang", 1, 1000)
	l := p.claim(operations.Claim{})[0]
	ended := make(chan error, 1)
	go func() {
		_, err := p.Pursue(t.Context(), l)
		ended <- err
	}()
	const sending = `SELECT count(*) FROM refund_operations WHERE last_send_ended > clock_timestamp()`
	p.until("it is sent again", func() bool { return p.count(sending) == 1 })
	if n := p.count(sending + ` AND lease_until <= clock_timestamp()`); n != 0 {
		t.Error("the lease is free while the request is on its way")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.books("K", 4000, "hold", "settle")
}

// nameless is a provider whose answers to requests name the refund by what is no name.
type nameless struct{ operations.Provider }

func (n nameless) Refund(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	result, err := n.Provider.Refund(ctx, r)
	result.ProviderRefundID = "re\u202e_1"
	return result, err
}

// What a provider calls its refund and is no name is not stored; its books tell what became of it.
func TestRecord_ANameThatIsNone_ProvesNothing(t *testing.T) {
	p := newPaying(t, func(c *operations.Config) {
		setup := c.Providers["simulator"]
		setup.Provider = nameless{setup.Provider}
		c.Providers["simulator"] = setup
	})
	expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
	if op := p.state("K"); op.ProviderRefundID != nil {
		t.Errorf("stored %q", *op.ProviderRefundID)
	}
	p.due()
	p.reconcile()
	if op := p.state("K"); op.State != operations.StateSucceeded || op.ProviderRefundID == nil {
		t.Errorf("%+v", op)
	}
}
