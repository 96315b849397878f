package operations

import (
	"context"
	"errors"
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

// Submit refunds once. A receipt says what this call did; a Refusal (or ErrOverloaded, ErrDatabaseUnavailable,
// ErrDeadlineExceeded) why it did nothing that is known of.
func (e *Engine) Submit(ctx context.Context, r Request) (Receipt, error) {
	return Receipt{}, errors.ErrUnsupported
}
