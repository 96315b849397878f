package operations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"refundd/internal/clocks"
)

// Provider moves money outside of our database. An implementation calls the provider once per method call: it never
// sends again by itself, and it never turns what it does not understand into an outcome.
//
// Both methods answer either an outcome or a *ProviderError of exactly one kind.
type Provider interface {
	// Refund asks for the refund under r.Key. Asked again with the same key, the provider executes nothing new.
	Refund(ctx context.Context, r ProviderRequest) (ProviderResult, error)
	// Lookup finds the refund of r.TenantID and r.OperationID, of the same amount and currency.
	Lookup(ctx context.Context, r ProviderRequest) (ProviderResult, error)
}

// ProviderRequest names one refund to a provider.
type ProviderRequest struct {
	TenantID         string // goes, with OperationID, into the provider's metadata
	OperationID      string
	Key              string // the idempotency key, the same on every attempt, for ever
	PaymentRef       string // the captured payment
	Account          string // the provider's account that took it; empty where that is our own
	AmountCents      int64  // minor units
	Currency         string // ISO 4217
	ProviderRefundID string // the provider's name of the refund, where it is known already

	// NotAfter bounds Refund: no byte of its request is written once either clock has passed it, as both have passed
	// the zero Moment. An implementation asks the clocks when its connection is there, after everything that waits; see
	// internal/sendonce.
	NotAfter clocks.Moment
}

// The names of a refund's metadata at a provider that tell whose it is.
const (
	MetadataTenant    = "tenant_id"
	MetadataOperation = "operation_id"
)

// Metadata goes with the refund of r to its provider.
func (r ProviderRequest) Metadata() map[string]string {
	return map[string]string{MetadataTenant: r.TenantID, MetadataOperation: r.OperationID}
}

// Marks reports whether a refund at the provider bears r's metadata.
func (r ProviderRequest) Marks(metadata map[string]string) bool {
	return metadata[MetadataTenant] == r.TenantID && metadata[MetadataOperation] == r.OperationID
}

// Outcome is what a provider says of a refund.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomePending   Outcome = "pending"  // accepted, its final word is to come
	OutcomeDeclined  Outcome = "declined" // it did not happen, or it failed later
)

// ProviderResult is a provider's outcome.
type ProviderResult struct {
	Outcome          Outcome
	ProviderRefundID string // empty for a decline that made no refund
	DeclineCode      string // one of the Decline constants, for OutcomeDeclined
	Doubtful         bool   // of a Refund's decline: it may be our own success in disguise, whatever its code
	RequestID        string // the provider's name of the exchange, for its support
}

// Decline codes: the closed list. Any other code of a provider's is of kind ErrorUnknown.
const (
	DeclineInsufficientFunds  = "insufficient_funds" // of the merchant's balance
	DeclineChargeDisputed     = "charge_disputed"
	DeclineExpiredCard        = "expired_or_canceled_card"
	DeclineUnknownPayment     = "unknown_payment"
	DeclineLost               = "lost_or_stolen_card"
	DeclineDeclined           = "declined"                  // no further reason given
	DeclineAlreadyRefunded    = "already_refunded"          // may be our own success in disguise
	DeclineExceedsUnrefunded  = "amount_exceeds_unrefunded" // may be our own success in disguise
	DeclineRefundFailed       = "refund_failed"             // executed, then failed at the bank
	FailureLate               = "late_failure"              // failure code of a refund that succeeded and then failed
	FailureOverRefund         = "over_refund"               // it had failed, and was paid beyond its order's capture
	FailureResolvedByOperator = "resolved_failed"           // a human's decision
)

// ErrorKind tells what is known after a call that brought no outcome.
type ErrorKind string

// The kinds.
const (
	ErrorNotSent ErrorKind = "not_sent" // no byte was written (Unwritten), or the provider refused with 429
	// timeout, reset, truncated answer, 5xx, a code that is not in the closed list
	ErrorUnknown       ErrorKind = "unknown"
	ErrorMisconfigured ErrorKind = "misconfigured" // 401, 403: an operator must act
	ErrorNotFound      ErrorKind = "not_found"     // Lookup only: none of ours
	ErrorContradictory ErrorKind = "contradictory" // Lookup only: two of ours, or another amount or currency

	// errorNotOurs is of a call that named a refund which settles another operation. No implementation returns it.
	errorNotOurs ErrorKind = "not_ours"
)

// Reason is why a provider gave no outcome, where a person can put that right. It goes into the history and the log.
type Reason string

// The reasons. The provider says the same of an order that was registered with a wrong name as to a key that is another
// account's, and may be wrong about thousands of refunds: neither is a decline, and both wait for a person.
const (
	ReasonUnknownPayment Reason = "unknown_payment" // by the key, and in the account, that asks
	ReasonUnknownAccount Reason = "unknown_account" // the order's, by the key that asks
)

// ProviderError is a call without an outcome. Its cause may quote the provider and is never stored or shown; only Kind
// is.
type ProviderError struct {
	Kind   ErrorKind
	Reason Reason // of ErrorUnknown; empty where it is not known, or is of no use to anybody
	// of ErrorNotSent: no byte of the request was written, so that the provider can not know its key
	Unwritten  bool
	RetryAfter time.Duration // for how long the provider asks to be left alone; zero where it does not say
	RequestID  string
	Shown      []Listed // ErrorContradictory: what the books show
	Cause      error
}

func (e *ProviderError) Error() string {
	if e.Cause == nil {
		return "provider: " + string(e.Kind)
	}
	return fmt.Sprintf("provider: %s: %v", e.Kind, e.Cause)
}

func (e *ProviderError) Unwrap() error { return e.Cause }

// ProviderSetup is a provider with what it documents of its keys.
type ProviderSetup struct {
	Provider     Provider
	KeyRetention time.Duration // how long the provider remembers an idempotency key
	MaxKeyLength int           // bytes
	Payments     PaymentReader // optional: reads the payment before an order is registered with it
}

// key is the idempotency key of an operation at this provider, on every attempt.
func (s ProviderSetup) key(k operationKey) string {
	plain := k.TenantID + ":" + k.OperationID
	if len(plain) <= s.MaxKeyLength {
		return plain
	}
	sum := sha256.Sum256([]byte(plain))
	return hex.EncodeToString(sum[:])
}
