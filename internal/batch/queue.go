package batch

import (
	"context"
	"slices"
	"time"
)

// turn is how much of one lane a batch takes before it turns to the next owner.
const turn = 16

// call is a caller with its work.
type call[In, Out any] struct {
	ctx    context.Context
	work   In
	lane   *lane[In, Out]
	at     time.Time
	wake   chan bool         // true: lead; false: the work is done
	leads  bool              // it was woken to lead, and no leader has taken it yet
	batch  *running[In, Out] // nil while it waits
	result Result[Out]
}

type lane[In, Out any] struct {
	Lane
	owner *owner[In, Out]
	calls []*call[In, Out] // who waits
	busy  bool             // in a batch
}

type owner[In, Out any] struct {
	name    string
	ready   []*lane[In, Out] // lanes with callers who wait, none of them in a batch
	listed  bool             // among those who take turns
	waiting int
	running int // batches that hold one of its lanes
}

// running is a batch at work.
type running[In, Out any] struct {
	ctx     context.Context
	cancel  context.CancelFunc
	calls   []*call[In, Out]
	lanes   []*lane[In, Out]
	left    int // callers who did not wait for it
	overdue bool
	ended   bool
	results []Result[Out]
}

// join puts the caller's work into its lane, and reports whether the caller is to lead a batch now.
func (g *Group[In, Out]) join(ctx context.Context, where Lane, work In) (*call[In, Out], bool, error) {
	c := &call[In, Out]{ctx: ctx, work: work, at: time.Now(), wake: make(chan bool, 2)}
	g.mu.Lock()
	o, l := g.owners[where.Owner], g.lanes[where]
	if g.full(o) || c.timeLeft() < c.expectedWait(o, l) {
		g.mu.Unlock()
		return nil, false, ErrOverloaded
	}
	if o == nil {
		o = &owner[In, Out]{name: where.Owner}
		g.owners[where.Owner] = o
	}
	if l == nil {
		l = &lane[In, Out]{Lane: where, owner: o}
		g.lanes[where] = l
	}
	c.lane = l
	l.calls = append(l.calls, c)
	g.waiting++
	o.waiting++
	if len(l.calls) == 1 && !l.busy {
		o.ready = append(o.ready, l)
		g.list(o)
	}
	leader := g.appoint()
	g.mu.Unlock()
	if leader == c {
		return c, true, nil
	}
	leader.lead()
	return c, false, nil
}

// full reports whether an owner has no place in the queue. While it is full, those who have less than their share still
// do.
func (g *Group[In, Out]) full(o *owner[In, Out]) bool {
	limit := g.limits.Queue
	if limit == 0 || g.waiting < limit {
		return false
	}
	if o == nil {
		return g.waiting >= 2*limit || len(g.owners) >= limit
	}
	return g.waiting >= 2*limit || o.waiting >= limit/len(g.owners)
}

// timeLeft is the time until the caller's deadline, where it has one.
func (c *call[In, Out]) timeLeft() time.Duration {
	deadline, ok := c.ctx.Deadline()
	if !ok {
		return 1<<63 - 1
	}
	return deadline.Sub(c.at)
}

// expectedWait is how long those have waited who are next, of the owner and in the lane.
func (c *call[In, Out]) expectedWait(o *owner[In, Out], l *lane[In, Out]) (d time.Duration) {
	if o != nil && len(o.ready) > 0 {
		d = c.at.Sub(o.ready[0].calls[0].at)
	}
	if l != nil && len(l.calls) > 0 {
		d = max(d, c.at.Sub(l.calls[0].at))
	}
	return d
}

// appoint makes the next caller the leader of another batch, where there may be one: nobody is at work, or more waits
// than is to be left to those who are.
func (g *Group[In, Out]) appoint() *call[In, Out] {
	alone := g.running == g.overdue
	atOnce := g.limits.AtOnce + min(g.overdue, g.limits.AtOnce)
	if g.forming || len(g.turns) == 0 || g.running >= atOnce || !alone && g.waiting < g.limits.Beside {
		return nil
	}
	c := g.turns[0].ready[0].calls[0]
	c.leads = true
	g.forming = true
	g.running++
	return c
}

// lead wakes the caller that is to lead, if there is one.
func (c *call[In, Out]) lead() {
	if c != nil {
		c.wake <- true
	}
}

// form takes the batch that c leads, or nothing where another leader has taken c.
func (g *Group[In, Out]) form(c *call[In, Out]) *running[In, Out] {
	g.mu.Lock()
	var b *running[In, Out]
	if c.batch == nil {
		g.forming, c.leads = false, false
		b = g.take()
	} else {
		g.stepDown(c)
	}
	another := g.appoint()
	g.mu.Unlock()
	another.lead()
	return b
}

