package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What an *Error is, for errors.Is. Every error of a call is exactly one of them.
var (
	// ErrFatal reports that the call did nothing and that repeating it is of no use.
	ErrFatal = errors.New("refused for good")
	// ErrTransient reports that the call did nothing and that the same call may succeed later.
	ErrTransient = errors.New("refused for now")
	// ErrUnknown reports that nobody said what became of the operation. It may have been executed: look it up, or
	// repeat the call with the same operation id. Never mint another one.
	ErrUnknown = errors.New("outcome unknown")
)

// MoneyMoved tells whether money moved for the operation that a call named.
type MoneyMoved string

// The answers.
const (
	MoneyMovedYes     MoneyMoved = "yes"
	MoneyMovedNo      MoneyMoved = "no"
	MoneyMovedUnknown MoneyMoved = "unknown"
)

func (m MoneyMoved) known() bool {
	return m == MoneyMovedYes || m == MoneyMovedNo || m == MoneyMovedUnknown
}

// Codes that the client itself gives; all others are the service's (openapi.yaml).
const (
	CodeServiceUnavailable = "service_unavailable" // no answer came, or the breaker is open
	// an answer that is not the service's: a proxy's page, a truncated body
	CodeUnexpectedAnswer = "unexpected_answer"
	CodeCanceled         = "canceled"          // the caller ended the call
	CodeDeadlineExceeded = "deadline_exceeded" // the deadline passed before an answer came
)

// The service's codes that callers most often tell apart.
const (
	CodeRefundDeclined  = "refund_declined"
	CodeRefundNotFound  = "refund_not_found"
	CodeNeedsAttention  = "operation_needs_attention"
	CodeInProgress      = "operation_in_progress"
	CodeConflict        = "operation_id_conflict"
	CodeExceeds         = "amount_exceeds_refundable"
	CodeNotAuthorized   = "authorization_not_found"
	CodeUnauthenticated = "unauthenticated"
)

// Actions that an answer asks for (NextAction).
const (
	ActionNone                 = "none"
	ActionRetrySameOperation   = "retry_same_operation"
	ActionWaitThenGet          = "wait_then_get"
	ActionFixRequest           = "fix_request"
	ActionRequestAuthorization = "request_authorization"
	ActionEscalate             = "escalate_to_human"
)

// Error is why a call has no result. Its words are the service's own and safe for a person; they hold no URL, no header
// and no secret. What lies below (a network error) is reached by errors.As alone.
type Error struct {
	Code          string        // stable
	Status        int           // of HTTP; 0 where no answer came
	Retryable     bool          // with the same operation id
	MoneyMoved    MoneyMoved    // for the operation that the call named
	NextAction    string        // what to do now
	RetryAfter    time.Duration // where the service named a time
	DiagnosticRef string        // the reference into the service's logs
	Detail        string        // safe for a person
	FailureCode   string        // CodeRefundDeclined, CodeNeedsAttention: why
	Replayed      bool          // CodeRefundDeclined: an earlier attempt was told so already
	Fields        []Field       // what is wrong with the request

	cause   error
	unheard bool // a change that may have been made all the same
}

// Field is one thing that is wrong with a request.
type Field struct {
	Pointer string `json:"pointer"` // RFC 6901, or query:name, or header:name
	Code    string `json:"code"`
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return "refundd: " + e.Code
	}
	return fmt.Sprintf("refundd: %s: %s", e.Code, e.Detail)
}

// Unwrap returns what lies below, such as a context's error.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether e is of a class: ErrFatal, ErrTransient or ErrUnknown.
func (e *Error) Is(target error) bool { return target == e.class() }

// class is decided by the money first: what is not known of it is never folded into the other two.
func (e *Error) class() error {
	switch {
	case e.MoneyMoved == MoneyMovedUnknown, e.unheard:
		return ErrUnknown
	case e.Retryable:
		return ErrTransient
	default:
		return ErrFatal
	}
}

// unanswered is the error of a request that got no complete answer.
func unanswered(ctx context.Context, moved MoneyMoved, cause error) *Error {
	e := &Error{
		Code: CodeServiceUnavailable, Retryable: true, MoneyMoved: moved, NextAction: ActionRetrySameOperation,
		Detail: "The service gave no answer.", cause: cause,
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Code, e.Detail = CodeCanceled, "The call was canceled before an answer came."
	case ctx.Err() != nil:
		e.Code, e.Detail = CodeDeadlineExceeded, "The deadline passed before an answer came."
	}
	if moved == MoneyMovedUnknown {
		e.NextAction = ActionWaitThenGet
	}
	return e
}

// stopped is the error of a call that the breaker let not through. Nothing was sent; of the operation nothing is known.
func stopped(moved MoneyMoved, wait time.Duration) *Error {
	return &Error{
		Code: CodeServiceUnavailable, Retryable: true, MoneyMoved: moved, NextAction: ActionEscalate, RetryAfter: wait,
		Detail: "The service has failed several times in a row and is given a rest.",
	}
}
