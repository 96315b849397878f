//go:build drill

// Package stopped stops processes at random while they refund, for longer than their leases, and lets them go on when
// somebody else has done their work and the provider has forgotten every key. It takes minutes, and finds what is rare.
package stopped

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

const (
	processes = 6
	each      = 70               // operations of one process
	lease     = 30 * time.Second // of a process with default flags
)

func TestA56_StoppedAtRandom_TheProviderExecutesOnce(t *testing.T) {
	s := harness.NewPaying(t) // default flags
	s.AddServer(t)
	tenant := s.OpenTenant(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var told harness.History
	var callers sync.WaitGroup
	var stopped []*harness.Server
	for p := range processes {
		server := harness.Serve(t, s.DB.ServiceURL, s.Flags...)
		stopped = append(stopped, server)
		payments := make([]harness.Payment, each)
		for i := range payments {
			payments[i] = harness.Payment{OrderID: fmt.Sprintf("K-%d-%d", p, i), Cents: 100}
		}
		tenant.Pay(payments...)
		for _, payment := range payments {
			operation := payment.OrderID
			callers.Go(func() { told.Ask(t, tenant.ClientOf(server), operation, operation, 100, 5*time.Minute) })
		}
		time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
		server.Pause(t)
	}
	if n := reserved(t, s); n == 0 {
		t.Error("no process was stopped with an operation in hand: nothing is proved")
	} else {
		t.Logf("%d operations were in hand", n)
	}
	time.Sleep(lease)
	for began := time.Now(); reserved(t, s) > 0; time.Sleep(time.Second) {
		s.Reconcile(t)
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d operations are never settled", reserved(t, s))
		}
	}
	s.Simulator.Forget()
	for _, server := range stopped {
		server.Resume(t)
	}
	callers.Wait()
	for _, server := range stopped {
		if code := server.Terminate(t); code != 0 {
			t.Errorf("a process that was stopped exits %d: %s", code, server.Logs.Text())
		}
	}
	told.Hold(t, s.Simulator.Ledger(), tenant.ProviderKey, harness.Patience{}) // a second refund fails the test
	s.Audit(t)
}

func reserved(t *testing.T, s *harness.Service) (n int) {
	t.Helper()
	err := s.DB.Owner.QueryRow(t.Context(), `SELECT count(*) FROM refund_operations WHERE state = 'reserved'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
