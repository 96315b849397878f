// Package clocks asks both clocks of a process at once. The monotonic clock stands still while a machine is suspended,
// and the wall clock is set back and forth: what must have happened by a moment is too late once either of them has
// passed it.
package clocks

import "time"

// Moment is a time by both clocks. The zero Moment lies before every other.
type Moment struct {
	Monotonic time.Time // with a monotonic reading, by which it is compared
	Wall      time.Time // without one
}

// Now reads both clocks.
func Now() Moment {
	now := time.Now()
	return Moment{now, wall(now)}
}

// IsZero reports whether m is the zero Moment.
func (m Moment) IsZero() bool { return m == Moment{} }

// Add is the moment d later by both clocks.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.Monotonic.Add(d), m.Wall.Add(d)} }

// Passed reports whether either clock has reached m.
func (m Moment) Passed() bool {
	now := Now()
	return !now.Monotonic.Before(m.Monotonic) || !now.Wall.Before(m.Wall)
}

// Earliest is, by each clock, the earlier of a and b.
func Earliest(a, b Moment) Moment {
	if b.Monotonic.Before(a.Monotonic) {
		a.Monotonic = b.Monotonic
	}
	if b.Wall.Before(a.Wall) {
		a.Wall = b.Wall
	}
	return a
}

// Deadline is the moment of a context's deadline.
func Deadline(t time.Time) Moment { return Now().Add(time.Until(t)) }
