package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/client"
)

// roundTripper answers in the test's own time.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// says is an answer of the service without a server.
func says(r *http.Request, status int, body string, header map[string]string) *http.Response {
	h := http.Header{"Content-Type": {"application/problem+json"}}
	for name, value := range header {
		h.Set(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

const overloaded = `{"code":"overloaded","isRetryable":true,"money_moved":"unknown",
	"next_action":"retry_same_operation"}`

func newClient(t *testing.T, answer roundTripper, change func(*client.Config)) *client.Client {
	t.Helper()
	config := client.Config{BaseURL: "http://refundd.test", APIKey: apiKey, Transport: answer}
	if change != nil {
		change(&config)
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A storm is not made worse: whatever the fault, 200 calls that fail cause at most 1.3 times as many requests.
func TestRefund_TwoHundredFailingCalls_CauseFewFurtherRequests(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]act{
		"overloaded":   refuse(503, "overloaded", true, "unknown", quick),
		"internal":     refuse(500, "internal", true, "unknown", quick),
		"rate limited": refuse(429, "rate_limited", true, "unknown", quick), "page": page(502, quick), "reset": reset,
	} {
		for _, failures := range []int{10, 1_000_000} { // with the breaker and without it
			t.Run(fmt.Sprint(name, " ", failures), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				for range 1000 {
					s.before, s.gets = append(s.before, a), append(s.gets, a)
				}
				c := s.client(t, func(c *client.Config) { c.BreakerFailures = failures })
				for range 200 {
					if _, err := c.Refund(t.Context(), asked); err == nil {
						t.Fatal("no error")
					}
				}
				if seen, _ := s.requests(); len(seen) > 260 {
					t.Errorf("%d requests for 200 calls", len(seen))
				}
			})
		}
	}
}

func TestRefund_RetryAfterBeyondTheDeadline_ReturnsTheAnswerInHandAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for header, want := range map[string]time.Duration{
			"20": 20 * time.Second,
			time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat): 30 * time.Second,
		} {
			c := newClient(t, func(r *http.Request) (*http.Response, error) {
				return says(r, 503, overloaded, map[string]string{"Retry-After": header}), nil
			}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			began := time.Now()
			_, err := c.Refund(ctx, asked)
			if e := onlyClass(t, err, client.ErrUnknown); e.Code != "overloaded" || e.RetryAfter != want ||
				!e.Retryable {
				t.Errorf("%s: %+v", header, e)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: took %v", header, took)
			}
			cancel()
		}
	})
}

// The waits between attempts: the server's own word where it gives one, else half a second, doubled, less a quarter at
// most.
func TestRefund_Waits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		header   map[string]string
		min, max []time.Duration
	}{
		{"backs off", nil, []time.Duration{375e6, 750e6, 1500e6, 3e9, 6e9, 6e9},
			[]time.Duration{500e6, 1e9, 2e9, 4e9, 8e9, 8e9}},
		{"as told", map[string]string{"Retry-After": "7"}, []time.Duration{7e9}, []time.Duration{7e9}},
		{"not at all", map[string]string{"Retry-After": "0"}, []time.Duration{0}, []time.Duration{0}},
		{"garbage is no word", map[string]string{"Retry-After": "-5"}, []time.Duration{375e6}, []time.Duration{500e6}},
		{"a date that is over", map[string]string{"Retry-After": "Fri, 01 Jan 1999 00:00:00 GMT"}, []time.Duration{0},
			[]time.Duration{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				service := newClient(t, func(r *http.Request) (*http.Response, error) {
					at = append(at, time.Now())
					return says(r, 503, overloaded, c.header), nil
				}, func(config *client.Config) {
					config.Attempts, config.BreakerFailures, config.Deadline = len(c.min)+1, 1000, time.Hour
				})
				if _, err := service.Refund(t.Context(), asked); err == nil {
					t.Fatal("no error")
				}
				if len(at) != len(c.min)+1 {
					t.Fatalf("%d requests", len(at))
				}
				for i := range c.min {
					if d := at[i+1].Sub(at[i]); d < c.min[i] || d > c.max[i] {
						t.Errorf("wait %d is %v, want %v to %v", i, d, c.min[i], c.max[i])
					}
				}
			})
		})
	}
}

// A date is read by the clock of the server that wrote it: one of the two may be an hour off.
func TestRefund_RetryAfterADate_IsReadByTheServersClock(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			began, sent := time.Now(), 0
			c := newClient(t, func(r *http.Request) (*http.Response, error) {
				theirs := time.Now().Add(off).UTC()
				if sent++; sent > 1 {
					return says(r, 422, `{"code":"odd","isRetryable":false,"money_moved":"no"}`, nil), nil
				}
				return says(r, 503, overloaded, map[string]string{
					"Date": theirs.Format(http.TimeFormat), "Retry-After": theirs.Add(7 * time.Second).Format(http.TimeFormat),
				}), nil
			}, nil)
			if _, err := c.Refund(t.Context(), asked); err == nil || sent != 2 {
				t.Errorf("%v off: %d requests, %v", off, sent, err)
			}
			if took := time.Since(began); took != 7*time.Second {
				t.Errorf("%v off: it waits for %v", off, took)
			}
		})
	}
}

