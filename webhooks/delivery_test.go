package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
	"refundd/webhooks"
)

func TestDelivery_TellsEachTransitionAsItWasSigned(t *testing.T) {
	t.Parallel()
	b, r := newBundle(t), accepting(t)
	_, secret := b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "op-1")
	b.move(t, tenant, operations.StatePending, "op-1")
	b.move(t, tenant, operations.StateSucceeded, "op-1")
	b.move(t, tenant, operations.StateFailed, "op-1") // all of it before the first is sent
	b.deliver(t)
	messages := r.await(t, 3)
	want := []string{"op-1 refund.pending", "op-1 refund.succeeded", "op-1 refund.failed"}
	if d := cmp.Diff(want, r.told()); d != "" {
		t.Error(d)
	}
	for i, g := range messages {
		if err := verifies(t, secret, g); err != nil {
			t.Errorf("%s: %v", g.told(), err)
		}
		if g.ID != g.EventID || g.ID == "" || strings.Contains(g.ID, ".") {
			t.Errorf("webhook-id %q, event_id %q", g.ID, g.EventID)
		}
		state := []string{"pending", "succeeded", "failed"}[i]
		moved := []string{"unknown", "yes", "no"}[i]
		if g.Data.State != state || g.Data.MoneyMoved != moved || (g.Data.FailureCode != nil) != (state == "failed") ||
			(g.Data.SettledAt == nil) != (state == "pending") || *g.Data.ProviderRefundID != "re_acmeop-1" ||
			g.Data.AmountCents != 100 {
			t.Errorf("%s", g.body)
		}
	}
}

// Of an operation one event waits for the earlier one; others do not wait for it.
func TestDelivery_KeepsTheOrderOfAnOperationThroughFailures(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := newReceiver(t, func(g got, nth int) int {
		if g.told() == "op-1 refund.pending" && nth == 0 {
			return 500
		}
		return 200
	})
	e, _ := b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "op-1", "op-2")
	b.deliver(t)
	b.move(t, tenant, operations.StatePending, "op-1", "op-2")
	b.move(t, tenant, operations.StateSucceeded, "op-1", "op-2")
	r.await(t, 3)
	b.move(t, tenant, operations.StateFailed, "op-1")
	b.exec(t, `UPDATE webhook_deliveries SET next_attempt_at = now() WHERE attempts > 0`) // time goes by
	b.exec(t, `UPDATE webhook_endpoints SET due_at = now()`)
	r.await(t, 6)
	first := func(s string) int { return slices.Index(r.told(), s) }
	if told := r.told(); strings.Count(strings.Join(told, ","), "op-1 refund.pending") != 2 ||
		first("op-2 refund.succeeded") > first("op-1 refund.succeeded") ||
		first("op-1 refund.succeeded") > first("op-1 refund.failed") ||
		first("op-1 refund.succeeded") < 0 {
		t.Errorf("%q", told)
	}
	eventually(t, "end of all deliveries", func() (bool, string) {
		n := read[int](t, b, `SELECT count(*) FROM webhook_deliveries WHERE state <> 'delivered'`)
		return n == 0 && read[int64](t, b, `SELECT position FROM webhook_endpoints`) == 5, ""
	})
	found, _, err := b.box.Deliveries(t.Context(), keyOf(e), nil, operations.Page{Limit: 10})
	if err != nil || len(found) != 3 || found[2].Attempts != 2 || found[0].Type != webhooks.RefundFailed {
		t.Errorf("%+v, %v", found, err)
	}
}
