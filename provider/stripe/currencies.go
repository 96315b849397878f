package stripe

import "math"

// Stripe counts amounts in the minor unit of ISO 4217, but for three currencies
// (https://docs.stripe.com/currencies#minor-units, #special-cases):
//
//   - ISK and UGX have no minor unit any more, and Stripe goes on counting hundredths of them, always whole ones.
//   - MGA, of which ISO 4217 counts hundredths, has none at Stripe.
//
// HUF and TWD have no minor unit in payouts, which are none of ours; in payments and refunds they have two digits, as
// in ISO 4217. Of currencies with three digits (BHD, JOD, KWD, OMR, TND) Stripe takes multiples of ten alone, and
// refuses others.
var (
	hundredths = map[string]bool{"ISK": true, "UGX": true}
	wholes     = map[string]bool{"MGA": true}
)

// toStripe is an amount of our minor units in Stripe's; false where Stripe can not count it.
func toStripe(amount int64, currency string) (int64, bool) {
	switch {
	case hundredths[currency]:
		return 100 * amount, amount <= math.MaxInt64/100
	case wholes[currency]:
		return amount / 100, amount%100 == 0
	}
	return amount, true
}

// notOurs is an amount that no refund of ours has.
const notOurs = -1

// fromStripe is an amount of Stripe's in our minor units; notOurs where it is no whole number of them.
func fromStripe(amount int64, currency string) int64 {
	switch {
	case amount < 0:
		return notOurs
	case hundredths[currency] && amount%100 != 0, wholes[currency] && amount > math.MaxInt64/100:
		return notOurs
	case hundredths[currency]:
		return amount / 100
	case wholes[currency]:
		return 100 * amount
	}
	return amount
}
