// Package ledger keeps the books: orders with their captured and refunded amounts, and the double-entry transfers that
// moved money.
//
// Its promises: an order's refunds never exceed its capture, decided by the order's own row and enforced by a CHECK on
// it, but for what a provider is known to have paid beyond it, which is counted by name and stops every further refund;
// every movement is one immutable transfer between two accounts, written in the same transaction as the order's new
// balance. Amounts are integer counts of the currency's minor unit (ISO 4217).
//
// The package takes a pgx.Tx and never opens one, so that the caller decides what commits together; it never calls out.
// Whoever locks several orders locks them through Lock, which sorts them: that is the lock order of the whole service.
package ledger
