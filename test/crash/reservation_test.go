package crash

import (
	"testing"
	"time"

	"refundd/test/harness"
)

// The lease of whoever was killed runs out by itself: until then callers are told to wait, then the caller's retry, or
// reconciliation, takes it up. Only the lease's own time passes here.
func TestA20_KillBetweenReservationAndCall_ResumesOnceTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second
	for _, by := range []string{"caller", "reconciliation"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := harness.NewPaying(t, "--provider-timeout", "1s", "--lease", lease.String())
			steady, tenant := s.AddServer(t), s.OpenTenant(t)
			tenant.Pay(harness.Payment{OrderID: "P", Cents: cents})
			doomed := harness.ServeIn(t, s.DB.ServiceURL, []string{"REFUNDD_FAILPOINT=send.begun"}, s.Flags...)
			var h harness.History
			began := time.Now()
			if said, heard := h.Ask(t, tenant.ClientOf(doomed), "K", "P", cents, time.Minute); heard {
				t.Errorf("the server that was to be killed answers %+v", said)
			}
			if code := doomed.End(t); code != -1 {
				t.Errorf("the server that was to be killed exits %d", code)
			}
			c := tenant.ClientOf(steady)
			waits := 0
			for said := (harness.Told{}); said.Says != "processed" &&
				said.Says != "already_processed"; time.Sleep(100 * time.Millisecond) {
				if by == "reconciliation" {
					s.Reconcile(t)
				}
				said, _ = h.Ask(t, c, "K", "P", cents, time.Minute)
				switch said.Says {
				case "operation_in_progress":
					waits++
				case "processed", "already_processed":
					if took := time.Since(began); took < lease {
						t.Errorf("resumed after %v, while the lease was live", took)
					}
				case "pending": // for a second after the lease callers leave it alone
				default:
					t.Errorf("told %+v", said)
				}
				if time.Since(began) > 6*lease {
					t.Fatalf("%s for ever", said.Says)
				}
			}
			if waits == 0 {
				t.Error("nobody was told to wait")
			}
			h.Hold(t, s.Simulator.Ledger(), tenant.ProviderKey, harness.Patience{})
			s.Audit(t)
		})
	}
}
