package crash

import (
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
)

// A process is suspended at each place for longer than its lease. Meanwhile reconciliation ends what it had in hand,
// and the provider forgets every key, so that whatever the process still sends when it wakes up is a second refund.
func TestSuspended_ForLongerThanTheLease_DoesNoHarmWhenItWakes(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	s := harness.NewPaying(t, "--provider-timeout", "1s", "--lease", lease.String(), "--listing-lag", "1ms",
		"--provider-breaker-failures", "1000000", "--pool-size", "4")
	s.AddServer(t)
	d := &dormitory{t: t, service: s, tenant: s.OpenTenant(t)}
	for _, place := range []string{"reserve.committed", "send.begun", "send.admitted", "send.admitted", "send.answered",
		"record.committed"} {
		d.suspend(place, "", false)
	}
	d.suspend("send.answered", "decline", false)
	d.suspend("send.answered", "error_before", false)
	for _, place := range []string{"resolve.begun", "lookup.answered", "resend.decided", "send.admitted",
		"send.admitted"} {
		d.suspend(place, "", true)
	}
	time.Sleep(lease)
	d.settle()
	s.Simulator.Forget()
	for _, p := range d.sleepers {
		p.Resume(t)
	}
	d.callers.Wait()
	for _, p := range d.sleepers {
		if code := p.Terminate(t); code != 0 {
			t.Errorf("a process that slept exits %d: %s", code, p.Logs.Text())
		}
	}
	d.told.Hold(t, s.Simulator.Ledger(), d.tenant.ProviderKey, harness.Patience{}) // a second refund fails the test
	s.Audit(t)
}

// dormitory is processes that sleep, each with one operation in hand.
type dormitory struct {
	t        *testing.T
	service  *harness.Service
	tenant   *harness.Tenant
	told     harness.History
	callers  sync.WaitGroup
	sleepers []*harness.Process
}

// suspend lets a process fall asleep at a place, with an operation that is new or was lost before it was executed.
func (d *dormitory) suspend(place, fault string, lost bool) {
	d.t.Helper()
	operation := "K" + string(rune('a'+len(d.sleepers)))
	d.tenant.Pay(harness.Payment{OrderID: operation, Cents: cents})
	if lost {
		d.service.Simulator.Fault("error_before", harness.Times(1))
		d.told.Ask(d.t, d.tenant.Client(), operation, operation, cents, time.Minute)
		d.tenant.Exec(`UPDATE refund_operations SET lease_until = '-infinity' WHERE operation_id = $1`, operation)
	}
	if fault != "" {
		d.service.Simulator.Fault(fault, harness.Times(1))
	}
	server := harness.ServeIn(d.t, d.service.DB.ServiceURL, []string{"REFUNDD_FAILPOINT=" + place + ":1:stop"},
		d.service.Flags...)
	asleep := make(chan struct{})
	d.callers.Go(func() {
		for { // a busy machine may answer that the provider takes too long
			d.told.Ask(d.t, d.tenant.ClientOf(server), operation, operation, cents, time.Minute)
			select {
			case <-asleep:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	_, err := server.Logs.Await(time.Minute, nil, "failpoint "+place)
	close(asleep)
	if err != nil {
		d.t.Fatalf("%s: %v\n%s\n%s", operation, err, server.Logs.Text(), d.tenant.Rows())
	}
	d.sleepers = append(d.sleepers, server.Process)
}

// settle lets reconciliation end everything: a decline is sent again, doubted, looked up and believed.
func (d *dormitory) settle() {
	d.t.Helper()
	settled := 0
	for round := 0; round < 12 && settled < len(d.sleepers); round++ {
		d.service.Due(d.t)
		d.service.Reconcile(d.t)
		settled = 0
		for _, r := range rowsOf(d.t, d.service) {
			if r.State == "succeeded" || r.State == "failed" {
				settled++
			}
		}
	}
	if executed := len(d.service.Simulator.Ledger()); settled != len(d.sleepers) || executed != len(d.sleepers)-1 {
		d.t.Errorf("of %d operations %d are settled, and %d executed\n%s", len(d.sleepers), settled, executed,
			d.tenant.Rows())
	}
}
