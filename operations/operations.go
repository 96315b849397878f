// Package operations is the exactly-once engine: authorizations, and refunds that happen at most once for each of them.
//
// Its promises: the operation id names an approved refund; its row and the debit commit in one transaction, under the
// primary key (tenant_id, operation_id), so that money moves at most once per id whatever races, crashes and retries
// do; a key seen again with the same fingerprint replays the stored outcome, with another one it is refused for good; a
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

// What the engine's callers say and read of the ledger's.
type (
	// Order is a captured payment and what of it was given back.
	Order = ledger.Order
	// OrderKey names an order within its tenant.
	OrderKey = ledger.OrderKey
	// Customer is who paid.
	Customer = ledger.Customer
	// Registration is what may be said of an order.
	Registration = ledger.Registration
	// IncompleteError names what a new order lacks.
	IncompleteError = ledger.IncompleteError
	// CustomerQuery selects orders by customer.
	CustomerQuery = ledger.CustomerQuery
	// Transfer is one immutable movement between two accounts.
	Transfer = ledger.Transfer
)
