package client

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RateLimit is what an answer says of the API key's limit.
type RateLimit struct {
	Status      RateLimitStatus
	Utilization float64       // of the window, 0 to 1
	Quota       int64         // requests per window
	Remaining   int64         // of them
	Window      time.Duration // its length
	Reset       time.Duration // until it begins anew
}

// RateLimitStatus tells how near the limit is.
type RateLimitStatus string

// The statuses.
const (
	RateLimitAllowed        RateLimitStatus = "allowed"
	RateLimitAllowedWarning RateLimitStatus = "allowed_warning" // Config.WarnAt of the window is used
	RateLimitRejected       RateLimitStatus = "rejected"        // this request was refused for it
)

// readRateLimit reads RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-10), of the first policy
// only; false where the server sets no limit.
func readRateLimit(h http.Header, status int, warnAt float64) (RateLimit, bool) {
	policy, state := parameters(h.Get("RateLimit-Policy")), parameters(h.Get("RateLimit"))
	quota, remaining := policy["q"], state["r"]
	if quota <= 0 || h.Get("RateLimit") == "" {
		return RateLimit{}, false
	}
	l := RateLimit{
		Status: RateLimitAllowed, Quota: quota, Remaining: remaining, Window: time.Duration(policy["w"]) * time.Second,
		Reset: time.Duration(state["t"]) * time.Second, Utilization: float64(max(quota-remaining, 0)) / float64(quota),
	}
	switch {
	case status == http.StatusTooManyRequests:
		l.Status, l.Utilization = RateLimitRejected, 1
	case l.Utilization >= warnAt:
		l.Status = RateLimitAllowedWarning
	}
	return l, true
}

// parameters are the whole numbers of the first item of a structured field (RFC 9651), such as "key";q=600;w=60.
func parameters(field string) map[string]int64 {
	item, _, _ := strings.Cut(field, ",")
	found := make(map[string]int64)
	for part := range strings.SplitSeq(item, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if n, err := strconv.ParseInt(value, 10, 64); ok && err == nil && n >= 0 {
			found[name] = n
		}
	}
	return found
}
