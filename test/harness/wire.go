package harness

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
)

// Refund is a refund on the wire.
type Refund struct {
	OperationID       string            `json:"operation_id"`
	RefundID          string            `json:"refund_id"`
	OrderID           string            `json:"order_id"`
	AmountCents       int64             `json:"amount_cents"`
	Currency          string            `json:"currency"`
	Reason            *string           `json:"reason"`
	Metadata          map[string]string `json:"metadata"`
	State             string            `json:"state"`
	MoneyMoved        string            `json:"money_moved"`
	Provider          string            `json:"provider"`
	ProviderRefundID  *string           `json:"provider_refund_id"`
	FailureCode       *string           `json:"failure_code"`
	CreatedAt         string            `json:"created_at"`
	SettledAt         *string           `json:"settled_at"`
	NextAction        string            `json:"next_action"`
	RetryAfterSeconds *int              `json:"retry_after_seconds"`
}

// Receipt is the answer to a refund that was not refused.
type Receipt struct {
	Status   string `json:"status"`
	Replayed bool   `json:"replayed"`
	Refund   `json:",inline"`
}

// Order is an order on the wire.
type Order struct {
	OrderID            string  `json:"order_id"`
	Currency           string  `json:"currency"`
	CapturedCents      int64   `json:"captured_cents"`
	RefundedCents      int64   `json:"refunded_cents"`
	HeldCents          int64   `json:"held_cents"`
	RefundableCents    int64   `json:"refundable_cents"`
	OverRefundedCents  int64   `json:"over_refunded_cents"`
	Provider           string  `json:"provider"`
	ProviderPaymentRef *string `json:"provider_payment_ref"`
	ProviderAccount    *string `json:"provider_account"`
	Customer           struct {
		ID    *string `json:"id"`
		Email *string `json:"email"`
		Name  *string `json:"name"`
	} `json:"customer"`
	CreatedAt string `json:"created_at"`
}

// Authorization is an approval on the wire.
type Authorization struct {
	OperationID string            `json:"operation_id"`
	CaseID      string            `json:"case_id"`
	OrderID     string            `json:"order_id"`
	AmountCents int64             `json:"amount_cents"`
	Currency    string            `json:"currency"`
	Reason      *string           `json:"reason"`
	Metadata    map[string]string `json:"metadata"`
	ApprovedBy  string            `json:"approved_by"`
	ExpiresAt   *string           `json:"expires_at"`
	CreatedAt   string            `json:"created_at"`
	State       string            `json:"state"`
	Refund      *Refund           `json:"refund"`
}

// Problem is an error on the wire.
type Problem struct {
	Type              string       `json:"type"`
	Title             string       `json:"title"`
	Status            int          `json:"status"`
	Detail            string       `json:"detail"`
	Code              string       `json:"code"`
	IsRetryable       bool         `json:"isRetryable"`
	MoneyMoved        string       `json:"money_moved"`
	NextAction        string       `json:"next_action"`
	RetryAfterSeconds *int         `json:"retry_after_seconds"`
	OperationID       string       `json:"operation_id"`
	DiagnosticRef     string       `json:"diagnostic_ref"`
	Errors            []FieldError `json:"errors"`
	Replayed          *bool        `json:"replayed"`
	FailureCode       string       `json:"failure_code"`
	CreatedAt         string       `json:"created_at"`
	SettledAt         string       `json:"settled_at"`
	RefundableCents   *int64       `json:"refundable_cents"`
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Pointer string `json:"pointer"`
	Code    string `json:"code"`
}

// List is a page, or the matches of a search.
type List[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"`
	Count      *int    `json:"count"`
}

// Read takes an answer's body apart; one that is nothing of the kind fails the test.
func Read[T any](t testing.TB, a Answer) T {
	t.Helper()
	v, err := decode[T](a)
	if err != nil {
		t.Error(err)
	}
	return v
}

func decode[T any](a Answer) (T, error) {
	var v T
	if err := json.Unmarshal(a.Body, &v, json.RejectUnknownMembers(true)); err != nil {
		return v, fmt.Errorf("the body of %d is no %T: %w: %.300s", a.Status, v, err, a.Body)
	}
	return v, nil
}

// Code is a problem's code; "" for an answer that is none.
func (a Answer) Code() string {
	if a.Status < 400 {
		return ""
	}
	p, err := decode[Problem](a)
	if err != nil {
		return err.Error()
	}
	return p.Code
}

// Says is an answer in a word: its problem's code, or what the call did, or its status.
func (a Answer) Says() string {
	if code := a.Code(); code != "" {
		return code
	}
	if r, err := decode[Receipt](a); err == nil && r.Status != "" {
		return r.Status
	}
	return fmt.Sprint(a.Status)
}
