package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench runs batches that take a second each, and notes what each of them held. It is for use in a synctest bubble.
type bench struct {
	*Group[string, string]
	mu      sync.Mutex
	batches [][]string
	callers sync.WaitGroup
	answers map[string]error
}

const took = time.Second

func newBench(l Limits) *bench {
	b := &bench{answers: map[string]error{}}
	b.Group = New(l, func(_ context.Context, work []string) []Result[string] {
		b.mu.Lock()
		b.batches = append(b.batches, slices.Clone(work))
		b.mu.Unlock()
		time.Sleep(took)
		results := make([]Result[string], len(work))
		for i, w := range work {
			results[i].Out = w + "!"
		}
		return results
	})
	return b
}

// call brings work to lane name of owner in a goroutine of its own, and returns once it is waiting or led.
func (b *bench) call(ctx context.Context, owner, name, work string) {
	b.callers.Go(func() {
		out, err := b.Do(ctx, Lane{owner, name}, work)
		if err == nil && out != work+"!" {
			err = fmt.Errorf("answered %q", out)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answers[work] = err
	})
	synctest.Wait()
}

// end waits for all callers and compares the batches.
func (b *bench) end(t *testing.T, want ...[]string) {
	t.Helper()
	b.callers.Wait()
	if diff := cmp.Diff(want, b.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if b.waiting+b.running+b.overdue+len(b.lanes)+len(b.owners)+len(b.turns) != 0 || b.forming {
		t.Errorf("left behind: %d waiting, %d running, %d lanes, %d owners", b.waiting, b.running, len(b.lanes),
			len(b.owners))
	}
}

func (b *bench) answered(t *testing.T, work string, want error) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got, ended := b.answers[work]; !ended || !errors.Is(got, want) {
		t.Errorf("%s is answered %v (%v), want %v", work, got, ended, want)
	}
}

var free = context.Background()

func TestGroup_AloneWaitsForNobody_AndThoseWhoArriveMeanwhileShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 3, AtOnce: 1})
		for _, work := range []string{"1", "2", "3", "4", "5"} {
			b.call(free, "acme", work, work)
		}
		began := time.Now()
		b.end(t, []string{"1"}, []string{"2", "3", "4"}, []string{"5"})
		if d := time.Since(began); d != 3*took {
			t.Errorf("took %v", d)
		}
	})
}

func TestGroup_OwnersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 4, AtOnce: 1})
		for i := range 7 {
			b.call(free, "busy", fmt.Sprint(i), fmt.Sprint("b", i))
		}
		b.call(free, "calm", "x", "c0")
		b.call(free, "calm", "y", "c1")
		b.end(t, []string{"b0"}, []string{"b1", "c0", "b2", "c1"}, []string{"b3", "b4", "b5", "b6"})
	})
}

func TestGroup_ABusyLaneTakesItsTurnOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: turn + 2, AtOnce: 1})
		b.call(free, "acme", "first", "first")
		second := make([]string, 0, turn+2)
		for i := range turn + 3 {
			work := fmt.Sprintf("hot%02d", i)
			b.call(free, "acme", "hot", work)
			if i < turn {
				second = append(second, work)
			}
		}
		b.call(free, "acme", "cold", "cold")
		b.end(t, []string{"first"}, append(second, "cold", "hot16"), []string{"hot17", "hot18"})
	})
}

func TestGroup_ASecondBatchBeginsWhenEnoughWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 10, AtOnce: 2, Beside: 3})
		for _, work := range []string{"1", "2", "3", "4", "5"} {
			b.call(free, "acme", work, work)
		}
		b.end(t, []string{"1"}, []string{"2", "3", "4"}, []string{"5"})
	})
}

func TestGroup_ABatchThatTakesLongKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 10, AtOnce: 2, Patience: took / 10})
		b.call(free, "acme", "1", "1")
		b.call(free, "acme", "2", "2")
		b.call(free, "acme", "1", "1b") // its lane is busy for as long as it takes
		began := time.Now()
		time.Sleep(took / 5)
		b.mu.Lock()
		if len(b.batches) != 2 {
			t.Errorf("%v began after %v", b.batches, time.Since(began))
		}
		b.mu.Unlock()
		b.end(t, []string{"1"}, []string{"2"}, []string{"1b"})
	})
}

