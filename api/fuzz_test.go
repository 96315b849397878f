package api

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Bare or quoted, a key that is taken is the same operation id, and one that the body could name.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"K-1", `"K-1"`, ` "K-1"	`, `""`, `"`, ".", "..", "a b", "\u00e9",
		strings.Repeat("x", 255), "k\x00"} {
		f.Add(seed)
	}
	read := func(value string) (string, bool) {
		r := httptest.NewRequest(http.MethodPost, "/v1/refunds", nil)
		r.Header[keyHeader] = []string{value}
		in := &input{x: &exchange{r: r}}
		id, sent := in.idempotencyKey()
		return id, sent && in.verdict() == nil
	}
	f.Fuzz(func(t *testing.T, value string) {
		id, taken := read(value)
		if !taken {
			return
		}
		if code := operationIDFault(id); code != "" || !strings.Contains(value, id) {
			t.Errorf("%q is taken as %q, which is %s", value, id, code)
		}
		for _, spelling := range []string{id, `"` + id + `"`} {
			if again, taken := read(spelling); again != id || !taken {
				t.Errorf("%q names %q, %t, and not %q", spelling, again, taken, id)
			}
		}
	})
}

// What is taken for a time is one that Go reads too, and is the same when it is written and read again.
func FuzzParseInstant(f *testing.F) {
	for _, seed := range []string{"2026-12-01T09:00:00Z", "2026-02-29T00:00:00.123456789+23:59",
		"0001-01-01T00:00:00+00:01",
		"9999-12-31T23:59:59-00:01", "2026-12-01T24:00:00Z", "2026-12-01t09:00:00z", "2026-12-01T09:00:60Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, code := parseInstant(text)
		if code != "" {
			return
		}
		theirs, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || !at.Equal(theirs.Truncate(time.Microsecond)) {
			t.Fatalf("%q is %v, of Go's parser %v, %v", text, at, theirs, err)
		}
		if again, code := parseInstant(at.Format(time.RFC3339Nano)); code != "" || !again.Equal(at) {
			t.Errorf("%q is %v, and written again %v %s", text, at, again, code)
		}
	})
}

// A query is read as net/url reads it, or refused where that refuses it.
func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{"limit=20&cursor=abc", "a=1&a=2", "%zz=1", "a;b=1", "&&=",
		"created_after=2026-12-01T09%3A00%3A00%2B01:00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		ours, err := parseQuery(raw)
		theirs, errTheirs := url.ParseQuery(raw)
		if (err == nil) != (errTheirs == nil) {
			t.Fatalf("%q: %v, net/url says %v", raw, err, errTheirs)
		}
		if err == nil && !maps.EqualFunc(ours, theirs, slices.Equal) {
			t.Errorf("%q is %v, of net/url %v", raw, ours, theirs)
		}
	})
}
