package blackbox

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"refundd/client"
	"refundd/test/harness"
)

// lossy stands between callers and a server: of some connections it cuts the answer off, of some the request.
type lossy struct {
	net.Listener
	to     string
	cut    func() (request, answer bool)
	losses atomic.Int64
}

func newLossy(t *testing.T, to string, cut func() (request, answer bool)) *lossy {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{Listener: l, to: to, cut: cut}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.carry(conn) })
		}
	})
	return p
}

// carry takes one connection, on which one exchange is made.
func (p *lossy) carry(caller net.Conn) {
	defer func() { _ = caller.Close() }()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	noRequest, noAnswer := p.cut()
	if noRequest || noAnswer {
		p.losses.Add(1)
	}
	if noRequest {
		return
	}
	go func() { _, _ = io.Copy(server, caller) }() // ends with either connection
	if noAnswer {
		_, _ = io.ReadFull(server, make([]byte, 1)) // the server has done what it was asked
		return
	}
	_, _ = io.Copy(caller, server)
}

// Callers whose network loses every third answer get one truth each, and every refund is executed once.
func TestClient_BehindALossyNetwork_TellsTheTruth(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	const operations = 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	network := newLossy(t, p.Service.Servers[0].URL[len("http://"):], func() (bool, bool) {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(8) == 0, random.IntN(3) == 0
	})
	oneEach := http.DefaultTransport.(*http.Transport).Clone()
	oneEach.DisableKeepAlives = true
	refunds, err := client.New(client.Config{
		BaseURL: "http://" + network.Addr().String(), APIKey: p.Tenant.Key, Transport: oneEach,
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
	if network.losses.Load() == 0 || told.Load() == 0 {
		t.Fatalf("%d losses, %d of %d told of their success: nothing was tried", network.losses.Load(), told.Load(), operations)
	}
	for i := range operations { // whatever is unknown yet: the same call again ends it
		id := fmt.Sprint("L", i)
		p.Client.Refund(id, id, 100)
	}
	p.executed(names("L", operations)...)
	p.Service.Audit(t)
}