func TestGroup_BatchesThatTakeLong_HoldNoPlaceOfThoseThatDoNot_UpToAsMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 10, AtOnce: 1, Patience: took / 10})
		for i, work := range []string{"1", "2", "3"} {
			b.call(free, "acme", work, work)
			time.Sleep(took / 5)
			b.mu.Lock()
			if want := min(i+1, 2); len(b.batches) != want {
				t.Errorf("%v began, want %d", b.batches, want)
			}
			b.mu.Unlock()
		}
		b.end(t, []string{"1"}, []string{"2"}, []string{"3"})
	})
}

func TestGroup_LanesAlone_OneOwnerLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 10, AtOnce: 3, PerOwner: 2, Beside: 1, Alone: true})
		for i := range 4 {
			b.call(free, "busy", fmt.Sprint(i), fmt.Sprint("b", i))
		}
		b.call(free, "busy", "3", "b3 again")
		b.call(free, "calm", "x", "c")
		b.end(t, []string{"b0"}, []string{"b1"}, []string{"c"}, []string{"b2"}, []string{"b3", "b3 again"})
	})
}

func TestGroup_FullQueue_RefusesAtOnce_ButNotWhoHasLessThanTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 10, AtOnce: 1, Queue: 4})
		for i := range 6 {
			b.call(free, "busy", fmt.Sprint(i), fmt.Sprint("b", i))
		}
		b.answered(t, "b5", ErrOverloaded)
		for i := range 3 {
			b.call(free, "calm", fmt.Sprint(i), fmt.Sprint("c", i))
		}
		b.answered(t, "c2", ErrOverloaded)
		b.end(t, []string{"b0"}, []string{"b1", "c0", "b2", "c1", "b3", "b4"})
	})
}

func TestGroup_LongerWaitThanTheCallerHas_RefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, cancel := context.WithTimeout(free, took/4)
		defer cancel()
		b := newBench(Limits{Size: 1, AtOnce: 1})
		b.call(short, "acme", "1", "1")
		b.call(free, "acme", "2", "2")
		time.Sleep(took / 2)
		hasty, end := context.WithTimeout(free, took/4)
		defer end()
		b.call(hasty, "acme", "3", "3")
		b.answered(t, "3", ErrOverloaded)
		b.call(free, "acme", "4", "4")
		b.end(t, []string{"1"}, []string{"2"}, []string{"4"})
		b.answered(t, "1", nil) // it led, and stayed
	})
}

func TestGroup_WhoLeaves(t *testing.T) {
	t.Run("TheQueue_IsNotWaitedFor", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(Limits{Size: 10, AtOnce: 1})
			ctx, leave := context.WithCancel(free)
			b.call(free, "acme", "1", "1")
			b.call(ctx, "acme", "2", "2")
			b.call(free, "acme", "3", "3")
			leave()
			synctest.Wait()
			b.answered(t, "2", context.Canceled)
			b.end(t, []string{"1"}, []string{"3"})
		})
	})
	t.Run("TheQueueLast_LeavesNothingBehind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(Limits{Size: 10, AtOnce: 1})
			ctx, leave := context.WithCancel(free)
			b.call(free, "acme", "1", "1")
			b.call(ctx, "calm", "2", "2")
			leave()
			b.end(t, []string{"1"})
		})
	})
	t.Run("ARunningBatch_DoesNotEndItForOthers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ended := map[string]bool{}
			var mu sync.Mutex
			g := New(Limits{Size: 10, AtOnce: 1}, func(ctx context.Context, work []string) []Result[string] {
				select {
				case <-ctx.Done():
				case <-time.After(took):
				}
				mu.Lock()
				defer mu.Unlock()
				ended[work[0]] = ctx.Err() != nil
				return make([]Result[string], len(work))
			})
			b := &bench{Group: g, answers: map[string]error{}}
			one, leave := context.WithTimeout(free, took/2)
			defer leave()
			other, leaveToo := context.WithTimeout(free, took*5/4) // the second batch begins as the first caller leaves
			defer leaveToo()
			b.call(one, "acme", "1", "alone")
			b.call(other, "acme", "2", "both")
			b.call(free, "acme", "3", "stays")
			b.callers.Wait()
			if diff := cmp.Diff(map[string]bool{"alone": true, "both": false}, ended); diff != "" {
				t.Errorf("contexts that ended (-want +got):\n%s", diff)
			}
		})
	})
}

