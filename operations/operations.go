// Package operations is the exactly-once engine: authorizations, and refunds that happen at most once for each of them.
//
// Its promises: the operation id names an approved refund; its row and the debit commit in one transaction, under the
// primary key (tenant_id, operation_id), so that money moves at most once per id whatever races, crashes and retries do;
// a key seen again with the same fingerprint replays the stored outcome, with another one it is refused for good; a
// withdrawal claims the key under the same constraint, so that it and the execution can not both win.
package operations

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/ledger"
)

// Names of the ledger's that the engine's callers use.
type (
	Order         = ledger.Order
	OrderKey      = ledger.OrderKey
	Customer      = ledger.Customer
	Registration  = ledger.Registration
	CustomerQuery = ledger.CustomerQuery
	Transfer      = ledger.Transfer
)

// MaxMatches is how many matches a search by customer or case may have before it answers ErrTooManyMatches instead.
const MaxMatches = 200

// Config is what an Engine needs; the zero value of each optional field means its default.
type Config struct {
	Pool       *pgxpool.Pool
	Logger     *slog.Logger                                               // optional
	Registerer prometheus.Registerer                                      // optional: where the engine's metrics go
	OnEvents   func(ctx context.Context, tx pgx.Tx, events []Event) error // optional: pure SQL, in the transaction of the events
	MaxQueue   int                                                        // refunds that may wait for a transaction; default 4096
}

// Request is one call to refund.
type Request struct {
	TenantID    string
	OperationID string
	OrderID     string
	AmountCents int64   // minor units
	Currency    *string // ISO 4217; nil means the order's
	Reason      *string
	Metadata    map[string]string
	Layer       string // the retrying layer that made this attempt, as the caller labels it
	Attempt     int    // its number in that layer; 0 where the caller says none
}

// Status says what a call did.
type Status string

// What a call to refund did.
const (
	StatusProcessed        Status = "processed"         // this call moved the money
	StatusAlreadyProcessed Status = "already_processed" // an earlier one did; this is its receipt
	StatusPending          Status = "pending"           // the outcome at the provider is not known yet
)

// Receipt is the answer to a refund that was not refused.
type Receipt struct {
	Status     Status
	Operation  Operation
	RetryAfter time.Duration // for StatusPending
}

// Refusal is an error with the operation's row as it was when the refusal was decided. It unwraps to its sentinel.
type Refusal struct {
	Err        error
	Operation  *Operation    // nil where no refund holds the key
	RetryAfter time.Duration // where waiting helps
}

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }
