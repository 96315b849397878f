package operations

import (
	"math"
	"testing"
	"time"
)

func TestA66_BackOff_NeverOverflowsToNever(t *testing.T) {
	t.Parallel()
	const ever = time.Duration(math.MaxInt64)
	for _, least := range []time.Duration{time.Nanosecond, 10 * time.Second, time.Hour, 200 * time.Hour,
		ever / 2, ever} {
		for _, most := range []time.Duration{least, time.Hour, 200 * time.Hour, 4000 * time.Hour, ever - 1, ever} {
			e := &Engine{config: Config{BackoffMin: least, BackoffMax: most, ListingLag: most}}
			last := time.Duration(0)
			for attempts := 1; attempts < 200; attempts++ {
				next := e.nextCheck(nextBackoff, attempts, fact{})
				if next < min(least, most) || next > most || next < last {
					t.Fatalf("from %v to %v: attempt %d waits %v, after %v", least, most, attempts, next, last)
				}
				last = next
			}
			if last != most {
				t.Errorf("from %v to %v: attempt 200 waits %v", least, most, last)
			}
			if lag := e.nextCheck(nextLag, 1, fact{}); lag < most {
				t.Errorf("a listing lag of %v waits %v", most, lag)
			}
		}
	}
	e := &Engine{config: Config{BackoffMin: 10 * time.Second, BackoffMax: time.Hour}}
	for attempts, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 9: 2560 * time.Second,
		10: time.Hour, 1 << 20: time.Hour} {
		if got := e.nextCheck(nextBackoff, attempts, fact{}); got != want {
			t.Errorf("attempt %d waits %v, want %v", attempts, got, want)
		}
	}
	if e.nextCheck(nextNever, 1, fact{retryAfter: time.Minute}) >= 0 {
		t.Error("what is over is looked at because the provider asks to wait")
	}
}
