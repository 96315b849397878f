package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"refundd/client"
)

// Result is the one shape of every answer. The first seven members are always there; the others where they say
// something.
type Result struct {
	Status      string            `json:"status"`
	RefundID    *string           `json:"refund_id"`
	AmountCents *int64            `json:"amount_cents"` // minor units
	Currency    *string           `json:"currency"`
	MoneyMoved  client.MoneyMoved `json:"money_moved"`
	Replayed    bool              `json:"replayed"`
	NextAction  string            `json:"next_action"`

	CaseID          string       `json:"case_id,omitempty"`
	OrderID         string       `json:"order_id,omitempty"`
	RefundableCents *int64       `json:"refundable_cents,omitempty"`
	Trigger         string       `json:"trigger,omitempty"` // why a person decides
	Queue           string       `json:"queue,omitempty"`
	DueAt           *time.Time   `json:"due_at,omitempty"` // by when a person looks
	Matches         []OrderMatch `json:"matches,omitempty"`
	MatchCount      *int         `json:"match_count,omitempty"`
	Approved        []Line       `json:"authorizations,omitempty"` // of which the arguments match none or several

	Attempted      *int     `json:"attempted,omitempty"` // of several cases
	PartialResults []Result `json:"partial_results,omitempty"`
	Failures       []Result `json:"failures,omitempty"`
	CoverageGap    string   `json:"coverage_gap,omitempty"`
	Alternatives   []string `json:"alternatives,omitempty"`

	Error             string `json:"error,omitempty"` // safe words
	Code              string `json:"code,omitempty"`
	IsRetryable       *bool  `json:"isRetryable,omitempty"` // the same call, with the same arguments
	RetryAfterSeconds *int64 `json:"retry_after_seconds,omitempty"`
	DiagnosticRef     string `json:"diagnostic_ref,omitempty"`

	ask   *mcp.ElicitParams // instead of an answer: the person in the conversation is asked
	cause string            // for the log alone
}

// OrderMatch is an order that a search found.
type OrderMatch struct {
	OrderID         string    `json:"order_id"`
	Currency        string    `json:"currency"`
	CapturedCents   int64     `json:"captured_cents"`
	RefundableCents int64     `json:"refundable_cents"`
	CustomerID      string    `json:"customer_id,omitempty"`
	CustomerName    string    `json:"customer_name,omitempty"`
	RegisteredAt    time.Time `json:"registered_at"`
}

// Line is an approved refund of a case. Its number never changes.
type Line struct {
	Line        int    `json:"line"`
	OrderID     string `json:"order_id"`
	AmountCents int64  `json:"amount_cents"`
	Currency    string `json:"currency"`
	State       string `json:"state"`
}

// Statuses beside those of a refund (processed, already_processed, pending) and its states (succeeded, failed, …).
const (
	StatusFound          = "found"
	StatusNoneFound      = "none_found"
	StatusWouldApprove   = "would_approve"
	StatusWouldEscalate  = "would_escalate"
	StatusApproved       = "approved"
	StatusEscalated      = "escalated"
	StatusNotExecuted    = "not_executed"
	StatusOK             = "ok"
	StatusPartialFailure = "partial_failure"
	StatusRefused        = "refused" // the tool ran, and the answer is no
	StatusFailed         = "failed"  // the tool could not do its work
)

// Actions of tools only, beside those of the service.
const actionAskForIdentifier = "ask_for_identifier"

// statuses and actions are all that an answer may say in these members.
var (
	statuses = []string{
		StatusFound, StatusNoneFound, StatusWouldApprove, StatusWouldEscalate, StatusApproved, StatusEscalated, StatusNotExecuted,
		string(client.StatusProcessed), string(client.StatusAlreadyProcessed), string(client.StatusPending),
		string(client.StateReserved), string(client.StateSucceeded), string(client.StateNeedsAttention),
		StatusOK, StatusPartialFailure, StatusRefused, StatusFailed,
	}
	actions = []string{
		client.ActionNone, client.ActionRetrySameOperation, client.ActionWaitThenGet, client.ActionFixRequest,
		client.ActionRequestAuthorization, client.ActionEscalate, actionAskForIdentifier,
	}
)

// shaped is an answer in words of the tools' own: whoever answered for the service may have said anything.
func (r Result) shaped() Result {
	if r.ask != nil { // no answer yet, but a question of our own
		return r
	}
	if !slices.Contains(statuses, r.Status) {
		r = broken()
		r.cause = "the service answers with an unknown status"
	}
	if !slices.Contains(actions, r.NextAction) {
		r.NextAction = client.ActionEscalate
	}
	return r
}

// failed reports whether the answer is one with isError.
func (r Result) failed() bool { return r.Code != "" }

