package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts durations in buckets whose width is less than 1 % of what they hold, from 1 µs to hours. Any number
// of goroutines may count at once.
type Histogram struct {
	counts [buckets]atomic.Int64
}

const (
	fine    = 7 // bits that tell apart durations of the same magnitude
	buckets = 32 << fine
)

// place is the bucket of d: exact below 2^fine µs, then 2^fine buckets for each doubling.
func place(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	shift := max(bits.Len64(us)-fine-1, 0)
	return min(shift<<fine+int(us>>shift), buckets-1)
}

// upper is the longest duration of a bucket.
func upper(place int) time.Duration {
	if place < 2<<fine {
		return time.Duration(place) * time.Microsecond
	}
	shift := place>>fine - 1
	return time.Duration((uint64(place-shift<<fine)+1)<<shift-1) * time.Microsecond
}

func (h *Histogram) add(d time.Duration) { h.counts[place(d)].Add(1) }

// Merge counts what other has counted as well.
func (h *Histogram) Merge(other *Histogram) {
	for i := range h.counts {
		if n := other.counts[i].Load(); n > 0 {
			h.counts[i].Add(n)
		}
	}
}

// Count is how many durations were counted.
func (h *Histogram) Count() int64 {
	var n int64
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Quantile is the duration that the share q of all does not exceed, rounded up to the microsecond or by less than 1 %;
// 0 where nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := max(int64(q*float64(total)+0.999999), 1)
	for i := range h.counts {
		if rank -= h.counts[i].Load(); rank <= 0 {
			return upper(i)
		}
	}
	return upper(buckets - 1)
}
