package api

import "github.com/bojanz/currency"

// knownCurrency tells whether code is in ISO 4217, or was when an old payment was captured.
func knownCurrency(code string) bool {
	switch code {
	case "":
		return false
	case "HRK", "BGN", "ANG": // replaced since 2023; bojanz/currency drops them
		return true
	}
	return currency.IsValid(code)
}
