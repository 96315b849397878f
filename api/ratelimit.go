package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// window is the length of a key's window; it begins with the key's first request.
const window = time.Minute

// limiter counts requests in a fixed window per key. Only the ids of valid keys get here, and windows that ended are
// dropped as new ones come, so that it holds no more than the keys of a minute or two.
type limiter struct {
	quota  int
	policy []string

	mu      sync.Mutex
	windows map[string]*counted
	sweepAt int // how many windows call for dropping those that ended
}

type counted struct {
	ends time.Time
	used int
}

// standing is what a request finds of its key's window.
type standing struct {
	limiter   *limiter
	allowed   bool
	remaining int
	reset     int // whole seconds until the window ends, at least 1
}

func newLimiter(perMinute int) *limiter {
	return &limiter{
		quota:   perMinute,
		policy:  []string{`"key";q=` + strconv.Itoa(perMinute) + `;w=` + strconv.Itoa(int(window.Seconds()))},
		windows: map[string]*counted{},
		sweepAt: minSweep,
	}
}

const minSweep = 1024

// take counts one request of the key. now carries Go's monotonic reading: windows are durations.
func (l *limiter) take(keyID string, now time.Time) standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.windows[keyID]
	if c == nil || !now.Before(c.ends) {
		l.sweep(now)
		c = &counted{ends: now.Add(window)}
		l.windows[keyID] = c
	}
	st := standing{limiter: l, allowed: c.used < l.quota, reset: wholeSeconds(c.ends.Sub(now))}
	if st.allowed {
		c.used++
	}
	st.remaining = l.quota - c.used
	return st
}

func (l *limiter) sweep(now time.Time) {
	if len(l.windows) < l.sweepAt {
		return
	}
	for id, c := range l.windows {
		if !now.Before(c.ends) {
			delete(l.windows, id)
		}
	}
	l.sweepAt = max(minSweep, 2*len(l.windows))
}

// describe tells the caller where it stands (draft-ietf-httpapi-ratelimit-headers-10).
func (st *standing) describe(h http.Header) {
	h["RateLimit-Policy"] = st.limiter.policy // spelled as the draft does
	h["RateLimit"] = []string{`"key";r=` + strconv.Itoa(st.remaining) + `;t=` + strconv.Itoa(st.reset)}
}
