package operations

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQueue(t *testing.T) {
	t.Parallel()

	t.Run("LanesKeepTheirOrderAndNeverOverlap", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			lanes := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 200).Draw(t, "lanes")
			size := rapid.IntRange(1, 20).Draw(t, "size")
			q := newQueue[int, int](len(lanes))
			ctx, stop := context.WithCancel(context.Background())
			var mu sync.Mutex
			ran := map[int][]int{}
			busy := map[int]int{}
			var workers sync.WaitGroup
			for range 3 {
				workers.Go(func() {
					q.work(ctx, size, func(items []int) {
						mu.Lock()
						mine := map[int]bool{}
						for _, i := range items {
							mine[lanes[i]] = true
							ran[lanes[i]] = append(ran[lanes[i]], i)
						}
						for l := range mine {
							if busy[l]++; busy[l] > 1 {
								t.Errorf("lane %d runs in two batches", l)
							}
						}
						if len(items) > size {
							t.Errorf("batch of %d, want at most %d", len(items), size)
						}
						mu.Unlock()
						mu.Lock()
						for l := range mine {
							busy[l]--
						}
						mu.Unlock()
					})
				})
			}
			for i, l := range lanes {
				if err := q.put(l, i, noDeadline); err != nil {
					t.Errorf("put: %v", err)
				}
			}
			stop()
			workers.Wait()
			total := 0
			for l, items := range ran {
				total += len(items)
				if !slices.IsSorted(items) {
					t.Errorf("lane %d ran as %v", l, items)
				}
			}
			if total != len(lanes) || len(q.lanes) != 0 || q.depth() != 0 {
				t.Errorf("ran %d of %d, %d lanes and %d items left", total, len(lanes), len(q.lanes), q.depth())
			}
		})
	})

	t.Run("ABusyLaneDoesNotStarveAnother", func(t *testing.T) {
		t.Parallel()
		q := newQueue[string, int](1000)
		for i := range 500 {
			if err := q.put("hot", i, noDeadline); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.put("cold", 500, noDeadline); err != nil {
			t.Fatal(err)
		}
		first, lanes := q.take(200)
		q.release(lanes)
		second, _ := q.take(200)
		if len(first) != 200 || second[0] != 500 || len(second) != 200 {
			t.Errorf("the second batch begins with %d and has %d items", second[0], len(second))
		}
	})

	t.Run("FullOrClosed_Refuses", func(t *testing.T) {
		t.Parallel()
		q := newQueue[int, int](1)
		if err := q.put(1, 1, noDeadline); err != nil {
			t.Fatal(err)
		}
		if err := q.put(2, 2, noDeadline); !errors.Is(err, ErrOverloaded) {
			t.Errorf("a full queue answers %v", err)
		}
		q.take(1)
		q.close()
		if err := q.put(2, 2, noDeadline); !errors.Is(err, ErrOverloaded) {
			t.Errorf("a closed queue answers %v", err)
		}
	})
	t.Run("LongerWaitThanTimeLeft_Refuses", func(t *testing.T) {
		t.Parallel()
		q := newQueue[string, int](100)
		put := func(lane string, left time.Duration, want error) {
			t.Helper()
			if err := q.put(lane, 0, left); !errors.Is(err, want) {
				t.Errorf("one of %s with %v left is answered %v, want %v", lane, left, err, want)
			}
		}
		const short, long = 200 * time.Millisecond, time.Hour
		put("A", time.Nanosecond, nil) // nobody waits
		time.Sleep(2 * short)
		put("B", short, ErrOverloaded)
		put("B", long, nil)
		_, lanes := q.take(1) // of A
		put("A", long, nil)
		time.Sleep(2 * short)
		_, more := q.take(100) // all but the one that waits for A's turn to end
		put("A", short, ErrOverloaded)
		put("C", short, nil)
		q.release(append(lanes, more...))
		_, lanes = q.take(100)
		q.release(lanes)
		for _, lane := range []string{"A", "B", "C"} { // how long those before had waited is over
			put(lane, short, nil)
		}
	})
}
