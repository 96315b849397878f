package ledger

import "time"

// Kind says what a transfer did.
type Kind string

// The kinds of transfer and the accounts they move between.
const (
	KindRefund   Kind = "refund"   // merchant → customer, no provider
	KindHold     Kind = "hold"     // merchant → in_transit, at the reservation
	KindSettle   Kind = "settle"   // in_transit → customer, the provider paid
	KindRelease  Kind = "release"  // in_transit → merchant, the provider did not
	KindReversal Kind = "reversal" // customer → merchant, a paid refund came back
)

// Transfer is one immutable movement between two accounts of a tenant.
type Transfer struct {
	TenantID      string
	OperationID   string
	Seq           int // 1, 2, … per operation
	Kind          Kind
	DebitAccount  string
	CreditAccount string
	AmountCents   int64 // minor units
	Currency      string
	CreatedAt     time.Time
}
