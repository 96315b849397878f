package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"refundd/operations"
)

const (
	claimLimit = 10 * time.Second // for one claim, which is one short transaction
	page       = 256              // operations that a dry run reads at a time
)

// errInterrupted ends a run that was told to stop before it was through.
var errInterrupted = errors.New("interrupted")

// ProviderFault tells that due operations of a provider were not looked at.
type ProviderFault struct{ Provider, Why string }

func (f *ProviderFault) Error() string {
	return fmt.Sprintf("provider %q %s, and refunds of it are due", f.Provider, f.Why)
}

// source is where the operations come from, and what is done with each: a run claims and resolves, a dry run reads and
// decides.
type source struct {
	claim  func(context.Context, operations.Claim) ([]operations.Lease, error)
	pursue func(context.Context, operations.Lease) (operations.Pursuit, error)
}

// allDue works off what was due before the time before, of all providers at once: none waits for another.
func (j *Job) allDue(ctx context.Context, before time.Time, t *tally, open func() source) error {
	strangers, err := j.strangers(ctx, before)
	if err != nil {
		return err
	}
	providers := j.config.Engine.Providers()
	faults := make([]error, len(providers), len(providers)+len(strangers))
	var working sync.WaitGroup
	for i, name := range providers {
		w := &work{
			job: j, provider: name, before: before, tally: t, source: open(), pace: j.paces[name],
			free: newWorkers(j.config.Workers), trust: trust{workers: j.config.Workers},
		}
		working.Go(func() { faults[i] = w.run(ctx) })
	}
	working.Wait()
	for _, name := range strangers {
		faults = append(faults, &ProviderFault{name, "is not configured"})
	}
	return t.faulty(faults)
}

// strangers are the providers of due operations that are not configured.
func (j *Job) strangers(ctx context.Context, before time.Time) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimLimit)
	defer cancel()
	names, err := j.config.Engine.Strangers(ctx, before)
	if err != nil {
		return nil, fmt.Errorf("%w due operations: %w", errClaim, err)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// work is one provider's part of a run.
type work struct {
	source
	job      *Job
	provider string
	before   time.Time
	tally    *tally
	pace     pace
	free     workers
	inHand   sync.WaitGroup
	trust    trust
	turn     int
	through  [2]bool // nothing more of that kind is due: what has no end, what is looked at now and then
}

// run claims what is due as workers become free, until nothing more is, or the provider gives no sign of life. The end
// of ctx ends the claiming alone: a claim that is under way, and what was claimed, is finished.
func (w *work) run(ctx context.Context) error {
	defer w.inHand.Wait()
	for width := firstWidth; ; {
		limit := w.job.config.Workers
		if !w.trust.proven() {
			limit = min(width, limit)
		}
		n := w.free.take(ctx, min(limit, w.pace.allowed(ctx)))
		if n == 0 {
			return errInterrupted
		}
		leases, err := w.claim(ctx, n)
		w.begin(ctx, leases)
		w.free.give(n - len(leases))
		if err != nil {
			return err
		}
		if len(leases) == 0 || !w.trust.proven() {
			w.inHand.Wait()
			width *= widthsMultiply
		}
		switch {
		case w.trust.lost():
			return w.trust.fault(w.provider, w.through == [2]bool{true, true})
		case len(leases) == 0 && w.trust.second():
			w.through = [2]bool{}
		case len(leases) == 0:
			return w.trust.fault(w.provider, true) // what else is due is in somebody's hands
		}
	}
}

// begin resolves leases, each in a worker's time.
func (w *work) begin(ctx context.Context, leases []operations.Lease) {
	for _, l := range leases {
		w.inHand.Go(func() {
			defer w.free.give(1)
			r, err := w.pursue(context.WithoutCancel(ctx), l)
			w.pace.pursued(r)
			w.trust.learn(r)
			w.tally.decided(r, err)
		})
	}
}

// turns are the kinds of operations that claims begin with. What has no end goes first, and yet leaves the others a
// share; and what fails may stand in front, or behind, so that both ends are tried.
var turns = [...]operations.Claim{
	{}, {Newest: true}, {Settled: true}, {}, {Newest: true}, {}, {Newest: true}, {Settled: true, Newest: true},
}

// claim takes up to n leases: of the kind whose turn it is, and of the next ones where there are no more. Of a provider
// that did not answer yet it takes half of each, so that no single fault stands for all.
func (w *work) claim(ctx context.Context, n int) (leases []operations.Lease, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimLimit)
	defer cancel()
	for range turns {
		c := turns[w.turn%len(turns)]
		kind := map[bool]int{true: 1}[c.Settled]
		w.turn++
		if len(leases) == n || w.through[kind] {
			continue
		}
		c.Provider, c.Before, c.Limit, c.Probe = w.provider, w.before, n-len(leases), !w.trust.proven()
		if c.Probe {
			c.Limit = min(c.Limit, (n+1)/2)
		}
		more, err := w.source.claim(ctx, c)
		if err != nil {
			return leases, fmt.Errorf("%w due operations: %w", errClaim, err)
		}
		w.through[kind] = len(more) < c.Limit
		leases = append(leases, more...)
	}
	w.turn++
	w.pace.claimed(len(leases))
	w.tally.claimed(len(leases))
	return leases, nil
}

// claiming is the source of a run.
func (j *Job) claiming() source {
	return source{claim: j.config.Engine.ClaimDue, pursue: j.config.Engine.Pursue}
}

// previewing is the source of a dry run: it reads page by page, and what it read stays due.
func (j *Job) previewing() source {
	var read [2][]operations.Lease // ahead
	var last [2]*operations.Lease
	return source{pursue: j.config.Engine.Preview,
		claim: func(ctx context.Context, c operations.Claim) ([]operations.Lease, error) {
			kind, n := map[bool]int{true: 1}[c.Settled], c.Limit
			for len(read[kind]) < n {
				c.Limit = page
				more, err := j.config.Engine.Due(ctx, c, last[kind])
				if err != nil {
					return nil, err
				}
				if len(more) > 0 {
					last[kind] = &more[len(more)-1]
				}
				read[kind] = append(read[kind], more...)
				if len(more) < page {
					break
				}
			}
			n = min(n, len(read[kind]))
			leases := read[kind][:n:n]
			read[kind] = read[kind][n:]
			return leases, nil
		}}
}

// workers are those that have nothing in hand.
type workers chan struct{}

func newWorkers(n int) workers {
	free := make(workers, n)
	free.give(n)
	return free
}

func (w workers) give(n int) {
	for range n {
		w <- struct{}{}
	}
}

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
