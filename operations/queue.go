package operations

import (
	"context"
	"math"
	"sync"
	"time"
)

// queue collects the work that arrives while earlier batches run. Items of one lane keep their order and are never in two
// batches at once; lanes take turns, so that a busy lane does not starve the others. An item alone waits for nobody.
type queue[K comparable, T any] struct {
	limit int // items that may wait

	mu      sync.Mutex
	arrived *sync.Cond
	lanes   map[K]*lane[K, T]
	ready   []*lane[K, T] // lanes with waiting items and none in a batch, first come first served
	waiting int
	closed  bool
}

type lane[K comparable, T any] struct {
	key     K
	items   []queued[T]
	running bool
}

type queued[T any] struct {
	item T
	at   time.Time
}

// noDeadline is the time that is left to an item which is to be worked off however long it waits.
const noDeadline = time.Duration(math.MaxInt64)

func newQueue[K comparable, T any](limit int) *queue[K, T] {
	q := &queue[K, T]{limit: limit, lanes: make(map[K]*lane[K, T])}
	q.arrived = sync.NewCond(&q.mu)
	return q
}

// put appends item to its lane, or answers ErrOverloaded: when the queue is full or closed, or when the wait is longer than
// the time that is left to the item.
func (q *queue[K, T]) put(key K, item T, left time.Duration) error {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[key]
	if q.closed || q.waiting >= q.limit || q.wait(l, now) > left {
		return ErrOverloaded
	}
	if l == nil {
		l = &lane[K, T]{key: key}
		q.lanes[key] = l
	}
	l.items = append(l.items, queued[T]{item, now})
	q.waiting++
	if len(l.items) == 1 && !l.running {
		q.ready = append(q.ready, l)
		q.arrived.Signal()
	}
	return nil
}

// wait is how long a new item of a lane has to expect to wait: as long as those did who are next, in the queue and in the lane.
// The caller holds mu.
func (q *queue[K, T]) wait(l *lane[K, T], now time.Time) (d time.Duration) {
	if len(q.ready) > 0 {
		d = now.Sub(q.ready[0].items[0].at)
	}
	if l != nil && len(l.items) > 0 {
		d = max(d, now.Sub(l.items[0].at))
	}
	return d
}

// depth is how many items wait.
func (q *queue[K, T]) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// work runs batches of at most size items until ctx has ended and nothing is left. Any number of workers may share a queue.
func (q *queue[K, T]) work(ctx context.Context, size int, run func([]T)) {
	stop := context.AfterFunc(ctx, q.close)
	defer stop()
	for {
		items, lanes := q.take(size)
		if len(items) == 0 {
			return
		}
		run(items)
		q.release(lanes)
	}
}

// close refuses further items and lets the workers go home once the queue is empty.
func (q *queue[K, T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.arrived.Broadcast()
}

// take waits for items and takes up to size of them; it answers none once the queue is closed and no lane is ready.
func (q *queue[K, T]) take(size int) ([]T, []*lane[K, T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 && !q.closed {
		q.arrived.Wait()
	}
	items := make([]T, 0, min(size, q.waiting))
	var lanes []*lane[K, T]
	for len(q.ready) > 0 && len(items) < size {
		l := q.ready[0]
		q.ready[0] = nil
		q.ready = q.ready[1:]
		n := min(size-len(items), len(l.items))
		for _, taken := range l.items[:n] {
			items = append(items, taken.item)
		}
		l.items = append([]queued[T](nil), l.items[n:]...)
		l.running = true
		lanes = append(lanes, l)
	}
	q.waiting -= len(items)
	return items, lanes
}

// release lets the lanes of a finished batch run again; what arrived in them meanwhile goes to the end of the line.
func (q *queue[K, T]) release(lanes []*lane[K, T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range lanes {
		l.running = false
		if len(l.items) == 0 {
			delete(q.lanes, l.key)
			continue
		}
		q.ready = append(q.ready, l)
		q.arrived.Signal()
	}
}