// take takes what the next batch holds, owner by owner.
func (g *Group[In, Out]) take() *running[In, Out] {
	b := &running[In, Out]{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for len(g.turns) > 0 && len(b.calls) < g.limits.Size {
		o := g.turns[0]
		g.turns, o.listed = g.turns[1:], false
		l := o.ready[0]
		o.ready = o.ready[1:]
		n := min(g.limits.Size-len(b.calls), len(l.calls))
		if !g.limits.Alone {
			n = min(n, turn)
		}
		b.add(l, n)
		if len(l.calls) > 0 {
			o.ready = append(o.ready, l)
		}
		g.list(o)
		if g.limits.Alone {
			break
		}
	}
	g.waiting -= len(b.calls)
	b.count(+1)
	for _, l := range b.lanes {
		if len(l.calls) > 0 {
			g.withdraw(l)
		}
	}
	for _, l := range b.lanes {
		g.unlist(l.owner)
	}
	return b
}

// add moves the first n callers of a lane into the batch.
func (b *running[In, Out]) add(l *lane[In, Out], n int) {
	if !l.busy {
		l.busy = true
		b.lanes = append(b.lanes, l)
	}
	for _, c := range l.calls[:n] {
		c.batch = b
	}
	b.calls = append(b.calls, l.calls[:n]...)
	l.calls = slices.Delete(l.calls, 0, n)
	l.owner.waiting -= n
}

// count adds n to the running batches of each owner in b, once.
func (b *running[In, Out]) count(n int) {
	counted := make(map[*owner[In, Out]]struct{}, 1)
	for _, l := range b.lanes {
		if _, again := counted[l.owner]; !again {
			counted[l.owner] = struct{}{}
			l.owner.running += n
		}
	}
}

// list gives an owner its turn, unless it has nothing ready or as many batches as it may have.
func (g *Group[In, Out]) list(o *owner[In, Out]) {
	if !o.listed && len(o.ready) > 0 && !g.atLimit(o) {
		o.listed = true
		g.turns = append(g.turns, o)
	}
}

// unlist takes the turn from an owner that has nothing ready any more, or as many batches as it may have.
func (g *Group[In, Out]) unlist(o *owner[In, Out]) {
	if o.listed && (len(o.ready) == 0 || g.atLimit(o)) {
		o.listed = false
		g.turns = slices.DeleteFunc(g.turns, func(other *owner[In, Out]) bool { return other == o })
	}
}

func (g *Group[In, Out]) atLimit(o *owner[In, Out]) bool {
	return g.limits.PerOwner > 0 && o.running >= g.limits.PerOwner
}

// withdraw takes a lane out of those that are ready.
func (g *Group[In, Out]) withdraw(l *lane[In, Out]) {
	if i := slices.Index(l.owner.ready, l); i >= 0 {
		l.owner.ready = slices.Delete(l.owner.ready, i, i+1)
		g.unlist(l.owner)
	}
}

// finish hands the results out, frees the lanes and appoints the next leader.
func (g *Group[In, Out]) finish(b *running[In, Out], leader *call[In, Out]) {
	b.cancel()
	for i, c := range b.calls {
		c.result = Result[Out]{Err: errAborted}
		if i < len(b.results) {
			c.result = b.results[i]
		}
	}
	g.mu.Lock()
	b.ended = true
	g.running--
	if b.overdue {
		g.overdue--
	}
	b.count(-1)
	for _, l := range b.lanes {
		l.busy = false
		if len(l.calls) > 0 {
			l.owner.ready = append(l.owner.ready, l)
		}
		g.list(l.owner)
		g.forget(l)
	}
	next := g.appoint()
	g.mu.Unlock()
	next.lead()
	for _, c := range b.calls {
		if c != leader {
			c.wake <- false
		}
	}
}

// forget drops a lane that nobody waits in, and an owner without lanes.
func (g *Group[In, Out]) forget(l *lane[In, Out]) {
	if l.busy || len(l.calls) > 0 {
		return
	}
	delete(g.lanes, l.Lane)
	if l.owner.waiting == 0 && l.owner.running == 0 {
		delete(g.owners, l.owner.name)
	}
}

// leave takes a caller out that waits no longer, and reports false where its work is done already.
func (g *Group[In, Out]) leave(c *call[In, Out]) bool {
	g.mu.Lock()
	g.stepDown(c)
	b := c.batch
	ended := b != nil && b.ended
	switch {
	case b == nil:
		g.remove(c)
	case !ended:
		b.leave()
	}
	another := g.appoint()
	g.mu.Unlock()
	another.lead()
	return !ended
}

// stepDown takes the lead from a caller that was woken to lead and does not.
func (g *Group[In, Out]) stepDown(c *call[In, Out]) {
	if c.leads {
		g.forming, c.leads = false, false
		g.running--
	}
}

// remove takes a caller that waits out of the queue.
func (g *Group[In, Out]) remove(c *call[In, Out]) {
	l := c.lane
	l.calls = slices.DeleteFunc(l.calls, func(other *call[In, Out]) bool { return other == c })
	g.waiting--
	l.owner.waiting--
	if len(l.calls) == 0 && !l.busy {
		g.withdraw(l)
		g.forget(l)
	}
}

// leave ends the batch's context once nobody waits for it.
func (b *running[In, Out]) leave() {
	if b.left++; b.left == len(b.calls) {
		b.cancel()
	}
}

// outlast lets others begin beside a batch that has run out of patience.
func (g *Group[In, Out]) outlast(b *running[In, Out]) {
	g.mu.Lock()
	if !b.ended {
		b.overdue = true
		g.overdue++
	}
	next := g.appoint()
	g.mu.Unlock()
	next.lead()
}
