package operations_test

import (
	"errors"
	"testing"
	"time"

	"refundd/operations"
)

// The history that was lost may have sent a reservation a moment ago, whatever its row says of the last send: until the
// provider's listing surely shows that, a look that shows nothing proves nothing.
func TestAfterRestore_WhatWasSentInTheLostHistory_IsNotFailedWithinTheLag(t *testing.T) {
	p := newPaying(t)
	p.fault("lookup_lag", 10, 3600_000)
	p.fault("drop_after", 1, 0)
	expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
	// The row is that of an old backup: nothing was sent for long, and a human is to be told for its age.
	p.exec(`UPDATE refund_operations SET last_send_ended = now() - interval '1 hour',
		created_at = now() - interval '100 hours'`)
	if _, err := operations.AfterRestore(t.Context(), p.db.Pool, time.Hour); err != nil {
		t.Fatal(err)
	}
	p.due()
	p.reconcile()
	if got := p.state("K").State; got != operations.StateNeedsAttention {
		t.Fatalf("it is %s", got)
	}
	failed := operations.Decision{TenantID: tenant, OperationID: "K", Evidence: "its books show nothing", Actor: "key"}
	op, err := p.Resolve(t.Context(), failed)
	if !errors.Is(err, operations.ErrInProgress) {
		t.Errorf("a human's word makes it %s (%v)", op.State, err)
	}
	p.call("DELETE", "/_faults", "")
	p.due()
	p.reconcile()
	p.books("K", 4000, "hold", "settle")
}
