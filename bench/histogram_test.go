package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogram_AnswersQuantilesWithinOnePercent(t *testing.T) {
	t.Parallel()
	const seed = 4711
	random := rand.New(rand.NewPCG(seed, seed))
	var h Histogram
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(30*time.Millisecond)).Truncate(time.Microsecond)
		all = append(all, d)
		h.add(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := all[max(int(q*float64(len(all))+0.999999)-1, 0)]
		if got := h.Quantile(q); got < exact || float64(got) > 1.01*float64(exact)+1000 {
			t.Errorf("quantile %v is %v, exactly %v (seed %d)", q, got, exact, seed)
		}
	}
	if h.Count() != int64(len(all)) {
		t.Errorf("counts %d of %d", h.Count(), len(all))
	}
}

func TestHistogram_BucketsFollowEachOtherWithoutGaps(t *testing.T) {
	t.Parallel()
	for i := range buckets - 1 {
		last := upper(i)
		if place(last) != i || place(last+time.Microsecond) != i+1 {
			t.Fatalf("bucket %d ends with %v, which is in %d, and the next is in %d", i, last, place(last),
				place(last+time.Microsecond))
		}
	}
}
