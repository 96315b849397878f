package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// errExhausted reports that there were fewer approved refunds than the target could execute.
var errExhausted = errors.New("no approved refund is left")

// notSent is what becomes of an open loop's request for which no connection was free before the end.
const notSent = "not sent: no connection was free before the end"

// answerWait is how long an answer may take beyond the end of a load.
const answerWait = 40 * time.Second

// run is one load on one target.
type run struct {
	bench  *Bench
	target Target
	load   Load
	at     address

	start, warm, end time.Time // of the load, of what is counted, and of both
	sent             atomic.Int64
	answered, shed   atomic.Int64
	late             atomic.Int64 // nanoseconds
	exhausted        atomic.Bool
	latency, refused Histogram

	mu    sync.Mutex
	other map[string]int64
}

func newRun(b *Bench, t Target, l Load) (*run, error) {
	at, err := parseAddress(t.URL)
	if err != nil {
		return nil, err
	}
	return &run{bench: b, target: t, load: l, at: at, other: make(map[string]int64)}, nil
}

// measure connects, loads, and counts what is between the end of the warm-up and the end.
func (r *run) measure(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers, err := r.connect(ctx)
	if err != nil {
		return Result{}, err
	}
	r.start = time.Now()
	r.warm = r.start.Add(r.load.Warmup)
	r.end = r.warm.Add(r.load.Duration)
	var group sync.WaitGroup
	for _, w := range workers {
		group.Go(func() { w.work(ctx) })
	}
	stopped := context.AfterFunc(ctx, func() { closeAll(workers) })
	cost, memory, err := r.watch(ctx)
	group.Wait()
	stopped()
	closeAll(workers)
	if err == nil && r.exhausted.Load() {
		err = errExhausted
	}
	return Result{
		Target: r.target.Name, Mix: r.load.Mix.name, Connections: r.load.Connections, Rate: r.load.Rate,
		Took:     r.load.Duration,
		Answered: r.answered.Load(), Shed: r.shed.Load(), Latency: &r.latency, ShedLatency: &r.refused, Other: r.other,
		Late: time.Duration(r.late.Load()), Cost: cost, Memory: memory,
	}, err
}

// connect opens every connection before the load begins.
func (r *run) connect(ctx context.Context) ([]*worker, error) {
	deadline := time.Now().Add(r.load.Warmup + r.load.Duration + answerWait)
	workers := make([]*worker, 0, r.load.Connections)
	for range r.load.Connections {
		c, err := dial(ctx, r.at, deadline)
		if err != nil {
			closeAll(workers)
			return nil, err
		}
		workers = append(workers, &worker{run: r, conn: c, deadline: deadline, requests: r.requests()})
	}
	return workers, nil
}

func closeAll(workers []*worker) {
	for _, w := range workers {
		_ = w.conn.Close() // a second time, or of one that broke: nothing is left to be lost
	}
}

// watch reads what was used at both ends of the counted time, and tells who watches how it goes.
func (r *run) watch(ctx context.Context) (cost Cost, memory int64, err error) {
	if err := sleepUntil(ctx, r.warm); err != nil {
		return Cost{}, 0, err
	}
	began := time.Now()
	start, err := r.bench.used(ctx, r.target)
	if err != nil {
		return Cost{}, 0, err
	}
	var before int64
	for now := began; now.Before(r.end); now = time.Now() {
		next := now.Add(time.Second)
		if next.After(r.end) {
			next = r.end
		}
		if err := sleepUntil(ctx, next); err != nil {
			return Cost{}, 0, err
		}
		answered := r.answered.Load()
		r.bench.config.Progress(fmt.Sprintf("%s %s, %d connections: %.0f per second", r.target.Name, r.load.Mix,
			r.load.Connections,
			float64(answered-before)/time.Since(now).Seconds()))
		before = answered
	}
	stop, err := r.bench.used(ctx, r.target)
	return stop.since(start), stop.memory, err
}

