package webhooks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"refundd/operations"
	"refundd/webhooks"
)

// Forty endpoints of two tenants hang, and one more answers.
func TestEndpoints_ThatHangDelayNoOther(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	hanging := newReceiver(t, func(got, int) int { return 0 })
	works := accepting(t)
	for range webhooks.MaxEndpoints - 1 {
		b.endpoint(t, tenant, hanging.URL)
		b.endpoint(t, "other", hanging.URL)
	}
	b.endpoint(t, tenant, works.URL)
	ids := make([]string, 40)
	for i := range ids {
		ids[i] = fmt.Sprint("op-", i)
	}
	b.reserve(t, tenant, ids...)
	b.reserve(t, "other", ids...)
	b.deliver(t)
	b.move(t, "other", operations.StatePending, ids...)
	began := time.Now()
	for _, id := range ids {
		b.move(t, tenant, operations.StatePending, id)
	}
	works.await(t, len(ids))
	if took := time.Since(began); took > 9*time.Second { // a hanging one is given 10 s
		t.Errorf("%d events took %v", len(ids), took)
	}
	eventually(t, "hanging endpoints", func() (bool, string) { return len(hanging.messages()) > 38, "" })
	if n := len(hanging.messages()); n > 38*16 {
		t.Errorf("%d messages to endpoints that hang", n)
	}
}

// Where nothing is taken, one message at a time is tried, less and less often; once it is back, everything arrives.
func TestEndpoints_ThatFailAreTriedWithOneMessage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	back := make(chan struct{})
	r := newReceiver(t, func(got, int) int {
		select {
		case <-back:
			return 200
		default:
			return 503
		}
	})
	e, _ := b.endpoint(t, tenant, r.URL)
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprintf("op-%02d", i)
	}
	b.reserve(t, tenant, ids...)
	b.move(t, tenant, operations.StatePending, ids...)
	stop := b.deliver(t)
	eventually(t, "failing endpoint", func() (bool, string) {
		e, err := b.box.Endpoint(t.Context(), keyOf(e))
		return err == nil && e.FailingSince != nil && len(r.messages()) > 1, fmt.Sprintf("%+v, %v", e, err)
	})
	before := len(r.messages())
	if before > 20 {
		t.Errorf("%d messages at once", before)
	}
	close(back)
	b.exec(t, `UPDATE webhook_endpoints SET failures = 5, paused_until = '-infinity'`) // it was away for longer
	eventually(t, "all events taken", func() (bool, string) {
		taken := map[string]bool{}
		for _, g := range r.messages()[before:] {
			taken[g.ID] = true
		}
		return len(taken) == 100, fmt.Sprint(len(taken))
	})
	stop()
	if n := read[int](t, b, `SELECT count(*) FROM webhook_deliveries WHERE state = 'queued'`); n != 0 {
		t.Errorf("%d deliveries still queued", n)
	}
	if e, err := b.box.Endpoint(t.Context(), keyOf(e)); err != nil || e.FailingSince != nil {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestEndpoints_AreDisabledAfterThreeDaysWithoutSuccess(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	answer := make(chan int, 1)
	answer <- 500
	r := newReceiver(t, func(got, int) int { s := <-answer; answer <- s; return s })
	e, _ := b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "op-1", "op-2")
	b.move(t, tenant, operations.StatePending, "op-1")
	b.deliver(t)
	r.await(t, 1)
	eventually(t, "first failure", func() (bool, string) {
		return read[int](t, b, `SELECT failures FROM webhook_endpoints`) == 1, ""
	})
	if e, err := b.box.Endpoint(t.Context(), keyOf(e)); err != nil || e.DisabledAt != nil {
		t.Errorf("disabled by one failure: %+v, %v", e, err)
	}
	b.exec(t, `UPDATE webhook_endpoints SET failing_since = now() - interval '73 hours', due_at = now(),
		paused_until = '-infinity'`)
	b.exec(t, `UPDATE webhook_deliveries SET next_attempt_at = now(), first_attempt_at = now() - interval '73 hours'`)
	eventually(t, "disabled endpoint", func() (bool, string) {
		e, err := b.box.Endpoint(t.Context(), keyOf(e))
		return err == nil && e.DisabledAt != nil && *e.DisabledBecause == webhooks.Unreachable, fmt.Sprintf("%+v", e)
	})
	b.move(t, tenant, operations.StateSucceeded, "op-1")
	b.move(t, tenant, operations.StatePending, "op-2")
	time.Sleep(time.Second)
	before := len(r.messages())
	<-answer
	answer <- 200
	if _, err := b.box.Enable(t.Context(), keyOf(e)); err != nil {
		t.Fatal(err)
	}
	messages := r.await(t, before+3)
	told := messages[before].told() + ", " + messages[before+1].told() + ", " + messages[before+2].told()
	if before != 2 && before != 3 || !strings.Contains(told, "op-1 refund.succeeded") ||
		strings.Index(told, "op-1 refund.pending") > strings.Index(told, "op-1 refund.succeeded") {
		t.Errorf("%d before, then %s", before, told)
	}
}