// Nothing is kept, here or on the way: each call asks, and asks for what nobody stored.
func TestReads_AreNeverServedFromACache(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.executed["K"] = 100
	var asked []string
	look := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Cache-Control"))
		w.Header().Set("Cache-Control", "max-age=3600")
		receipt(w, http.StatusOK, "K", int64(100*len(asked)), "", false)
	}
	s.gets = []act{look, look}
	c := s.client(t, nil)
	for i := range 2 {
		if r, err := c.GetRefund(t.Context(), "K"); err != nil || r.AmountCents != int64(100*(i+1)) {
			t.Errorf("read %d: %d, %v", i+1, r.AmountCents, err)
		}
	}
	if diff := cmp.Diff([]string{"no-store", "no-store"}, asked); diff != "" {
		t.Error(diff)
	}
}

// A refund that nobody began may be sent, which its answer says; a read of it has been answered.
func TestGetRefund_NotFound_IsAskedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.client(t, nil).GetRefund(t.Context(), "nobodys")
	failure, ok := errors.AsType[*client.Error](err)
	if !ok || failure.Code != client.CodeRefundNotFound || !failure.Retryable {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"GET nobodys 1"}, s.seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestRefund_TheDeadline_IsPassedByNoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newClient(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, func(c *client.Config) { c.Deadline, c.AttemptTimeout, c.Attempts = 5*time.Second, 2*time.Second, 100 })
		_, err := c.Refund(t.Context(), asked)
		_ = onlyClass(t, err, client.ErrUnknown)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestBreaker_OpensAfterFailuresInARowAndProbesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests, healthy := 0, false
		c := newClient(t, func(r *http.Request) (*http.Response, error) {
			requests++
			if healthy {
				return says(r, 404, `{"code":"refund_not_found","isRetryable":false,"money_moved":"unknown"}`, nil), nil
			}
			return says(r, 503, overloaded, nil), nil
		}, func(c *client.Config) { c.Attempts, c.BreakerFailures, c.BreakerOpen = 1, 3, 5*time.Second })
		call := func() *client.Error {
			_, err := c.GetRefund(t.Context(), "K")
			return onlyClass(t, err, client.ErrUnknown)
		}
		for range 3 {
			_ = call()
		}
		time.Sleep(time.Second)
		e := call()
		if e.Code != client.CodeServiceUnavailable || e.NextAction != client.ActionEscalate ||
			e.RetryAfter != 4*time.Second || requests != 3 {
			t.Errorf("%+v after %d requests", e, requests)
		}
		time.Sleep(5 * time.Second)
		_ = call()
		_ = call()
		if requests != 4 {
			t.Errorf("%d requests, want one probe", requests)
		}
		healthy = true
		time.Sleep(6 * time.Second)
		for range 5 {
			if e := call(); e.Code != client.CodeRefundNotFound {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestOnRateLimit_TellsBeforeTheLimitIsHit(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var events []client.RateLimit
	s := newStage(t)
	for _, state := range []string{`"key";r=599;t=12`, `"key";r=100;t=11`} {
		s.gets = append(s.gets, refuse(404, "refund_not_found", false, "unknown", map[string]string{
			"RateLimit-Policy": `"key";q=600;w=60`, "RateLimit": state}))
	}
	s.gets = append(s.gets, refuse(429, "rate_limited", true, "unknown", map[string]string{
		"RateLimit-Policy": `"key";q=600;w=60`, "RateLimit": `"key";r=0;t=11`}),
		page(502, map[string]string{"RateLimit": "odd"}))
	c := s.client(t, func(c *client.Config) {
		c.Attempts = 1
		c.OnRateLimit = func(l client.RateLimit) { mu.Lock(); defer mu.Unlock(); events = append(events, l) }
	})
	for range 4 {
		if _, err := c.GetRefund(t.Context(), "K"); err == nil {
			t.Fatal("no error")
		}
	}
	minute := time.Minute
	want := []client.RateLimit{
		{Status: client.RateLimitAllowed, Utilization: 1. / 600, Quota: 600, Remaining: 599, Window: minute,
			Reset: 12 * time.Second},
		{Status: client.RateLimitAllowedWarning, Utilization: 500. / 600, Quota: 600, Remaining: 100, Window: minute,
			Reset: 11 * time.Second},
		{Status: client.RateLimitRejected, Utilization: 1, Quota: 600, Window: minute, Reset: 11 * time.Second},
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAttempts_AreLabelledAndTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var layers []string
	s.before = []act{func(w http.ResponseWriter, r *http.Request) {
		layers = append(layers, r.Header.Get("Refund-Attempt-Layer"), r.Header.Get("Refund-Attempt"),
			r.Header.Get("Idempotency-Key"))
		refuse(503, "overloaded", true, "unknown", quick)(w, r)
	}}
	var told []client.Attempt
	note := func(a client.Attempt) { a.Took = 0; told = append(told, a) }
	c := s.client(t, func(c *client.Config) { c.OnAttempt = note })
	if _, err := c.Refund(client.WithLayer(t.Context(), client.LayerAgentLoop, 7), asked); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"agent_loop", "7", ""}, layers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	want := []client.Attempt{
		{Method: "POST", OperationID: "K", Layer: "agent_loop", Number: 1, Status: 503, Code: "overloaded"},
		{Method: "POST", OperationID: "K", Layer: "agent_loop", Number: 2, Status: 201},
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func TestNew_NamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{BaseURL: "localhost:8080", APIKey: "a b", Attempts: -1, Deadline: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range []string{"base URL", "API key", "attempts", "deadline"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name the %s", err, word)
		}
	}
}
