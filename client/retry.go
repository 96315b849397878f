package client

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	firstDelay    = 500 * time.Millisecond // doubled by each attempt
	longestDelay  = 8 * time.Second
	jitterShare   = 0.25
	maxRetryAfter = 60 * time.Second // what a server may ask a call to wait within itself
)

// delay is how long to wait after attempt n (1, 2, …): min(0.5 s · 2ⁿ⁻¹, 8 s), less up to a quarter, so that callers
// who failed together do not come back together.
func delay(n int, random float64) time.Duration {
	d := longestDelay
	if n <= 5 {
		d = min(firstDelay<<(n-1), longestDelay)
	}
	return time.Duration(float64(d) * (1 - jitterShare*random))
}

// sentAt is when an answer was sent, by its sender's own clock, which a date in it is to be read by; else by ours.
func sentAt(h http.Header) time.Time {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return time.Now()
}

// retryAfter reads the header Retry-After (RFC 9110, section 10.2.3): seconds, or an HTTP date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}

// repeats reports whether a status alone, where the server says nothing else, is worth another attempt.
func repeats(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return status >= 500
	}
}

// shouldRetry reports whether the same request may succeed on another attempt: the header X-Should-Retry decides, then
// a Retry-After of up to a minute, then the problem's own word, and the status last.
func shouldRetry(h http.Header, problem *problem, status int, now time.Time) bool {
	switch h.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	if wait, named := retryAfter(h, now); named && wait <= maxRetryAfter {
		return true
	}
	if problem != nil && problem.IsRetryable != nil {
		return *problem.IsRetryable
	}
	return repeats(status)
}

// budget bounds the further requests of all calls: each call earns a fraction of one, and each further request spends
// one. It counts in thousandths, so that what is earned is exact.
type budget struct {
	earn, limit int64

	mu   sync.Mutex
	have int64
}

const wholeRequest = 1000

func newBudget(fraction float64, burst int) *budget {
	limit := int64(burst) * wholeRequest
	return &budget{earn: int64(fraction * wholeRequest), limit: limit, have: limit}
}

// called notes a call.
func (b *budget) called() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have = min(b.have+b.earn, max(b.limit, wholeRequest))
}

// spend takes one further request, and reports whether it may be made.
func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.have < wholeRequest {
		return false
	}
	b.have -= wholeRequest
	return true
}
