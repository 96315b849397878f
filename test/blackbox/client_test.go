package blackbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"refundd/client"
	"refundd/test/harness"
)

// Callers whose network loses every third answer get one truth each, and every refund is executed once.
func TestClient_BehindALossyNetwork_TellsTheTruth(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	const operations = 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	network := harness.NewLossy(t, p.Service.Servers[0].URL, func() (bool, bool) {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(8) == 0, random.IntN(3) == 0
	})
	oneEach := http.DefaultTransport.(*http.Transport).Clone()
	oneEach.DisableKeepAlives = true
	refunds, err := client.New(client.Config{
		BaseURL: network.URL, APIKey: p.Tenant.Key, Transport: oneEach,
		RetryBurst: 10 * operations, BreakerFailures: 1_000_000, Deadline: 45 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	var told atomic.Int64
	for i := range operations {
		id := fmt.Sprint("L", i)
		p.Pay(harness.Payment{OrderID: id, Cents: 100})
		callers.Go(func() {
			r, err := refunds.Refund(t.Context(), client.RefundRequest{OperationID: id, OrderID: id, AmountCents: 100})
			switch {
			case err == nil && r.MoneyMoved == client.MoneyMovedYes:
				told.Add(1)
			case err == nil && r.Status == client.StatusPending, errors.Is(err, client.ErrUnknown):
			default:
				t.Errorf("%s: %+v, %v", id, r, err)
			}
		})
	}
	callers.Wait()
	if network.Losses() == 0 || told.Load() == 0 {
		t.Fatalf("%d losses, %d of %d told of their success: nothing was tried", network.Losses(), told.Load(),
			operations)
	}
	for i := range operations { // whatever is unknown yet: the same call again ends it
		id := fmt.Sprint("L", i)
		p.Client.Refund(id, id, 100)
	}
	p.executed(names("L", operations)...)
	p.Service.Audit(t)
}
