// Package reconcile finds out what became of refunds whose provider never told, and proves the books.
//
// A Job's run claims the operations that were due before it began, hands each to operations.Resolve, and ends when
// nothing more is due. Its promises: it never holds a lease that it has no worker for, so that any number of runs may
// overlap and none waits for another; its memory does not grow with the number of due operations; told to stop, it
// claims nothing more and finishes what it has in hand; what it did stands in reconciliation_runs, also where it
// failed.
//
// Nobody pays for a neighbour: each provider has workers of its own, and a payment that can not be looked up keeps no
// other one of its provider waiting. What was not asked is no answer: of a provider that is not configured, or refuses
// our credentials, nothing is claimed; one that is silent is asked about few operations. Such a run is no success.
//
// Audit reads one snapshot of all operations, transfers and orders, changes nothing, and names what contradicts the
// rules of the ledger. Books that the service wrote are clean in every snapshot, also while it writes; a row that was
// changed, removed or added behind its back is named. Its memory does not grow with the books: rows are streamed, and
// Postgres sorts and joins within its work_mem, on disk beyond it.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"refundd/operations"
)

// Config is what a Job needs.
type Config struct {
	Engine        *operations.Engine // whose Run goes on for longer than the job
	Pool          *pgxpool.Pool
	Logger        *slog.Logger       // optional
	Tracer        trace.Tracer       // optional: each run is then a trace
	Workers       int                // operations of each provider at a time; default 64
	RatePerSecond float64            // requests per second to each provider; 0 sets no limit
	Rates         map[string]float64 // optional: those of single providers
	Progress      func(Summary)      // optional: called every second of a run
}

// DefaultWorkers is how many operations of a provider a run resolves at a time.
const DefaultWorkers = 64

func (c *Config) validate() error {
	var faults []error
	if c.Engine == nil {
		faults = append(faults, errors.New("no engine"))
	}
	if c.Pool == nil {
		faults = append(faults, errors.New("no database pool"))
	}
	if c.Workers < 0 {
		faults = append(faults, fmt.Errorf("%d workers are negative", c.Workers))
	}
	for name, rate := range c.Rates {
		if rate < 0 {
			faults = append(faults, fmt.Errorf("rate %v of %s is negative", rate, name))
		}
	}
	if c.RatePerSecond < 0 {
		faults = append(faults, fmt.Errorf("rate %v is negative", c.RatePerSecond))
	}
	return errors.Join(faults...)
}

// Job is reconciliation. Its methods may be called at once from any number of goroutines.
type Job struct {
	config Config
	paces  map[string]pace // by provider
}

// New makes a job, or reports every fault of its configuration.
func New(c Config) (*Job, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure reconciliation: %w", err)
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	j := &Job{config: c, paces: make(map[string]pace)}
	for _, name := range c.Engine.Providers() {
		rate, ok := c.Rates[name]
		if !ok {
			rate = c.RatePerSecond
		}
		j.paces[name] = newPace(rate)
	}
	return j, nil
}

// Run is one run. At the end of ctx it stops early, which is no error. An error tells that the run could not do or
// record its work; the summary is of what it did all the same.
func (j *Job) Run(ctx context.Context) (Summary, error) {
	began := time.Now()
	if j.config.Tracer != nil {
		var span trace.Span
		ctx, span = j.config.Tracer.Start(ctx, "reconcile")
		defer span.End()
	}
	r, err := j.open(ctx)
	if err != nil {
		return Summary{}, err
	}
	t := &tally{log: j.config.Logger.With(slog.String("run_id", r.id.String()))}
	err = j.watched(t, func() error { return j.allDue(ctx, r.began, t, j.claiming) })
	summary, closeErr := j.close(ctx, r, t.summary(), time.Since(began), err)
	return summary, errors.Join(unlessInterrupted(err), closeErr)
}

// DryRun decides what a run would do and changes nothing: no row of its own either. What it counts as resent is what a
// run would send.
func (j *Job) DryRun(ctx context.Context) (Summary, error) {
	began := time.Now()
	before, err := j.now(ctx)
	if err != nil {
		return Summary{}, err
	}
	t := &tally{log: j.config.Logger.With(slog.Bool("dry_run", true))}
	err = j.watched(t, func() error { return j.allDue(ctx, before, t, j.previewing) })
	summary := t.summary()
	oldest, ageErr := j.oldestUnknown(context.WithoutCancel(ctx))
	summary.OldestUnknownSeconds, summary.DurationMS = oldest, time.Since(began).Milliseconds()
	return summary, errors.Join(unlessInterrupted(err), ageErr)
}

// unlessInterrupted drops the end that was asked for, and keeps what went wrong besides.
func unlessInterrupted(err error) error {
	var kept faults
	for _, fault := range parts(err) {
		if !errors.Is(fault, errInterrupted) {
			kept = append(kept, fault)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// watched does work and tells of its progress meanwhile.
func (j *Job) watched(t *tally, work func() error) error {
	if j.config.Progress == nil {
		return work()
	}
	done := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		defer close(done)
		return work()
	})
	group.Go(func() error {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return nil
			case <-tick.C:
				j.config.Progress(t.summary())
			}
		}
	})
	return group.Wait()
}

// Loop does a run now and then every period, until ctx ends; ended is told of each. A run that takes longer than the
// period delays the next one. A failed run does not end the loop.
func (j *Job) Loop(ctx context.Context, every time.Duration, ended func(Summary, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		ended(j.Run(ctx))
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