// One event that is refused for three days, while others are taken, is given up alone; those behind it follow.
func TestEndpoints_GoOnWithoutWhatTheyRefuse(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := newReceiver(t, func(g got, _ int) int {
		if g.told() == "op-1 refund.pending" {
			return 422
		}
		return 200
	})
	e, _ := b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "op-1", "op-2")
	b.deliver(t)
	b.move(t, tenant, operations.StatePending, "op-1")
	b.move(t, tenant, operations.StateSucceeded, "op-1")
	b.move(t, tenant, operations.StatePending, "op-2")
	r.await(t, 2)
	eventually(t, "parked event",
		func() (bool, string) { return read[int](t, b, `SELECT count(*) FROM webhook_deliveries`) == 2, "" })
	b.exec(t, `UPDATE webhook_deliveries SET next_attempt_at = now(), first_attempt_at = now() - interval '73 hours'
		WHERE attempts > 0`)
	b.exec(t, `UPDATE webhook_endpoints SET due_at = now(), paused_until = '-infinity'`)
	r.await(t, 4)
	if told := r.told(); told[3] != "op-1 refund.succeeded" || slices.Index(told, "op-2 refund.pending") > 1 {
		t.Errorf("%q", told)
	}
	eventually(t, "event given up", func() (bool, string) {
		given := webhooks.GivenUp
		found, _, err := b.box.Deliveries(t.Context(), keyOf(e), &given, operations.Page{Limit: 5})
		return err == nil && len(found) == 1 && *found[0].LastStatus == 422 &&
			*found[0].LastResult == webhooks.ResultRefused, fmt.Sprint(found, err)
	})
	if e, err := b.box.Endpoint(t.Context(), keyOf(e)); err != nil || e.DisabledAt != nil {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestEndpoints_ThatAreGoneAreDisabledAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := newReceiver(t, func(got, int) int { return 410 })
	e, _ := b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "op-1")
	b.move(t, tenant, operations.StatePending, "op-1")
	b.deliver(t)
	eventually(t, "disabled endpoint", func() (bool, string) {
		e, err := b.box.Endpoint(t.Context(), keyOf(e))
		return err == nil && e.DisabledAt != nil && *e.DisabledBecause == webhooks.Gone, fmt.Sprintf("%+v", e)
	})
	time.Sleep(500 * time.Millisecond)
	if n := len(r.messages()); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// What is asked of an endpoint while a message is on its way holds for the next one.
func TestEndpoints_ChangeWhileMessagesAreOnTheirWay(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(t *testing.T, b *bundle, e webhooks.Endpoint) webhooks.Secret{
		"deleted": func(t *testing.T, b *bundle, e webhooks.Endpoint) webhooks.Secret {
			_, err := b.box.Delete(t.Context(), keyOf(e))
			return fatal(t, webhooks.Secret{}, err)
		},
		"disabled": func(t *testing.T, b *bundle, e webhooks.Endpoint) webhooks.Secret {
			_, err := b.box.Disable(t.Context(), keyOf(e))
			return fatal(t, webhooks.Secret{}, err)
		},
		"rotated": func(t *testing.T, b *bundle, e webhooks.Endpoint) webhooks.Secret {
			_, secret, err := b.box.Rotate(t.Context(), keyOf(e), time.Hour)
			return fatal(t, secret, err)
		},
		"cut": func(t *testing.T, b *bundle, e webhooks.Endpoint) webhooks.Secret {
			_, secret, err := b.box.Rotate(t.Context(), keyOf(e), 0)
			return fatal(t, secret, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			release := make(chan struct{})
			r := newReceiver(t, func(got, int) int { <-release; return 200 })
			e, old := b.endpoint(t, tenant, r.URL)
			b.reserve(t, tenant, "op-1")
			b.move(t, tenant, operations.StatePending, "op-1")
			b.move(t, tenant, operations.StateSucceeded, "op-1")
			b.deliver(t)
			r.await(t, 1)
			secret := act(t, b, e)
			close(release)
			if name == "deleted" || name == "disabled" {
				time.Sleep(700 * time.Millisecond)
				if told := r.told(); len(told) != 1 {
					t.Errorf("%q", told)
				}
				if n := read[int64](t, b, `SELECT position FROM webhook_endpoints`); n != 1 {
					t.Errorf("%d events recorded as taken", n)
				}
				return
			}
			next := r.await(t, 2)[1]
			if err := verifies(t, secret, next); err != nil {
				t.Errorf("by the new secret: %v", err)
			}
			if err := verifies(t, old, next); (err == nil) != (name == "rotated") {
				t.Errorf("by the old secret: %v", err)
			}
		})
	}
}

func fatal[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEndpoints_GetTheTypesThatTheyWant(t *testing.T) {
	t.Parallel()
	b, some, all := newBundle(t), accepting(t), accepting(t)
	b.endpoint(t, tenant, some.URL, "refund.failed")
	b.endpoint(t, tenant, all.URL)
	ids := make([]string, 70) // more than a round looks at
	for i := range ids {
		ids[i] = fmt.Sprint("op-", i)
	}
	b.reserve(t, tenant, append(ids, "bad")...)
	b.move(t, tenant, operations.StatePending, ids...)
	b.move(t, tenant, operations.StateFailed, "bad")
	b.deliver(t)
	all.await(t, 71)
	some.await(t, 1)
	if told := some.told(); len(told) != 1 || told[0] != "bad refund.failed" {
		t.Errorf("%q", told)
	}
	e := read[string](t, b, `SELECT event_id::text FROM webhook_events WHERE operation_id = 'bad'`)
	queued, err := b.box.Redeliver(t.Context(), webhooks.Redelivery{TenantID: tenant, EventID: e})
	if err != nil || len(queued) != 2 {
		t.Fatalf("%+v, %v", queued, err)
	}
	again := some.await(t, 2)
	if again[0].ID != again[1].ID ||
		again[0].header.Get("Webhook-Timestamp") > again[1].header.Get("Webhook-Timestamp") {
		t.Errorf("%v, then %v", again[0].header, again[1].header)
	}
}
