package webhooks_test

import (
	"fmt"
	"testing"
	"time"

	"refundd/api"
	"refundd/internal/embedpg"
	"refundd/operations"
	"refundd/test/testdb"
	"refundd/webhooks"
)

// queue tells as many transitions of refunds of a tenant.
func (b *bundle) queue(t *testing.T, tenantID string, events int) {
	t.Helper()
	ids := make([]string, events)
	for i := range ids {
		ids[i] = fmt.Sprintf("op-%03d", i)
	}
	b.reserve(t, tenantID, ids...)
	b.move(t, tenantID, operations.StatePending, ids...)
}

// What was sent is recorded at once, however long the process has to wait until it may send again: else its leases
// would run out meanwhile, and others send the same. The pace holds on average.
func TestPace_KeepsNobodyFromRecordingWhatWasSent(t *testing.T) {
	t.Parallel()
	b, r := newBundle(t), accepting(t)
	for range 3 {
		b.endpoint(t, tenant, r.URL)
		b.endpoint(t, "other", r.URL)
	}
	b.queue(t, tenant, 200)
	b.queue(t, "other", 200)
	started := time.Now()
	b.run(t, webhooks.CourierConfig{Outbox: b.box, Body: api.WebhookBody, Rate: 10})
	r.await(t, 100)
	began := time.Now()
	eventually(t, "record of what was sent", func() (bool, string) {
		sent, recorded := len(r.messages()), read[int](t, b, `SELECT sum(position)::int FROM webhook_endpoints`)
		return recorded >= sent, fmt.Sprintf("%d of %d", recorded, sent)
	})
	if took := time.Since(began); took > 5*time.Second { // not a single one of these waits
		t.Errorf("recorded after %v", took)
	}
	time.Sleep(time.Second)
	// A few rounds of 64 may begin together, and are paid afterwards.
	if n, most := len(r.messages()), 4*64+int(10*time.Since(started).Seconds()); n > most {
		t.Errorf("%d messages in %v, want %d at most", n, time.Since(started), most)
	}
	seen := map[string]int{}
	for _, g := range r.messages() {
		if seen[g.ID]++; seen[g.ID] > 3 {
			t.Errorf("%s came %d times to three endpoints", g.ID, seen[g.ID])
		}
	}
}

// A round's record may be lost with the server. What was told is told again then, and nothing else; the log is as it
// was.
func TestDelivery_GoesOnAfterTheServerWasLost(t *testing.T) {
	t.Parallel()
	server := testdb.Start(t, embedpg.Options{Durable: true})
	b, r := newBundleOn(t, testdb.NewIn(t, server)), accepting(t)
	b.endpoint(t, tenant, r.URL)
	b.queue(t, tenant, 300)
	b.deliver(t)
	r.await(t, 100)
	log, cursor := b.follow(t, tenant, "")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.db.Owner.Reset()                                                  // its connections are of the server that was lost
	b.exec(t, `UPDATE webhook_endpoints SET lease_until = '-infinity'`) // time goes by
	b.move(t, tenant, operations.StateSucceeded, "op-000", "op-299")
	eventually(t, "all events", func() (bool, string) {
		told := map[string]bool{}
		for _, g := range r.messages() {
			told[g.ID] = true
		}
		return len(told) == 302, fmt.Sprint(len(told))
	})
	if again, _ := b.follow(t, tenant, ""); len(again) != 302 || fmt.Sprint(again[:300]) != fmt.Sprint(log) {
		t.Errorf("the log was %d events, and is %d", len(log), len(again))
	}
	if more, _ := b.follow(t, tenant, cursor); len(more) != 2 {
		t.Errorf("behind the cursor: %q", more)
	}
}
