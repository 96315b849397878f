package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"refundd/operations"
)

const (
	claimLimit = 10 * time.Second // for one claim, which is one short transaction
	page       = 256              // operations that a dry run reads at a time
)

// errInterrupted ends a run that was told to stop before it was through.
var errInterrupted = errors.New("interrupted")

// resolveDue claims what was due before the time before, as workers become free, until nothing more is. The end of ctx ends
// the claiming alone: a claim that is under way, and what was claimed, is finished.
func (j *Job) resolveDue(ctx context.Context, before time.Time, t *tally) error {
	var inHand errgroup.Group
	defer func() { _ = inHand.Wait() }() // none of its work returns an error
	free := newWorkers(j.config.Workers)
	for {
		n := free.take(ctx, j.pace.allowed(ctx))
		if n == 0 {
			return errInterrupted
		}
		leases, err := j.claim(ctx, before, n)
		if err != nil {
			return err
		}
		t.claimed(len(leases))
		for _, l := range leases {
			inHand.Go(func() error {
				defer free.give()
				r, err := j.config.Engine.Resolve(context.WithoutCancel(ctx), l)
				j.pace.resolved(l, r)
				t.decided(r, err)
				return nil
			})
		}
		if len(leases) < n {
			return nil // what else is due is in somebody's hands
		}
	}
}

func (j *Job) claim(ctx context.Context, before time.Time, n int) ([]operations.Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimLimit)
	defer cancel()
	leases, err := j.config.Engine.ClaimDue(ctx, before, n)
	if err != nil {
		return nil, fmt.Errorf("%w due operations: %w", errClaim, err)
	}
	for _, l := range leases {
		j.pace.claimed(l)
	}
	return leases, nil
}

// previewDue looks at all that was due before the time before, page by page.
func (j *Job) previewDue(ctx context.Context, before time.Time, t *tally) error {
	var inHand errgroup.Group
	inHand.SetLimit(j.config.Workers)
	defer func() { _ = inHand.Wait() }() // none of its work returns an error
	var last *operations.Lease
	for {
		due, err := j.config.Engine.Due(ctx, before, last, page)
		if err != nil {
			return err
		}
		for _, l := range due {
			if j.pace.allowed(ctx) == 0 {
				return errInterrupted
			}
			j.pace.claimed(l)
			t.claimed(1)
			inHand.Go(func() error {
				t.decided(j.config.Engine.Preview(context.WithoutCancel(ctx), l))
				return nil
			})
		}
		if len(due) < page {
			return nil
		}
		last = &due[len(due)-1]
	}
}

// workers are those that have nothing in hand.
type workers chan struct{}

func newWorkers(n int) workers {
	free := make(workers, n)
	for range n {
		free.give()
	}
	return free
}

func (w workers) give() { w <- struct{}{} }

// take waits for a free worker and takes up to limit of them; none at the end of ctx.
func (w workers) take(ctx context.Context, limit int) int {
	for n := 0; ; {
		switch {
		case n == limit, ctx.Err() != nil && n == 0:
			return n
		case n == 0:
			select {
			case <-ctx.Done():
			case <-w:
				n = 1
			}
		default:
			select {
			case <-w:
				n++
			default:
				return n
			}
		}
	}
}
