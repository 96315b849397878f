package sendonce_test

import (
	"net/http"
	"testing"

	"refundd/internal/sendonce"
)

// Whatever a response asks for, the wait is none at all or one that ends.
func FuzzRetryAfter(f *testing.F) {
	f.Add("7", "")
	f.Add("99999999999999999999", "")
	f.Add("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:00 GMT")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		wait := sendonce.RetryAfter(&http.Response{Header: http.Header{"Retry-After": {value}, "Date": {date}}})
		if wait < 0 || wait > sendonce.MaxRetryAfter {
			t.Errorf("Retry-After %q of %q is a wait of %v", value, date, wait)
		}
	})
}
