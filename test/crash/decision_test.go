package crash

import (
	"testing"
	"time"

	"refundd/test/harness"
)

// A person's decision, and a look that was asked for, are as good as what was seen under the lease: a process that
// sleeps between the look and the record until its lease has run out records nothing of them, though nobody took the
// lease since.
func TestA61_WhoSleptPastItsLease_RecordsNoDecision(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	s := harness.NewPaying(t, "--provider-timeout", "1s", "--lease", lease.String(), "--listing-lag", "1ms",
		"--provider-breaker-failures", "1000000")
	s.AddServer(t)
	tenant := s.OpenTenant(t)
	attention := func(operation string) {
		tenant.Pay(harness.Payment{OrderID: operation, Cents: cents})
		s.Simulator.Fault("error_before", harness.Times(1))
		tenant.Client().Refund(operation, operation, cents)
		tenant.Exec(`UPDATE refund_operations SET state = 'needs_attention', failure_code = 'outcome_overdue',
			lease_until = '-infinity'
			WHERE operation_id = $1`, operation)
	}
	attention("K")
	attention("L")
	tenant.Exec(`UPDATE refund_operations SET state = 'reserved', failure_code = NULL,
		provider_key_expires_at = clock_timestamp()
		WHERE operation_id = 'L'`) // a look that finds nothing puts it in front of a human
	for _, c := range []struct {
		place, path string
		body        harness.Fields
		operation   string
		state       string
	}{
		{"settle.looked", "/resolve", harness.Fields{"outcome": "failed", "evidence": "seen"}, "K", "needs_attention"},
		{"lookup.answered", "/reconcile", harness.Fields{}, "L", "reserved"},
	} {
		server := harness.ServeIn(t, s.DB.ServiceURL, []string{"REFUNDD_FAILPOINT=" + c.place + ":1:stop"}, s.Flags...)
		answered := make(chan harness.Answer, 1)
		go func() { answered <- tenant.ClientOf(server).Post(harness.RefundPath(c.operation)+c.path, c.body) }()
		if _, err := server.Logs.Await(time.Minute, nil, "failpoint "+c.place); err != nil {
			t.Fatalf("%s: %v\n%s", c.place, err, server.Logs.Text())
		}
		time.Sleep(lease)
		server.Resume(t)
		a := <-answered
		if says := a.Says(); c.path == "/resolve" && says != "operation_in_progress" {
			t.Errorf("the person is told %d %s", a.Status, a.Body)
		}
		if row := rowsOf(t, s)[c.operation]; row.State != c.state {
			t.Errorf("%s is %s, though its holder slept: %s", c.operation, row.State, tenant.Rows())
		}
	}
	time.Sleep(10 * time.Millisecond)
	a := tenant.Client().Post(harness.RefundPath("K")+"/resolve",
		harness.Fields{"outcome": "failed", "evidence": "seen again"})
	if a.Says() != "200" || rowsOf(t, s)["K"].State != "failed" {
		t.Errorf("awake it is told %d %s", a.Status, a.Body)
	}
	s.Audit(t)
}
