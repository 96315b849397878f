package client

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// call is one request, as often as it is sent.
type call struct {
	method string
	path   string // escaped, with its query
	body   []byte // nil: none
	names  string // the operation that the path or the body names; empty where there is none

	// accept reads the body of a 2xx; an error says that it is not the answer that was asked for.
	accept func(body []byte) error
	// find looks for the result of an attempt whose outcome is not known, and reports whether it found one. Nil where
	// sending again is all there is to do.
	find func(ctx context.Context, n int) bool
}

// changes reports whether the request does more than read.
func (q *call) changes() bool { return q.method != http.MethodGet }

// missing reports whether a read was told that there is nothing: that is its answer, whatever may be sent for the
// operation then.
func (q *call) missing(failed *failedAttempt) bool {
	return !q.changes() && failed.Status == http.StatusNotFound
}

// untold is what is known of the money where nothing was answered.
func (q *call) untold() MoneyMoved {
	if q.names == "" {
		return MoneyMovedNo
	}
	return MoneyMovedUnknown
}

// do sends a request until it has a result, the server says that repeating is of no use, or attempts, budget or time
// are used up; then the answer in hand is the error.
func (c *Client) do(ctx context.Context, q *call) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Deadline)
	defer cancel()
	c.budget.called()
	for n := 1; ; n++ {
		failed := c.attempt(ctx, q, n)
		if failed == nil {
			return nil
		}
		again := failed.again && n < c.config.Attempts && !q.missing(failed)
		switch {
		case failed.lost() && q.find != nil:
			// What it came to is asked for before it is sent again, and also where it is not: an answer may be all that
			// is missing.
			if !c.budget.spend() {
				return failed.Error
			}
			again = again && c.wait(ctx, n, failed)
			if ctx.Err() == nil && q.find(ctx, n) {
				return nil
			}
			again = again && ctx.Err() == nil && c.budget.spend()
		case again:
			again = c.budget.spend() && c.wait(ctx, n, failed)
		}
		if !again {
			return failed.Error
		}
	}
}

// wait sleeps until the next attempt, and reports whether it is to be made: not where the wait is longer than the
// server may ask for, or than the deadline allows.
func (c *Client) wait(ctx context.Context, n int, failed *failedAttempt) bool {
	d := delay(n, c.jitter())
	if failed.named {
		d = failed.RetryAfter
	}
	if deadline, ok := ctx.Deadline(); d > maxRetryAfter || ok && time.Until(deadline) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// failedAttempt is an error with what it says of another attempt.
type failedAttempt struct {
	*Error
	again bool // another attempt may succeed
	named bool // RetryAfter is the server's word, be it 0
}

// lost reports whether the answer that is missing may be that of an executed request. Where the service says itself
// that it was too busy to look, sending again is the look-up.
func (f *failedAttempt) lost() bool {
	switch f.Code {
	case "overloaded", "database_unavailable", "provider_unavailable":
		return false
	}
	return f.MoneyMoved == MoneyMovedUnknown && (f.Status == 0 || f.Status >= 500 || f.Code == CodeUnexpectedAnswer)
}

// Attempt is one request, as told to Config.OnAttempt.
type Attempt struct {
	Method      string
	OperationID string // empty where the request names none
	Layer       string
	Number      int           // of this request within its call: 1, 2, …; a look-up has that of the attempt before it
	Status      int           // of HTTP; 0 where no answer came
	Code        string        // of the error; empty where there is none
	Took        time.Duration // until the whole answer was read
}

// attempt makes one request.
func (c *Client) attempt(ctx context.Context, q *call, n int) *failedAttempt {
	report, rest := c.breaker.allow()
	if report == nil {
		return &failedAttempt{Error: stopped(q.untold(), rest)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.AttemptTimeout, errAttemptTimeout)
	defer cancel()
	began := time.Now()
	status, failed := c.exchange(ctx, q, n)
	report(failure(ctx, failed))
	told := Attempt{
		Method: q.method, OperationID: q.names, Layer: c.layer(ctx).name, Number: n, Status: status, Took: time.Since(began),
	}
	if failed != nil {
		told.Code = failed.Code
	}
	c.config.OnAttempt(told)
	return failed
}

// errAttemptTimeout tells an attempt that took too long from a call whose deadline has passed.
var errAttemptTimeout = errors.New("attempt timed out")

// label is the layer that repeats a call, and the number of this attempt in it.
type label struct {
	name   string
	number int // 0: the client's own count
}

type labelKey struct{}

// WithLayer labels the calls under ctx as attempt number n (1, 2, …) of a layer above the client, such as
// LayerAgentLoop.
func WithLayer(ctx context.Context, layer string, n int) context.Context {
	return context.WithValue(ctx, labelKey{}, label{layer, n})
}

func (c *Client) layer(ctx context.Context) label {
	if l, ok := ctx.Value(labelKey{}).(label); ok {
		return l
	}
	return label{name: c.config.Layer}
}
