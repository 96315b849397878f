package api

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLimiter_CountsEachKeyInItsOwnWindow(t *testing.T) {
	t.Parallel()
	l := newLimiter(2)
	began := time.Now()
	for _, c := range []struct {
		key       string
		at        time.Duration
		allowed   bool
		remaining int
		reset     int
	}{
		{"a", 0, true, 1, 60},
		{"b", 10 * time.Second, true, 1, 60},
		{"a", 20 * time.Second, true, 0, 40},
		{"a", 30*time.Second + 1, false, 0, 30},
		{"a", 59*time.Second + 999*time.Millisecond, false, 0, 1},
		{"a", time.Minute, true, 1, 60},
		{"b", time.Minute, true, 0, 10},
	} {
		st := l.take(c.key, began.Add(c.at))
		if st.allowed != c.allowed || st.remaining != c.remaining || st.reset != c.reset {
			t.Errorf("%s at %v: %+v, want %+v", c.key, c.at, st, c)
		}
	}
}

func TestLimiter_ForgetsWindowsThatEnded(t *testing.T) {
	t.Parallel()
	l := newLimiter(1)
	now := time.Now()
	for i := range 10 * minSweep {
		l.take(strconv.Itoa(i), now)
		now = now.Add(window / minSweep)
	}
	if len(l.windows) > 3*minSweep {
		t.Errorf("%d windows are held, of %d keys in a minute", len(l.windows), minSweep)
	}
}

func TestLimiter_TellsTheCallerWhereItStands(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	l := newLimiter(600)
	st := l.take("a", time.Now())
	st.describe(h)
	if d := cmp.Diff(http.Header{"RateLimit-Policy": {`"key";q=600;w=60`}, "RateLimit": {`"key";r=599;t=60`}},
		h); d != "" {
		t.Errorf("headers:\n%s", d)
	}
}

func TestRateLimit_RefusesAndBindsNothing(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.RateLimit = 2 })
	s.registered(t, "A")
	s.do(t, "GET", "/v1/orders/A", "")
	const body = `{"operation_id":"k","order_id":"A","amount_cents":1}`
	a := s.do(t, "POST", "/v1/refunds", body)
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.text("code") != "rate_limited" || err != nil || after < 1 || after > 60 ||
		a.body["retry_after_seconds"] != float64(after) ||
		a.text("money_moved") != "unknown" || a.text("operation_id") != "k" {
		t.Errorf("refusal: %d %s", a.status, a.raw)
	}
	other := s.key(t, tenant, "refunds:write")
	if a := s.do(t, "POST", "/v1/refunds", body, as(other)); a.status != 201 {
		t.Errorf("another key: %d %s", a.status, a.raw)
	}
}
