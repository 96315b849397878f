package clocks_test

import (
	"testing"
	"time"

	"refundd/internal/clocks"
)

func TestMoment_HasPassed_OnceEitherClockReachesIt(t *testing.T) {
	t.Parallel()
	now := clocks.Now()
	for _, c := range []struct {
		monotonic, wall time.Duration
		passed          bool
	}{
		{time.Minute, time.Minute, false},
		{-time.Minute, -time.Minute, true},
		{-time.Nanosecond, time.Minute, true}, // stopped for that long, with the wall clock set back
		{time.Minute, -time.Nanosecond, true}, // suspended: the monotonic clock stood still
	} {
		m := clocks.Moment{Monotonic: now.Monotonic.Add(c.monotonic), Wall: now.Wall.Add(c.wall)}
		if m.Passed() != c.passed {
			t.Errorf("%+v has passed: %v", c, !c.passed)
		}
	}
	if !(clocks.Moment{}).Passed() || !(clocks.Moment{}).IsZero() || now.IsZero() {
		t.Error("the zero moment is not before every other")
	}
}

func TestEarliest_IsTheEarlierByEachClock(t *testing.T) {
	t.Parallel()
	now := clocks.Now()
	stepped := clocks.Moment{Monotonic: now.Monotonic.Add(time.Second), Wall: now.Wall.Add(-time.Second)}
	want := clocks.Moment{Monotonic: now.Monotonic, Wall: stepped.Wall}
	if got := clocks.Earliest(now, stepped); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := clocks.Earliest(stepped, now); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := now.Add(time.Minute); got.Monotonic.Sub(now.Monotonic) != time.Minute ||
		got.Wall.Sub(now.Wall) != time.Minute {
		t.Errorf("a minute later is %+v after %+v", got, now)
	}
}
