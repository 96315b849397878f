package chaos

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"refundd/test/harness"
)

// orders are few, so that callers meet; the last ones are too small for all that is asked of them.
const orders = 12

func payments() []harness.Payment {
	list := make([]harness.Payment, orders)
	for i := range list {
		list[i] = harness.Payment{OrderID: fmt.Sprint("P", i), Cents: 1 << 40}
		if i >= orders-3 {
			list[i].Cents = 2000
		}
	}
	return list
}

// errand is a refund as it was approved: the same for everybody who asks for it.
func errand(n int64) (operation, order string, cents int64) {
	return fmt.Sprint("K", n), fmt.Sprint("P", n*7%orders), 100 + n%900
}

// callers ask for refunds, new ones and each other's, as agents do.
type callers struct {
	harness.History
	t      *testing.T
	tenant *harness.Tenant
	slots  []*slot
	last   atomic.Int64
	silent atomic.Int64 // exchanges without an answer
	moved  atomic.Int64 // answers that told of money
}

// progress waits until callers were told of money n times more: on a machine that is busy with other things, the next
// blow comes later. It answers false once the storm is over.
func (c *callers) progress(storm context.Context, n int64) bool {
	for before := c.moved.Load(); c.moved.Load() < before+n && storm.Err() == nil; {
		rest(storm, 20*time.Millisecond)
	}
	return storm.Err() == nil
}

func (c *callers) call(storm context.Context, d dice) {
	for storm.Err() == nil {
		n := c.last.Load() - d.Int64N(30)
		if n < 1 || d.chance(40) {
			n = c.last.Add(1)
		}
		operation, order, cents := errand(n)
		if d.chance(3) {
			cents++ // somebody got it wrong
		}
		switch {
		case d.chance(10):
			c.Look(c.t, c.someServer(d), operation, d.between(300*time.Millisecond, 5*time.Second))
		case d.chance(3):
			c.lookUp(d, operation)
		default:
			c.insist(storm, d, operation, order, cents)
		}
	}
}

// insist asks up to four times, each time somewhere, with or without patience.
func (c *callers) insist(storm context.Context, d dice, operation, order string, cents int64) {
	for range 1 + d.IntN(4) {
		if storm.Err() != nil {
			return
		}
		said, heard := c.Ask(c.t, c.someServer(d), operation, order, cents,
			d.between(100*time.Millisecond, 4*time.Second))
		if !heard {
			c.silent.Add(1)
		}
		if said.Moved == "yes" {
			c.moved.Add(1)
			return
		}
		rest(storm, d.between(time.Millisecond, 300*time.Millisecond))
	}
}

// lookUp has an operation looked up at the provider.
func (c *callers) lookUp(d dice, operation string) {
	_, _ = c.someServer(d).Try(harness.Request{Method: "POST", Path: harness.RefundPath(operation) + "/reconcile",
		Body:  []byte("{}"),
		Valid: true, Wait: 5 * time.Second}) // what it changes, others see
}

func (c *callers) someServer(d dice) harness.Client {
	return harness.Client{URL: *c.slots[d.IntN(len(c.slots))].url.Load(), Key: c.tenant.Key, T: c.t}
}
