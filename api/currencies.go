package api

import (
	"slices"

	"github.com/bojanz/currency"
)

// withdrawn are the currencies that ISO 4217 withdrew since December 2016 (its table A.3, "historic denominations"),
// which bojanz/currency drops: a payment that was captured in one may still be refunded, in the minor unit that it
// had then.
var withdrawn = []string{
	"ANG", // 2025-03
	"BGN", // 2026-01
	"BYR", // 2017-01, without a minor unit
	"CUC", // 2021-06
	"HRK", // 2023-01
	"MRO", // 2017-12
	"SLL", // 2023-12
	"STD", // 2017-12
	"VED", // in use beside VES, of which it is another code
	"VEF", // 2018-08
	"ZWL", // 2024-09
}

// knownCurrency reports whether code is in ISO 4217, or was within the last ten years.
func knownCurrency(code string) bool {
	return code != "" && (currency.IsValid(code) || slices.Contains(withdrawn, code))
}

// CurrencyDigits is how many decimals each known currency has: what divides its minor units.
func CurrencyDigits() map[string]int {
	digits := map[string]int{}
	for _, code := range withdrawn {
		digits[code] = 2
	}
	digits["BYR"] = 0
	for _, code := range currency.GetCurrencyCodes() {
		if n, known := currency.GetDigits(code); known {
			digits[code] = int(n)
		}
	}
	return digits
}
