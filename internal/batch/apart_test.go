package batch

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestApart_OnePieceSpoilsNoOther_InABoundedNumberOfRuns(t *testing.T) {
	errBad, errAway := errors.New("bad"), errors.New("away")
	for _, c := range []struct {
		name  string
		bad   []int
		fault error
		fails int
		runs  int
	}{
		{"None", nil, errBad, 0, 1},
		{"First", []int{0}, errBad, 1, 17},
		{"Last", []int{199}, errBad, 1, 17},
		{"Two", []int{3, 150}, errBad, 2, 31},
		{"TheDatabaseIsAway", []int{3}, errAway, 200, 1},
		{"TooMany", []int{0, 20, 40, 60, 80, 100, 120, 140, 160, 180}, errBad, 153, 33},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := make([]int, 200)
			for i := range work {
				work[i] = i
			}
			runs := 0
			results := Apart(work, 32, func(err error) bool { return errors.Is(err, errBad) },
				func(work []int) ([]Result[string], error) {
					runs++
					results := make([]Result[string], len(work))
					for i, w := range work {
						if slices.Contains(c.bad, w) {
							return nil, c.fault
						}
						results[i].Out = fmt.Sprint(w)
					}
					return results, nil
				})
			fails := 0
			for i, r := range results {
				switch {
				case r.Err != nil:
					fails++
				case r.Out != fmt.Sprint(i):
					t.Errorf("%d is answered %q", i, r.Out)
				}
			}
			if len(results) != len(work) || fails != c.fails || runs > c.runs {
				t.Errorf("%d results, %d failures in %d runs, want %d in at most %d", len(results), fails, runs,
					c.fails, c.runs)
			}
		})
	}
}