func TestGroup_APanicReachesTheLeaderAndLeavesNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(Limits{Size: 10, AtOnce: 1})
		run := b.run
		b.run = func(ctx context.Context, work []string) []Result[string] {
			if work[0] == "bad" {
				panic("bad")
			}
			return run(ctx, work)
		}
		b.call(free, "acme", "1", "1")
		b.callers.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = b.Do(free, Lane{"acme", "2"}, "bad")
		})
		synctest.Wait()
		b.call(free, "acme", "3", "neighbour")
		time.Sleep(took * 2)
		b.call(free, "acme", "4", "later")
		b.callers.Wait()
		b.answered(t, "neighbour", errAborted)
		b.end(t, []string{"1"}, []string{"later"})
	})
}

func TestGroup_LanesKeepTheirOrderAndNeverOverlap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lanes := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 200).Draw(rt, "lanes")
		impatient := rapid.SliceOfN(rapid.IntRange(0, 9), len(lanes), len(lanes)).Draw(rt, "impatient")
		limits := Limits{
			Size: rapid.IntRange(1, 20).Draw(rt, "size"), AtOnce: rapid.IntRange(1, 3).Draw(rt, "at once"),
			PerOwner: rapid.IntRange(0, 2).Draw(rt, "per owner"), Beside: rapid.IntRange(0, 3).Draw(rt, "beside"),
			Alone: rapid.Bool().Draw(rt, "alone"), Patience: time.Duration(rapid.IntRange(0, 2).Draw(rt,
				"patience")) * took / 3,
		}
		synctest.Test(t, func(t *testing.T) { hold(t, lanes, impatient, limits) })
	})
}

// hold brings work to lanes, of two owners, and holds the group to its promises.
func hold(t *testing.T, lanes, impatient []int, limits Limits) {
	var mu sync.Mutex
	ran, busy := map[int][]int{}, map[int]bool{}
	g := New(limits, func(_ context.Context, work []int) []Result[int] {
		mine := map[int]bool{}
		mu.Lock()
		for _, i := range work {
			if l := lanes[i]; !mine[l] && busy[l] {
				t.Errorf("lane %d is in two batches", l)
			}
			mine[lanes[i]], busy[lanes[i]] = true, true
			ran[lanes[i]] = append(ran[lanes[i]], i)
		}
		if len(work) > limits.Size || limits.Alone && len(mine) != 1 {
			t.Errorf("a batch of %d of %d lanes", len(work), len(mine))
		}
		mu.Unlock()
		time.Sleep(took)
		mu.Lock()
		for l := range mine {
			busy[l] = false
		}
		mu.Unlock()
		results := make([]Result[int], len(work))
		for i, w := range work {
			results[i].Out = w
		}
		return results
	})
	var callers sync.WaitGroup
	left := 0
	for i, l := range lanes {
		ctx, cancel := context.WithCancel(free)
		if impatient[i] == 0 {
			ctx, cancel = context.WithTimeout(ctx, took/2)
		}
		callers.Go(func() {
			defer cancel()
			out, err := g.Do(ctx, Lane{fmt.Sprint(l % 2), fmt.Sprint(l)}, i)
			if err != nil {
				mu.Lock()
				left++
				mu.Unlock()
			} else if out != i {
				t.Errorf("%d is answered %d", i, out)
			}
		})
		synctest.Wait()
	}
	callers.Wait()
	total := 0
	for l, work := range ran {
		total += len(work)
		if !slices.IsSorted(work) {
			t.Errorf("lane %d ran as %v", l, work)
		}
	}
	if total+left < len(lanes) || total > len(lanes) || g.waiting+g.running+g.overdue+len(g.lanes)+len(g.owners) != 0 {
		t.Errorf("ran %d of %d, %d left; %d waiting, %d running, %d lanes", total, len(lanes), left, g.waiting,
			g.running, len(g.lanes))
	}
}
