// Package blackbox attacks refundd's promises from outside: real processes, real HTTP, a real Postgres. Each test is
// named by the number of a case that broke refund services in the field; each varies its inputs, because the whole kind
// of fault must not exist.
package blackbox

import (
	"flag"
	"sync"
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) {
	// Defaults, which the command line may change. Most tests wait for the servers, more of them than there are
	// processors; the state machine's share of the time is bounded, and its failure prints its seed.
	for name, value := range map[string]string{"test.parallel": "6", "rapid.checks": "25", "rapid.steps": "25",
		"rapid.nofailfile": "true", "rapid.shrinktime": "10s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	testdb.Main(harness.Run(m))
}

// together runs f for 0 to n-1 at once: all wait until all are there.
func together(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			f(i)
		})
	}
	done.Wait()
}

// want fails the test where an answer is not the one wanted, by Says.
func want(t *testing.T, a harness.Answer, says string) {
	t.Helper()
	if got := a.Says(); got != says {
		t.Errorf("answer %s, want %s: %d %.500s", got, says, a.Status, a.Body)
	}
}

// wantMoved fails the test where an order's ledger debits are not cents.
func wantMoved(t *testing.T, tenant *harness.Tenant, orderID string, cents int64) {
	t.Helper()
	if got := tenant.Moved(orderID); got != cents {
		t.Errorf("moved %d of order %s, want %d", got, orderID, cents)
	}
}

// unchanged fails the test where f changes a row of the tenant's.
func unchanged(t *testing.T, tenant *harness.Tenant, f func()) {
	t.Helper()
	before := tenant.Rows()
	f()
	if after := tenant.Rows(); after != before {
		t.Errorf("rows changed\nbefore %s\nafter %s", before, after)
	}
}
