package operations

import (
	"time"

	"refundd/ledger"
)

// State is where an operation stands.
type State string

// The states of an operation.
const (
	StateReserved       State = "reserved"        // key committed, money held, no outcome
	StatePending        State = "pending"         // the provider accepted it, its final word is to come
	StateSucceeded      State = "succeeded"       // the money moved
	StateFailed         State = "failed"          // it did not, or it came back
	StateNeedsAttention State = "needs_attention" // a human decides; proof still settles it
	StateRevoked        State = "revoked"         // the authorization was withdrawn before execution: no refund
)

// MoneyMoved is what may be said of an operation's money without ever being untrue.
type MoneyMoved string

// The three answers.
const (
	MovedYes     MoneyMoved = "yes"
	MovedNo      MoneyMoved = "no"
	MovedUnknown MoneyMoved = "unknown"
)

// MoneyMoved tells whether money moved for an operation in state s.
func (s State) MoneyMoved() MoneyMoved {
	switch s {
	case StateSucceeded:
		return MovedYes
	case StateFailed, StateRevoked:
		return MovedNo
	default:
		return MovedUnknown
	}
}

// Operation is one row of refund_operations: a refund, or the withdrawal of its authorization.
type Operation struct {
	TenantID         string
	OperationID      string
	Fingerprint      string
	RefundID         string // empty for a revoked key
	OrderID          string
	AmountCents      int64  // minor units
	Currency         string // ISO 4217
	Reason           *string
	Metadata         map[string]string
	State            State
	Provider         *string // nil: no provider moves the money
	ProviderRefundID *string
	FailureCode      *string
	CreatedAt        time.Time
	SettledAt        *time.Time
	LeaseLeft        time.Duration // how long somebody still works on it, by the database's clock
}

// ledgerEntry is the operation's money for the ledger.
func (o Operation) ledgerEntry() ledger.Entry {
	return ledger.Entry{
		OrderKey:    OrderKey{TenantID: o.TenantID, OrderID: o.OrderID},
		OperationID: o.OperationID, AmountCents: o.AmountCents, Currency: o.Currency,
	}
}