func sleepUntil(ctx context.Context, at time.Time) error {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request is one that was built before: only its ids are written anew.
type request struct {
	kind             Kind
	keys             *keys
	orders           int64
	raw              []byte
	operation, order []byte // parts of raw
}

// requests are one of each part of the mix.
func (r *run) requests() []request {
	built := make([]request, 0, len(r.load.Mix.parts))
	for _, p := range r.load.Mix.parts {
		k := r.bench.books.keys[p.kind.pool()]
		cents := amountCents
		if p.kind == KindConflict {
			cents = otherCents
		}
		before, between := `{"operation_id":"`, `","order_id":"`
		after := `","amount_cents":` + strconv.Itoa(cents) + `}`
		length := len(before) + idLength + len(between) + orderLength + len(after)
		head := "POST /v1/refunds HTTP/1.1\r\nHost: " + r.at.host + "\r\nAuthorization: Bearer " +
			r.bench.config.Secret +
			"\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(length) + "\r\n\r\n"
		raw := make([]byte, len(head)+length)
		at := copy(raw, head+before)
		operation := raw[at : at+idLength]
		at += idLength + copy(raw[at+idLength:], between)
		order := raw[at : at+orderLength]
		copy(raw[at+orderLength:], after)
		built = append(built, request{p.kind, k, r.bench.books.orders(k.pool), raw, operation, order})
	}
	return built
}

// fill writes the ids of the next refund into the request and answers its number; false where no approved one is left.
func (q *request) fill() (int64, bool) {
	n := q.keys.next.Add(1) - 1
	if !q.kind.moves() {
		n = n * stride % q.keys.ready
	} else if n >= q.keys.ready {
		return 0, false
	}
	q.keys.putOperation(q.operation, n)
	q.keys.putOrder(q.order, n, q.orders)
	return n, true
}

// worker is one connection's caller.
type worker struct {
	run      *run
	conn     *conn
	deadline time.Time
	requests []request
}

// work sends one request after the other until the load ends.
func (w *worker) work(ctx context.Context) {
	r := w.run
	for ctx.Err() == nil {
		i := r.sent.Add(1) - 1
		began := time.Now()
		if r.load.Rate > 0 {
			intended := r.start.Add(time.Duration(float64(i) / r.load.Rate * float64(time.Second)))
			if intended.After(r.end) {
				return
			}
			if wait := intended.Sub(began); wait > 0 {
				time.Sleep(wait)
			} else {
				r.fellBehind(-wait)
			}
			if time.Now().After(r.end) { // the backlog of a target that cannot keep up would never end
				r.note(notSent)
				continue
			}
			began = intended
		}
		if !began.Before(r.end) {
			return
		}
		q := &w.requests[r.load.Mix.pick(i)]
		n, ok := q.fill()
		if !ok {
			r.exhausted.Store(true)
			return
		}
		if !w.send(ctx, q, n, began) {
			return
		}
	}
}

// fellBehind keeps the longest time that a request had to wait for a free connection.
func (r *run) fellBehind(by time.Duration) {
	for known := r.late.Load(); int64(by) > known; known = r.late.Load() {
		if r.late.CompareAndSwap(known, int64(by)) {
			return
		}
	}
}

// send sends a request and counts its answer; false ends the worker.
func (w *worker) send(ctx context.Context, q *request, n int64, began time.Time) bool {
	if q.kind.moves() {
		q.keys.sent.add(n)
	}
	sent := time.Now()
	answer, err := w.conn.exchange(q.raw)
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		w.run.note(cause(err))
		return w.redial(ctx)
	}
	w.run.count(q, n, answer, began, sent)
	return !answer.last || w.redial(ctx)
}

func (w *worker) redial(ctx context.Context) bool {
	_ = w.conn.Close() // it is of no more use
	c, err := dial(ctx, w.run.at, w.deadline)
	if err != nil {
		if ctx.Err() == nil {
			w.run.note(cause(err))
		}
		return false
	}
	w.conn = c
	return true
}

// count sorts an answer. What is counted arrived in the counted time. A refund's latency is from when it was to be
// sent; a refusal's from when it was sent, since that is what the target's haste is seen by.
func (r *run) count(q *request, n int64, a response, began, sent time.Time) {
	now := time.Now()
	counted := !now.Before(r.warm) && now.Before(r.end)
	switch {
	case q.kind.expects(a.status) && (a.status >= 400 || bytes.Contains(a.body, q.operation)):
		if q.kind.moves() {
			q.keys.acknowledged.add(n)
		}
		if q.kind == KindConflict && !bytes.Contains(a.body, []byte(`"operation_id_conflict"`)) {
			r.note(refusal(a))
			return
		}
		if counted {
			r.latency.add(now.Sub(began))
			r.answered.Add(1)
		}
	case a.status == 503:
		if counted {
			r.refused.add(now.Sub(sent))
			r.shed.Add(1)
		}
		if code := member(a.body, "code"); code != "overloaded" {
			r.note(refusal(a))
		}
	default:
		if a.status < 300 && q.kind.moves() {
			q.keys.acknowledged.add(n)
		}
		if member(a.body, "money_moved") == "no" && a.status >= 400 && a.status < 500 && q.kind.moves() {
			q.keys.refused.add(n)
		}
		r.note(refusal(a))
	}
}

func refusal(a response) string {
	return fmt.Sprintf("%d %s", a.status, member(a.body, "code"))
}

func (r *run) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other[what]++
}

// cause is an error of a connection without the addresses in it.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
