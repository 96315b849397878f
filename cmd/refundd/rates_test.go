package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRates_AreForAllOrForEach(t *testing.T) {
	t.Parallel()
	type told struct {
		All  float64
		Each map[string]float64
	}
	for text, want := range map[string]told{
		"":                      {0, map[string]float64{"stripe": 20}}, // nothing is said
		"0":                     {0, nil},
		"7.5":                   {7.5, nil},
		"stripe=80":             {0, map[string]float64{"stripe": 80}},
		"simulator=5":           {0, map[string]float64{"stripe": 20, "simulator": 5}},
		"stripe=0,simulator=50": {0, map[string]float64{"stripe": 0, "simulator": 50}},
	} {
		var r rates
		if text != "" {
			if err := r.UnmarshalText([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		all, each := r.perSecond()
		if d := cmp.Diff(want, told{all, each}); d != "" {
			t.Errorf("%q (-want +got):\n%s", text, d)
		}
	}
}