// wire is the answer as text and as structured content, which say the same.
func (r Result) wire() *mcp.CallToolResult {
	text, err := json.Marshal(r)
	if err != nil {
		r = broken()
		text, _ = json.Marshal(r) // constants only
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text),
		IsError: r.failed(),
	}
}

// Codes of tools only, beside those of the service.
const (
	codeInvalidArguments = "invalid_arguments"
	codeAmbiguousCase    = "ambiguous_case"
	codeNotConfirmed     = "not_confirmed"
	codeToolFailed       = "tool_failed"
)

// words are what a model is told of a code. The service's own words are not repeated: they may name what no model
// should see.
var words = map[string]string{
	client.CodeServiceUnavailable: "The refund service gave no answer. Whether money moved is not known.",
	client.CodeCanceled:           "The call was canceled. What it had begun may still be executed.",
	client.CodeRefundDeclined:     "The payment provider declined the refund for good.",
	client.CodeRefundNotFound:     "No refund of this case was executed.",
	client.CodeNeedsAttention:     "Whether the money moved is not known; a person has to find out.",
	client.CodeInProgress:         "Another attempt of this refund is under way.",
	client.CodeConflict:           "This approval was already used for a different refund.",
	client.CodeExceeds:            "The order cannot give back that much any more.",
	client.CodeNotAuthorized:      "No refund was approved in this case.",
	client.CodeUnauthenticated:    "The tools' access to the refund service is not valid.",
	"forbidden":                   "The tools may not do this.",
	"order_not_found":             "There is no such order.",
	"authorization_mismatch":      "The approval is for another order, amount or currency.",
	"authorization_expired":       "The approval has expired.",
	"authorization_revoked":       "The approval was withdrawn.",
	"currency_mismatch":           "The currency is not the order's.",
	"invalid_request":             "An argument is out of its range.",
	"malformed_request":           "An argument cannot be read.",
	"too_many_matches":            "Too many match; ask for something narrower.",
	"rate_limited":                "Too many requests were made in this minute.",
	"overloaded":                  "The refund service is too busy right now.",
	"database_unavailable":        "The refund service cannot reach its books right now.",
	"provider_unavailable":        "The payment provider is not available right now; nothing was begun.",
	"deadline_exceeded":           "The time ran out before the outcome was known.",
	"internal":                    "Something went wrong in the refund service.",
	codeInvalidArguments:          "The arguments are not those that the tool describes.",
	codeAmbiguousCase:             "Several approvals of this case match, or none: this call moved nothing.",
	codeNotConfirmed:              "The person in this conversation did not confirm the refund: nothing was begun.",
	codeToolFailed:                "Something went wrong in the tool.",
}

var refForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// failure is the answer for an error of the client.
func failure(err error) Result {
	var e *client.Error
	if !errors.As(err, &e) {
		return broken()
	}
	r := refusal(e.Code, e.MoneyMoved, e.NextAction)
	r.IsRetryable, r.cause = &e.Retryable, below(e)
	switch {
	case e.Code == client.CodeCanceled || errors.Is(err, context.Canceled):
		r.Code, r.Error, r.Status = client.CodeCanceled, words[client.CodeCanceled], StatusFailed
		r.MoneyMoved = client.MoneyMovedUnknown
	case e.Status == 0 || e.Code == client.CodeUnexpectedAnswer:
		r.Code, r.Error, r.Status = client.CodeServiceUnavailable, words[client.CodeServiceUnavailable], StatusFailed
		r.MoneyMoved = client.MoneyMovedUnknown
	case e.Status >= 500:
		r.Status = StatusFailed
	}
	if e.RetryAfter > 0 {
		seconds := int64((e.RetryAfter + time.Second - 1) / time.Second)
		r.RetryAfterSeconds = &seconds
	}
	if refForm.MatchString(e.DiagnosticRef) {
		r.DiagnosticRef = e.DiagnosticRef
	}
	return r
}

// below is what lies below an error of the client, without the URL: it names customers.
func below(e *client.Error) string {
	if network, ok := errors.AsType[*url.Error](e); ok {
		return network.Err.Error()
	}
	return ""
}

// refusal is an answer with isError. A code that the tools do not know is none of theirs to repeat.
func refusal(code string, moved client.MoneyMoved, next string) Result {
	said, known := words[code]
	if !known {
		code, said = codeToolFailed, "The refund service refused."
	}
	return Result{Status: StatusRefused, MoneyMoved: moved, NextAction: next, Error: said, Code: code,
		IsRetryable: new(false)}
}

// broken is the answer of a tool that went wrong itself.
func broken() Result {
	r := refusal(codeToolFailed, client.MoneyMovedUnknown, client.ActionEscalate)
	r.Status = StatusFailed
	return r
}
