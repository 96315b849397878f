package main

import (
	"math"
	"testing"
)

// A rate that is taken is a number of requests per second that can be kept.
func FuzzRates(f *testing.F) {
	for _, seed := range []string{"20", "stripe=20,simulator=0.5", "NaN", "stripe=-1", "1e309", "0x1p-2",
		"stripe=1,stripe=2", "5,stripe=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var r rates
		if r.UnmarshalText([]byte(text)) != nil {
			return
		}
		all, each := r.perSecond()
		for name, n := range each {
			if math.IsNaN(n) || n < 0 || n > 1e6 || name != providerStripe && name != providerSimulator {
				t.Errorf("%q gives %s %v", text, name, n)
			}
		}
		if math.IsNaN(all) || all < 0 || all > 1e6 {
			t.Errorf("%q gives %v", text, all)
		}
	})
}
