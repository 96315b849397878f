package operations

import (
	"context"
	"time"
)

// Waiting is how many refunds wait for their transaction.
func (e *Engine) Waiting() int { return e.claims.depth() }

// MaySend asks the gate in front of every request to the provider.
func (e *Engine) MaySend(ctx context.Context, l Lease) (bool, error) { return e.maySend(ctx, l) }

// Aged is the lease as a process finds it that was stopped for d after taking it.
func (l Lease) Aged(d time.Duration) Lease {
	l.taken = l.taken.Add(-d)
	return l
}

// AgedOnTheWall is the lease after a suspension during which the monotonic clock stood still.
func (l Lease) AgedOnTheWall(d time.Duration) Lease {
	l.taken = l.taken.Round(0).Add(-d)
	return l
}
