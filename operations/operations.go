// Package operations is the exactly-once engine: authorizations, and refunds that happen at most once for each of them.
//
// Its promises: the operation id names an approved refund; its row and the debit commit in one transaction, under the
// primary key (tenant_id, operation_id), so that money moves at most once per id whatever races, crashes and retries do;
// a key seen again with the same fingerprint replays the stored outcome, with another one it is refused for good; a
// withdrawal claims the key under the same constraint, so that it and the execution can not both win.
package operations

import "refundd/ledger"

// Errors of orders, stated by the ledger.
var (
	ErrOrderNotFound            = ledger.ErrOrderNotFound
	ErrOrderImmutable           = ledger.ErrOrderImmutable
	ErrOrderIncomplete          = ledger.ErrOrderIncomplete
	ErrPaymentAlreadyRegistered = ledger.ErrPaymentAlreadyRegistered
)

// Names of the ledger's that the engine's callers use.
type (
	Order           = ledger.Order
	OrderKey        = ledger.OrderKey
	IncompleteError = ledger.IncompleteError
	Customer        = ledger.Customer
	Registration    = ledger.Registration
	CustomerQuery   = ledger.CustomerQuery
	Transfer        = ledger.Transfer
)
