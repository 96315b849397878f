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
		q := newQueue[int, int](100)
		if err := q.put(1, 1, time.Nanosecond); err != nil {
			t.Fatalf("an empty queue answers %v", err)
		}
		time.Sleep(20 * time.Millisecond)
		if err := q.put(2, 2, 10*time.Millisecond); !errors.Is(err, ErrOverloaded) {
			t.Errorf("behind one that waits for 20 ms, one with 10 ms left is answered %v", err)
		}
		if err := q.put(2, 2, time.Hour); err != nil {
			t.Errorf("behind one that waits for 20 ms, one with an hour left is answered %v", err)
		}
		_, lanes := q.take(1) // which had waited for 20 ms; the next one has not, so far
		if err := q.put(1, 3, 10*time.Millisecond); !errors.Is(err, ErrOverloaded) {
			t.Errorf("behind a batch that waited for 20 ms, one with 10 ms left is answered %v", err)
		}
		q.release(lanes)
		time.Sleep(20 * time.Millisecond)
		_, lanes = q.take(100)
		q.release(lanes)
		for i := range 3 { // whose time has nothing to do with that of those before
			if err := q.put(i, i, 10*time.Millisecond); err != nil {
				t.Errorf("a queue that was empty answers %v", err)
			}
		}
	})
}
