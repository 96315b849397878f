// Package batch lets those who call at the same time share one piece of work, as a database's group commit does.
//
// Who finds nobody at work leads: its own goroutine runs the work at once, for itself alone. Who arrives meanwhile
// waits, and when the work is done one of those leads the next batch, of all of them. The package starts no goroutine:
// once its callers have returned, nothing of it is left to stop.
//
// Work comes in lanes. One lane is never in two batches at once, and keeps its order. Lanes have owners, and owners
// take turns, so that neither a busy lane nor a busy owner makes the others wait for more than their share.
package batch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrOverloaded reports work that was not begun, since too much waits already, or for longer than its caller would.
var ErrOverloaded = errors.New("overloaded")

// errAborted reports work whose leader panicked.
var errAborted = errors.New("batch aborted")

// Lane is what keeps its order.
type Lane struct {
	Owner string
	Name  string
}

// Limits name a group and bound it. Every zero but AtOnce's and Size's means no limit.
type Limits struct {
	Name     string        // of the work in a trace
	Size     int           // of one batch
	AtOnce   int           // batches at once
	PerOwner int           // batches at once that hold a lane of one owner
	Beside   int           // how much must wait for a batch to begin beside one that runs; 0: more than one batch takes
	Patience time.Duration // how long a batch may run before others begin beside it whatever waits, up to twice AtOnce
	Queue    int           // how much may wait; owners with less than their share may exceed it, up to twice as much
	Alone    bool          // a batch holds one lane: what makes one wait must not make another
}

// Result is what became of one piece of work.
type Result[Out any] struct {
	Out Out
	Err error
}

// Group is the work of one kind that is done in company.
type Group[In, Out any] struct {
	limits Limits
	run    func(ctx context.Context, work []In) []Result[Out]

	mu      sync.Mutex
	owners  map[string]*owner[In, Out]
	lanes   map[Lane]*lane[In, Out]
	turns   []*owner[In, Out] // owners with lanes that may be taken, who is next first
	waiting int
	running int // batches, those that are led but not taken yet included
	overdue int // of these, batches that have run out of patience
	forming bool
}

// New makes a group whose batches run does: for each piece of work it returns one result, in the same order. Its
// context ends once all of the batch's callers have left.
func New[In, Out any](limits Limits, run func(ctx context.Context, work []In) []Result[Out]) *Group[In, Out] {
	if limits.Beside == 0 {
		limits.Beside = limits.Size + 1
	}
	return &Group[In, Out]{
		limits: limits, run: run,
		owners: make(map[string]*owner[In, Out]), lanes: make(map[Lane]*lane[In, Out]),
	}
}

// Do has the work done, in company of what else waits, and returns its result; ErrOverloaded at once where it would
// wait for too long; or the context's error. Who leads a batch stays until it is done, unless the others have left as
// well; who leaves a batch that is running does not learn what became of the work.
func (g *Group[In, Out]) Do(ctx context.Context, where Lane, work In) (Out, error) {
	c, leads, err := g.join(ctx, where, work)
	for err == nil && (!leads || !g.lead(c)) {
		if leads, err = g.wait(c); !leads {
			break
		}
	}
	if err != nil {
		var none Out
		return none, err
	}
	return c.result.Out, c.result.Err
}

// Waiting is how much work waits for its batch.
func (g *Group[In, Out]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// wait returns true once the caller is to lead, false once its work is done, or ctx's error once the caller has left.
func (g *Group[In, Out]) wait(c *call[In, Out]) (leads bool, err error) {
	select {
	case leads = <-c.wake:
		return leads, nil
	case <-c.ctx.Done():
	}
	if g.leave(c) {
		return false, c.ctx.Err()
	}
	for <-c.wake { // it was to lead, but another leader was faster
	}
	return false, nil
}

// lead runs a batch in the caller's goroutine, and reports whether the caller's own work was in it: another leader may
// have taken that meanwhile.
func (g *Group[In, Out]) lead(c *call[In, Out]) bool {
	b := g.form(c)
	if b == nil {
		return false
	}
	defer g.finish(b, c)
	defer context.AfterFunc(c.ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		b.leave()
	})()
	if g.limits.Patience > 0 {
		defer time.AfterFunc(g.limits.Patience, func() { g.outlast(b) }).Stop()
	}
	work := make([]In, len(b.calls))
	for i, c := range b.calls {
		work[i] = c.work
	}
	ctx, span := b.traced(g.limits.Name)
	defer span.End()
	b.results = g.run(ctx, work)
	return true
}
