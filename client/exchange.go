package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// maxAnswer bounds what is read of an answer: the largest of the service's, a page of 100 refunds, is well below.
const maxAnswer = 4 << 20

// problem is an error on the wire (RFC 9457) with the service's members.
type problem struct {
	Code              string     `json:"code"`
	Detail            string     `json:"detail"`
	IsRetryable       *bool      `json:"isRetryable"`
	MoneyMoved        MoneyMoved `json:"money_moved"`
	NextAction        string     `json:"next_action"`
	RetryAfterSeconds *int64     `json:"retry_after_seconds"`
	DiagnosticRef     string     `json:"diagnostic_ref"`
	FailureCode       string     `json:"failure_code"`
	Replayed          bool       `json:"replayed"`
	Errors            []Field    `json:"errors"`
}

// exchange sends the request once and reads the whole answer, whose status it returns.
func (c *Client) exchange(ctx context.Context, q *call, n int) (int, *failedAttempt) {
	req, err := c.request(ctx, q, n)
	if err != nil {
		return 0, c.unsent(q, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, c.unanswered(ctx, q, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = errors.New("the answer is too large")
	}
	if limit, ok := readRateLimit(res.Header, res.StatusCode, c.config.WarnAt); ok {
		c.config.OnRateLimit(limit)
	}
	switch {
	case err != nil:
		return 0, c.unanswered(ctx, q, err) // truncated: what it would have said is not known
	case res.StatusCode < 200 || res.StatusCode >= 300:
		return res.StatusCode, refused(q, res, body)
	}
	if err := q.accept(body); err != nil {
		return res.StatusCode, unexpected(q, res.StatusCode, err)
	}
	return res.StatusCode, nil
}

func (c *Client) request(ctx context.Context, q *call, n int) (*http.Request, error) {
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(q.body)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // net/http must not send it again by itself
	req.Header.Set("Authorization", "Bearer "+c.config.APIKey)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Cache-Control", "no-store") // nothing on the way may answer for the service
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	l := c.layer(ctx)
	if l.number == 0 {
		l.number = n
	}
	req.Header.Set("Refund-Attempt-Layer", l.name)
	req.Header.Set("Refund-Attempt", strconv.Itoa(l.number))
	return req, nil
}

// unsent is the error of a request that could not even be written down: the caller's fault, and nothing was sent.
func (c *Client) unsent(q *call, cause error) *failedAttempt {
	return &failedAttempt{Error: &Error{
		Code: "invalid_request", MoneyMoved: q.untold(), NextAction: ActionFixRequest,
		Detail: "The request can not be sent.", cause: cause,
	}}
}

// unanswered is the error of a request whose answer did not arrive, or not as a whole.
func (c *Client) unanswered(ctx context.Context, q *call, cause error) *failedAttempt {
	e := unanswered(ctx, q.untold(), cause)
	e.unheard = q.changes()
	if errors.Is(context.Cause(ctx), errAttemptTimeout) {
		e.Code, e.Detail = CodeServiceUnavailable, "The service gave no answer in time."
	}
	return &failedAttempt{Error: e, again: true}
}

// refused reads an answer that is no 2xx. One that is not the service's own says nothing of the operation.
func refused(q *call, res *http.Response, body []byte) *failedAttempt {
	p, now := readProblem(res, body), sentAt(res.Header)
	f := &failedAttempt{Error: &Error{Status: res.StatusCode}, again: shouldRetry(res.Header, p, res.StatusCode, now)}
	f.RetryAfter, f.named = retryAfter(res.Header, now)
	f.Retryable = f.again
	if p == nil {
		f.Code, f.MoneyMoved, f.NextAction = CodeUnexpectedAnswer, q.untold(), ActionEscalate
		f.Detail = fmt.Sprintf("The answer %d is not the service's own.", res.StatusCode)
		f.unheard = q.changes() && res.StatusCode >= 500
		if f.again {
			f.NextAction = ActionRetrySameOperation
		}
		return f
	}
	f.Code, f.Detail, f.MoneyMoved, f.NextAction = p.Code, p.Detail, p.MoneyMoved, p.NextAction
	f.DiagnosticRef, f.FailureCode, f.Replayed, f.Fields = p.DiagnosticRef, p.FailureCode, p.Replayed, p.Errors
	if !f.named && p.RetryAfterSeconds != nil && *p.RetryAfterSeconds >= 0 {
		f.RetryAfter, f.named = time.Duration(min(*p.RetryAfterSeconds, int64(24*time.Hour/time.Second)))*time.Second,
			true
	}
	return f
}

// readProblem returns nil for an answer that is not one of the service's problems.
func readProblem(res *http.Response, body []byte) *problem {
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || media != "application/problem+json" {
		return nil
	}
	var p problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		return nil
	}
	if !p.MoneyMoved.known() {
		return nil
	}
	return &p
}

// unexpected is the error of a 2xx that is not the answer that was asked for. It says nothing of the operation.
func unexpected(q *call, status int, cause error) *failedAttempt {
	return &failedAttempt{again: true, Error: &Error{
		Code: CodeUnexpectedAnswer, Status: status, Retryable: true, MoneyMoved: q.untold(), NextAction: ActionEscalate,
		Detail: "The answer is not the one that was asked for.", unheard: q.changes(), cause: cause,
	}}
}

// errOther tells an answer that reads well and speaks of something else.
var errOther = errors.New("the answer is about something else")

// reading returns what reads an answer into v, if it matches what was asked for.
func reading[T any](v *T, matches func(T) bool) func([]byte) error {
	return func(body []byte) error {
		var got T
		if err := json.Unmarshal(body, &got); err != nil {
			return err
		}
		if matches != nil && !matches(got) {
			return errOther
		}
		*v = got
		return nil
	}
}

// get sends a call and returns its answer.
func get[T any](ctx context.Context, c *Client, q *call, matches func(T) bool) (T, error) {
	var v T
	q.accept = reading(&v, matches)
	err := c.do(ctx, q)
	return v, err
}

// send is get with a body.
func send[T any](ctx context.Context, c *Client, q *call, body any, matches func(T) bool) (v T, err error) {
	if q.body, err = encode(body); err != nil {
		return v, err
	}
	return get(ctx, c, q, matches)
}

// encode writes a body. Absent members are left out.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, &Error{Code: "invalid_request", MoneyMoved: MoneyMovedNo, NextAction: ActionFixRequest,
			Detail: "The request can not be written as JSON.", cause: err}
	}
	return b, nil
}
