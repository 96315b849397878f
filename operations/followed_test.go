package operations_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/operations"
)

// What a refund at a provider comes to is told in its transaction; that it was reserved, and each attempt, is told
// nobody.
func TestOnEvents_IsToldOfTheStatesItFollows(t *testing.T) {
	var seen []operations.Event
	p := newPaying(t, recordEvents(&seen))
	expect(t, p.submit(p.approve("paid", "P", 4000)), operations.StatusProcessed)
	p.fault("decline", 1, 0)
	expectErr(t, p.submit(p.approve("declined", "P", 1)), operations.ErrDeclined)
	p.fault("hang", 1, 5000)
	expect(t, p.submit(p.approve("lost", "P", 1)), operations.StatusPending)

	var told []string
	for _, ev := range seen {
		told = append(told, fmt.Sprintf("%s from %s to %s", ev.OperationID, *ev.FromState, *ev.ToState))
	}
	want := []string{"paid from reserved to succeeded", "declined from reserved to failed"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestNew_RefusesAHookWithoutStates_AndOneOfReservations(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var seen []operations.Event
	for name, change := range map[string]func(*operations.Config){
		"no states":    func(c *operations.Config) { c.Followed = nil },
		"no hook":      func(c *operations.Config) { c.OnEvents = nil },
		"reservations": func(c *operations.Config) { c.Followed = []operations.State{operations.StateReserved} },
	} {
		c := operations.Config{Pool: pool}
		recordEvents(&seen)(&c)
		if _, err := operations.New(c); err != nil {
			t.Errorf("the hook alone: %v", err)
		}
		change(&c)
		if _, err := operations.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// on_refunds_claimed hears of each refund without a provider once, in the transaction that makes it succeed.
func TestOnRefundsClaimed_HearsOfEachOnce(t *testing.T) {
	p := newPaying(t)
	p.free()
	p.order("L", 100)
	p.exec(`CREATE TABLE heard (tenant_id text, operation_id text, at timestamptz, state text, debits bigint)`)
	p.exec(`CREATE OR REPLACE FUNCTION on_refunds_claimed(tenants text[], operations text[],
		at timestamptz) RETURNS void
		LANGUAGE sql SECURITY DEFINER AS $$
			INSERT INTO heard SELECT k.tenant, k.operation, at, o.state, (SELECT count(*) FROM ledger_transfers t
				WHERE t.tenant_id = k.tenant AND t.operation_id = k.operation)
			FROM unnest(tenants, operations) AS k (tenant, operation)
			JOIN refund_operations o ON o.tenant_id = k.tenant AND o.operation_id = k.operation
				AND o.created_at = at $$`)
	var started []<-chan outcome
	for i := range 30 {
		for range 2 { // of which one is a replay
			r := operations.Request{TenantID: tenant, OperationID: fmt.Sprint("L-", i), OrderID: "L", AmountCents: 1}
			started = append(started, p.start(t.Context(), r))
		}
	}
	paid := operations.Request{TenantID: tenant, OperationID: "at-a-provider", OrderID: "P", AmountCents: 1}
	started = append(started, p.start(t.Context(), paid))
	for _, done := range started {
		if o := wait(t, done); o.err != nil {
			t.Error(o.err)
		}
	}
	expectErr(t, p.submit(operations.Request{TenantID: tenant, OperationID: "too-much", OrderID: "L",
		AmountCents: 100}),
		operations.ErrAmountExceedsRefundable)
	right := p.count(`SELECT count(DISTINCT operation_id) FROM heard WHERE state = 'succeeded' AND debits = 1
		AND operation_id LIKE 'L-%'`)
	if all := p.count(`SELECT count(*) FROM heard`); right != 30 || all != 30 {
		t.Errorf("heard of %d refunds, of which %d as they stand, want 30", all, right)
	}
}
