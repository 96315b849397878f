package operations

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
)

// Why a refund is refused. Each is decided after the operation's row was read.
var (
	// ErrOperationConflict reports a key that already names another refund (other order, amount or currency).
	ErrOperationConflict = errors.New("operation id already used for a different refund")
	// ErrCurrencyMismatch reports a currency that is not the order's.
	ErrCurrencyMismatch = errors.New("currency mismatch")
	// ErrAmountExceedsRefundable reports more than the order's remainder.
	ErrAmountExceedsRefundable = errors.New("amount exceeds refundable")
	// ErrInProgress reports that another attempt holds the operation's lease.
	ErrInProgress = errors.New("operation in progress")
	// ErrDeclined reports a refund that failed for good; its failure code says why.
	ErrDeclined = errors.New("refund declined")
	// ErrNeedsAttention reports an operation that waits for a human.
	ErrNeedsAttention = errors.New("operation needs attention")
	// ErrProviderUnavailable reports that the order's provider is not configured or not answering: nothing was reserved.
	ErrProviderUnavailable = errors.New("provider unavailable")
)

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
	Replayed   bool          // an earlier call claimed the key; of one that this call finished it is false
	RetryAfter time.Duration // for StatusPending
}

// Refusal is an error with the operation's row as it was when the refusal was decided. It unwraps to its sentinel.
type Refusal struct {
	Err        error
	Operation  *Operation    // nil where no refund holds the key, or where it is another refund
	RetryAfter time.Duration // where waiting helps
	Replayed   bool          // ErrDeclined: an earlier call was told so already
	Refundable *int64        // ErrAmountExceedsRefundable: the locked order's remainder, in minor units
}

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// call is a request on its way through the engine. Its refund_id is minted before the first try of its transaction, and
// empty until then: a row is this call's if and only if it carries it.
type call struct {
	Request
	ctx         context.Context
	key         operationKey
	fingerprint string
	refundID    string
	queued      time.Time
	began       time.Time                 // of the first try of its transaction: its lease counts from no later
	permit      permit                    // the breaker's, for the provider call that its reservation will make
	reserved    atomic.Pointer[Operation] // once its key is committed and its outcome is not known yet
	answer      chan answer
}

func (c *call) orderKey() OrderKey { return OrderKey{TenantID: c.TenantID, OrderID: c.OrderID} }

// left is the time until the caller's deadline.
func (c *call) left() time.Duration {
	if deadline, ok := c.ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return noDeadline
}

type answer struct {
	receipt Receipt
	err     error
}

// Submit refunds once. A Receipt says what this call did, an error why nothing that is known of was done: a Refusal or its
// sentinel when the operation's row was read, else ErrOverloaded, ErrDatabaseUnavailable or ErrDeadlineExceeded.
func (e *Engine) Submit(ctx context.Context, r Request) (Receipt, error) {
	c := &call{
		Request:     r,
		ctx:         ctx,
		key:         operationKey{r.TenantID, r.OperationID},
		fingerprint: Fingerprint(r.OrderID, r.AmountCents),
		answer:      make(chan answer, 1),
	}
	if err := e.reads.put(c.key, c, c.left()); err != nil {
		return Receipt{}, err
	}
	select {
	case a := <-c.answer:
		return a.receipt, a.err
	case <-ctx.Done():
		if op := c.reserved.Load(); op != nil {
			return c.pending(*op), nil
		}
		return Receipt{}, ErrDeadlineExceeded
	}
}

// dropPermit gives the breaker's permit back, if the call has one that it will not use.
func (c *call) dropPermit() {
	c.permit.drop()
	c.permit = nil
}

// refuse answers a call that did nothing.
func (c *call) refuse(err error) {
	c.dropPermit()
	c.answer <- answer{err: err}
}

// pending answers that the outcome of op is not known, whoever claimed its key.
func (c *call) pending(op Operation) Receipt {
	return Receipt{Status: StatusPending, Operation: op, Replayed: op.RefundID != c.refundID, RetryAfter: pendingRetry}
}

// How long a caller is asked to wait: for an outcome, and for another attempt to let go of its lease.
const (
	pendingRetry = 2 * time.Second
	leaseRetry   = 2 * time.Second
)

// read answers the calls whose key is claimed already, before any lock; the others go on to tx 1.
func (e *Engine) read(calls []*call) {
	calls = present(calls)
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchDeadline)
	defer cancel()
	known, err := readOperations(ctx, e.config.Pool, keysOf(calls))
	for _, c := range calls {
		if err != nil {
			c.refuse(err)
			continue
		}
		if op, claimed := known[c.key]; claimed {
			e.replay(c, op)
			continue
		}
		if err := e.enqueue(c); err != nil {
			c.refuse(err)
		}
	}
}

// enqueue sends the call on to tx 1.
func (e *Engine) enqueue(c *call) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("mint refund id: %w", err)
	}
	c.refundID, c.queued = id.String(), time.Now()
	return e.claims.put(c.orderKey(), c, c.left())
}

// replay answers the call from its operation's row: the one check that the sequential path and the lost race share.
func (e *Engine) replay(c *call, op Operation) {
	receipt, err := c.judge(op)
	if err == nil && op.State == StateReserved {
		e.resume(c, op)
		return
	}
	c.dropPermit()
	c.answer <- answer{receipt, err}
}

func (c *call) judge(op Operation) (Receipt, error) {
	switch {
	case op.State == StateRevoked:
		return Receipt{}, ErrAuthorizationRevoked
	case op.Fingerprint != c.fingerprint, c.Currency != nil && *c.Currency != op.Currency:
		return Receipt{}, ErrOperationConflict
	}
	switch op.State {
	case StateSucceeded:
		if op.RefundID == c.refundID {
			return Receipt{Status: StatusProcessed, Operation: op}, nil
		}
		return Receipt{Status: StatusAlreadyProcessed, Operation: op, Replayed: true}, nil
	case StateReserved:
		if op.LeaseLeft > 0 {
			return Receipt{}, &Refusal{Err: ErrInProgress, Operation: new(op), RetryAfter: min(op.LeaseLeft, leaseRetry)}
		}
		return c.pending(op), nil
	case StatePending:
		return c.pending(op), nil
	case StateFailed:
		return Receipt{}, &Refusal{Err: ErrDeclined, Operation: new(op), Replayed: true}
	case StateNeedsAttention:
		return Receipt{}, &Refusal{Err: ErrNeedsAttention, Operation: new(op)}
	default:
		return Receipt{}, fmt.Errorf("operation %s in unknown state %q", op.OperationID, op.State)
	}
}

// present drops the calls whose caller's deadline has passed or who left: they must not execute any more.
func present(calls []*call) []*call {
	waiting := calls[:0]
	for _, c := range calls {
		if c.ctx.Err() != nil {
			c.refuse(ErrDeadlineExceeded)
			continue
		}
		waiting = append(waiting, c)
	}
	return waiting
}

// readOperations answers the rows of those keys that are claimed, by a refund or by a withdrawal.
func readOperations(ctx context.Context, pool *pgxpool.Pool, keys []operationKey) (map[operationKey]Operation, error) {
	var known map[operationKey]Operation
	err := pgtx.Read(ctx, pool, func(b *pgx.Batch) {
		queueOperations(b, keys, func(found map[operationKey]Operation) { known = found })
	})
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	return known, nil
}
