package api

import (
	"regexp"
	"time"
)

// rfc3339 is the date-time of RFC 3339, section 5.6, with upper-case T and Z. Go's own parser takes more than that:
// hours of one digit, a comma before the fraction, offsets of 24 hours and more (go.dev/issue/54580). The year 0000,
// which SQL does not have, is left out.
var rfc3339 = regexp.MustCompile(`^([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)` +
	`-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])` +
	`T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

// parseInstant takes RFC 3339, to the microsecond that the database keeps. A leap second is none of the times that
// Postgres can store, and is refused rather than moved. What is beyond the years 0001 to 9999 in UTC is out of range.
func parseInstant(s string) (t time.Time, code string) {
	if !rfc3339.MatchString(s) {
		return time.Time{}, faultInvalid
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil { // a day that its month does not have
		return time.Time{}, faultInvalid
	}
	t = t.UTC().Truncate(time.Microsecond)
	if year := t.Year(); year < 1 || year > 9999 {
		return time.Time{}, faultOutOfRange
	}
	return t, ""
}

// instant is an optional time.
func (in *input) instant(pointer string, s *string) *time.Time {
	if s == nil {
		return nil
	}
	t, code := parseInstant(*s)
	if code != "" {
		in.blame(pointer, code)
		return nil
	}
	return &t
}
