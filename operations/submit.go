package operations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/clocks"
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
	// ErrProviderUnavailable reports that the order's provider is not configured or not answering: nothing was
	// reserved.
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
	// names the call in the logs; kept in the history where a provider is asked, so that it leads back here
	Ref string
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

// call is a request on its way through the engine. Its refund_id is minted before the first try of its transaction: a
// row is this call's if and only if it carries it.
type call struct {
	Request
	ctx         context.Context
	key         operationKey
	fingerprint string
	refundID    string
	queued      time.Time
	began       clocks.Moment // of its transaction: its lease counts from no later
}

func (c *call) orderKey() OrderKey { return OrderKey{TenantID: c.TenantID, OrderID: c.OrderID} }

// Submit refunds once. A Receipt says what this call did, an error why nothing that is known of was done: a Refusal or
// its sentinel when the operation's row was read, else ErrOverloaded, ErrDatabaseUnavailable or ErrDeadlineExceeded.
func (e *Engine) Submit(ctx context.Context, r Request) (Receipt, error) {
	leave, ok := e.submits.enter()
	if !ok {
		return Receipt{}, ErrOverloaded
	}
	defer leave()
	c := &call{
		Request: r, ctx: ctx, key: operationKey{r.TenantID, r.OperationID}, fingerprint: Fingerprint(r.OrderID,
			r.AmountCents),
	}

	if err := c.mint(); err != nil {
		return Receipt{}, err
	}

	// tx 1: looks the key up, and where it has no row claims it and debits the money, or holds it where a provider is
	// to move it.
	claimed, err := e.claimKey(c)
	switch {
	case err != nil:
		return Receipt{}, err
	case claimed.known != nil: // replays and conflicts leave here
		return e.answerKnown(c, *claimed.known)
	case claimed.own.State == StateReserved: // no transaction: the provider is asked, and tx 2 records its answer
		return e.sendReserved(c, claimed)
	}
	return Receipt{Status: StatusProcessed, Operation: *claimed.own}, nil
}

// claimKey takes the call through tx 1: at once, or, where somebody else has its order, when that is free. A key that
// has a row needs no place there: it is looked up alone where many wait for one, or the call would wait for too long.
func (e *Engine) claimKey(c *call) (claimed, error) {
	crowded := e.claims.Waiting() >= batchSize
	if crowded {
		if known, err := e.lookUp(c); known != nil || err != nil {
			return claimed{known: known}, err
		}
	}
	done, err := inCompany(c.ctx, e.claims, orderLane(c.orderKey()), c)
	if err == nil && done.locked {
		done, err = inCompany(c.ctx, e.patient, orderLane(c.orderKey()), c)
	}
	if errors.Is(err, ErrOverloaded) && !crowded {
		if known, unread := e.lookUp(c); known != nil || unread != nil {
			return claimed{known: known}, unread
		}
	}
	return done, err
}

// lookUp reads the row of the call's key, in company; nil where it has none.
func (e *Engine) lookUp(c *call) (*Operation, error) {
	return inCompany(c.ctx, e.reads, c.key.lane(), c.key)
}

// mint gives the call its refund_id: a row is this call's if and only if it carries it.
func (c *call) mint() error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("mint refund id: %w", err)
	}
	c.refundID, c.queued = id.String(), time.Now()
	return nil
}

// answerKnown answers the call from the row that its key was found to have. Where that is this call's own, an earlier
// try of tx 1 had committed unheard.
func (e *Engine) answerKnown(c *call, op Operation) (Receipt, error) {
	if op.RefundID == c.refundID && op.State == StateSucceeded {
		return Receipt{Status: StatusProcessed, Operation: op}, nil
	}
	return e.replay(c, op)
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

// replay answers the call from its operation's row: the one check that the sequential path and the lost race share.
// What is reserved and leased by nobody is taken up.
func (e *Engine) replay(c *call, op Operation) (Receipt, error) {
	receipt, err := c.answer(op)
	if err == nil && op.State == StateReserved {
		return e.resume(c, op)
	}
	return receipt, err
}

// answer is what the call is told of an operation as it stands.
func (c *call) answer(op Operation) (Receipt, error) {
	switch {
	case op.State == StateRevoked:
		return Receipt{}, ErrAuthorizationRevoked
	case op.Fingerprint != c.fingerprint, c.Currency != nil && *c.Currency != op.Currency:
		return Receipt{}, ErrOperationConflict
	}
	switch op.State {
	case StateSucceeded:
		return Receipt{Status: StatusAlreadyProcessed, Operation: op, Replayed: true}, nil
	case StateReserved:
		if op.LeaseLeft > 0 {
			return Receipt{}, &Refusal{Err: ErrInProgress, Operation: new(op),
				RetryAfter: min(op.LeaseLeft, leaseRetry)}
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

// readOperations answers the rows of those keys that are claimed, by a refund or by a withdrawal.
func readOperations(ctx context.Context, pool *pgxpool.Pool, keys []operationKey) (map[operationKey]Operation, error) {
	var known map[operationKey]Operation
	err := pgtx.ReadKept(ctx, pool, func(b *pgx.Batch) {
		queueOperations(b, keys, func(found map[operationKey]Operation) { known = found })
	})
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	return known, nil
}
