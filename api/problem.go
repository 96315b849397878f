package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"refundd/operations"
	"refundd/webhooks"
)

// rejection is what api itself refuses a request for.
type rejection struct {
	code       string
	detail     string // instead of the code's own
	faults     []fault
	allow      string
	retryAfter int // seconds
}

func (r *rejection) Error() string { return r.code }

// Is reports whether target is the same refusal, wherever its fault is.
func (r *rejection) Is(target error) bool {
	t, ok := target.(*rejection)
	return ok && t.code == r.code && t.detail == r.detail
}

// problem is an error on the wire (RFC 9457), its members in the documented order.
type problem struct {
	Type              string                `json:"type"`
	Title             string                `json:"title"`
	Status            int                   `json:"status"`
	Detail            string                `json:"detail"`
	Code              string                `json:"code"`
	IsRetryable       bool                  `json:"isRetryable"`
	MoneyMoved        operations.MoneyMoved `json:"money_moved"`
	NextAction        string                `json:"next_action"`
	RetryAfterSeconds int                   `json:"retry_after_seconds,omitzero"`
	OperationID       string                `json:"operation_id,omitzero"`
	DiagnosticRef     string                `json:"diagnostic_ref"`
	Errors            []fault               `json:"errors,omitempty"`
	// Of a refund that was declined, or waits for a human: the operation's own.
	Replayed    *bool      `json:"replayed,omitzero"`
	FailureCode *string    `json:"failure_code,omitzero"`
	CreatedAt   *timestamp `json:"created_at,omitzero"`
	SettledAt   *timestamp `json:"settled_at,omitzero"`
	// Of amount_exceeds_refundable: what the order's refunds leave of its capture, read under its lock.
	RefundableCents *int64 `json:"refundable_cents,omitzero"`

	cause error // for the log
	allow string
}

// problem makes the answer of an error. Only the table's own words reach the caller.
func (x *exchange) problem(err error) *problem {
	code, r := classify(err)
	k := kinds[code]
	p := &problem{
		Type: "urn:refundd:problem:" + code, Title: k.title, Status: k.status, Detail: k.detail, Code: code,
		IsRetryable: k.retryable, MoneyMoved: x.moneyMoved(code, err), NextAction: k.next,
		RetryAfterSeconds: k.retryAfter, OperationID: x.operationID, DiagnosticRef: x.ref,
		Errors: r.faults, cause: err, allow: r.allow,
	}
	if r.detail != "" {
		p.Detail = r.detail
	}
	if k.retryAfter > 0 && r.retryAfter > 0 {
		p.RetryAfterSeconds = r.retryAfter
	}
	var refusal *operations.Refusal
	if errors.As(err, &refusal) {
		p.add(refusal)
	}
	return p
}

// classify finds an error's code, and what api noted of it.
func classify(err error) (string, *rejection) {
	var r *rejection
	if errors.As(err, &r) {
		return r.code, r
	}
	var incomplete *operations.IncompleteError
	if errors.As(err, &incomplete) {
		return codeInvalidRequest, &rejection{faults: orderFaults(incomplete)}
	}
	var mismatch *operations.MismatchError
	if errors.As(err, &mismatch) {
		if mismatch.Member == "currency" {
			return "currency_mismatch", &rejection{detail: "The payment was captured in another currency."}
		}
		return codeInvalidRequest, &rejection{faults: []fault{{"/" + mismatch.Member, faultMismatch}}}
	}
	if errors.Is(err, operations.ErrEventMalformed) {
		return codeMalformedRequest, &rejection{faults: []fault{{"", faultInvalid}}}
	}
	if errors.Is(err, operations.ErrInvalidCursor) {
		return codeInvalidRequest, &rejection{faults: []fault{{"query:cursor", faultInvalid}}}
	}
	if errors.Is(err, webhooks.ErrURL) {
		return codeInvalidRequest, &rejection{faults: []fault{{"/url", faultInvalid}}}
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code, &rejection{}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return codeDeadlineExceeded, &rejection{}
	}
	return codeInternal, &rejection{}
}

// moneyMoved never says more than was read. What api itself refuses left the operation's row unread; what the engine
// refuses was decided on that row, which comes along where there is one. A code whose row of the table says unknown
// stays at that: while somebody else works on the operation, its row may tell something else by now.
func (x *exchange) moneyMoved(code string, err error) operations.MoneyMoved {
	var own *rejection
	var refusal *operations.Refusal
	switch {
	case x.match.names == namesNone:
		return no
	case errors.As(err, &own):
		return unknown
	case code == codeOperationConflict: // speaks of the refund that was asked for
		return no
	case errors.As(err, &refusal) && refusal.Operation != nil &&
		(kinds[code].moved == no || code == codeAlreadyExecuted):
		return refusal.Operation.State.MoneyMoved()
	}
	return kinds[code].moved
}

// add says what the refusal knows of the operation.
func (p *problem) add(r *operations.Refusal) {
	if p.RetryAfterSeconds > 0 && r.RetryAfter > 0 {
		p.RetryAfterSeconds = wholeSeconds(r.RetryAfter)
	}
	p.RefundableCents = r.Refundable
	if r.Operation == nil {
		return
	}
	p.OperationID = r.Operation.OperationID
	if p.NextAction == nextAuthorize && p.MoneyMoved != no {
		p.NextAction = nextNone // a refund was executed without an approval: another one is not what is missing
	}
	if p.Code == codeDeclined {
		p.Replayed = new(r.Replayed)
		p.CreatedAt = new(timestamp(r.Operation.CreatedAt))
		p.SettledAt = optionalTime(r.Operation.SettledAt)
	}
	if p.Code == codeDeclined || p.Code == codeNeedsAttention {
		p.FailureCode = r.Operation.FailureCode
	}
}

func (p *problem) reply() reply {
	return reply{
		status: p.Status, body: p, mediaType: "application/problem+json", retryAfter: p.RetryAfterSeconds,
		replayed: p.Replayed != nil && *p.Replayed, moved: p.MoneyMoved,
	}
}

// describe says in headers what HTTP clients look for there.
func (p *problem) describe(h http.Header) {
	h.Set("X-Should-Retry", strconv.FormatBool(p.IsRetryable))
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.Code == codeUnauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
}

// wholeSeconds rounds up: who waits that long did not come too early.
func wholeSeconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}
