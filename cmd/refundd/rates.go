package main

import (
	"errors"
	"maps"
	"strconv"
	"strings"

	"refundd/provider/stripe"
)

// rates are how many requests per second reconciliation sends to each provider; 0 sets no limit.
type rates struct {
	all  *float64           // nil where nothing is said of all
	each map[string]float64 // by provider
}

// usualRates are what providers can take of whom nothing is said: any number, but of Stripe.
var usualRates = map[string]float64{providerStripe: stripe.RatePerSecond}

var errRate = errors.New("--rate takes a number from 0 to 1000000, or one for a provider each, such as stripe=20,simulator=500")

// UnmarshalText implements encoding.TextUnmarshaler: a number for all, or numbers by the names of providers.
func (r *rates) UnmarshalText(text []byte) error {
	*r = rates{each: map[string]float64{}}
	for part := range strings.SplitSeq(string(text), ",") {
		name, value, named := strings.Cut(part, "=")
		if !named {
			name, value = "", part
		}
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil, !(n >= 0 && n <= 1e6), !named && len(part) != len(text), named && name != providerStripe &&
			name != providerSimulator:
			return errRate
		case named:
			r.each[name] = n
		default:
			r.all = &n
		}
	}
	return nil
}

// perSecond is the rate of providers that are not named, and of those that are.
func (r rates) perSecond() (all float64, each map[string]float64) {
	if r.all != nil {
		return *r.all, nil
	}
	each = maps.Clone(usualRates)
	maps.Copy(each, r.each)
	return 0, each
}
