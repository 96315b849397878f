package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/reconcile"
)

// requestFlags are of the one set that dev, serve and reconcile take, so that a deployment may give all three the same;
// a run of reconciliation meets no requests and has no use for them.
type requestFlags struct {
	RequestTimeout time.Duration `hidden:""`
	RateLimit      int           `hidden:""`
	MaxQueue       int           `hidden:""`
	ReconcileEvery time.Duration `hidden:""`

	Webhooks            bool `hidden:"" default:"true" negatable:""`
	WebhookRate         int  `hidden:""`
	WebhookAllowPrivate bool `hidden:""`
}

type reconcileCmd struct {
	postgres.Database
	providerFlags
	requestFlags
	traceFlags
	Every       time.Duration `default:"0" help:"Run again and again with this period, until told to stop; 0 runs once."`
	DryRun      bool          `help:"Decide, and change nothing."`
	Concurrency int           `default:"64" help:"Operations of each provider looked up at a time."`
	Rate        rates         `placeholder:"N|PROVIDER=N" help:"Requests per second to each provider, or to those that are named (stripe=20,simulator=500); 0 sets no limit (default stripe=20)."`
	AdminAddr   string        `placeholder:"HOST:PORT" help:"Where /metrics is served with --every (default nowhere)."`
	PoolSize    int32         `default:"0" help:"Connections to Postgres; 0 takes pool_max_conns of the URL, else 16."`
}

// check reports every value that makes no sense.
func (r reconcileCmd) check() error {
	faults := r.faults()
	if _, err := r.collector(); err != nil {
		faults = append(faults, err)
	}
	if r.Every < 0 || r.Every > 0 && r.Every < minPeriod {
		faults = append(faults, errors.New("--every must be at least "+minPeriod.String()))
	}
	if r.Every > 0 && r.DryRun {
		faults = append(faults, errors.New("--dry-run runs once: leave out --every"))
	}
	if r.Concurrency < 1 {
		faults = append(faults, errors.New("--concurrency must be at least 1"))
	}
	if r.PoolSize < 0 {
		faults = append(faults, errors.New("--pool-size must not be negative"))
	}
	return wrongUse(faults)
}

// minPeriod keeps a mistyped period from filling reconciliation_runs.
const minPeriod = 100 * time.Millisecond

// Run finds out what became of the operations that are due, once or until it is told to stop; then it finishes what it
// has in hand. It ends with fault.ErrFound where it put an operation in front of a human.
func (r reconcileCmd) Run(ctx context.Context, c console) error {
	if err := r.check(); err != nil {
		return err
	}
	c, flush := c.unhurried()
	defer flush()
	config, err := r.ServeConfig(r.PoolSize)
	if err != nil {
		return err
	}
	pool, err := postgres.Connect(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	registry := newRegistry(c, pool, r.names())
	traces, err := r.traceFlags.open(c.log, registry)
	if err != nil {
		return err
	}
	defer traces.close()
	desk, err := r.newDesk(c.log, pool)
	if err != nil {
		return err
	}
	outbox, err := webhookFlags{}.newOutbox(c.log, pool)
	if err != nil {
		return err
	}
	engine, err := r.newEngine(context.Background(), c.log, pool, registry, 0, each(desk.OnEvents, outbox.OnEvents))
	if err != nil {
		return err
	}
	all, each := r.Rate.perSecond()
	job, err := reconcile.New(reconcile.Config{
		Engine: engine, Pool: pool, Logger: c.log, Tracer: traces.tracer(), Workers: r.Concurrency, RatePerSecond: all, Rates: each,
		Progress: progress(c),
	})
	if err != nil {
		return err
	}
	admin, err := r.openAdmin(ctx, c, pool, registry)
	if err != nil {
		return err
	}
	working, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	group, broken := errgroup.WithContext(ctx)
	group.Go(func() error { return loop(engine.Run(working)) })
	group.Go(func() error { return admin(working) })
	group.Go(func() error {
		defer done()
		return r.work(broken, c, job)
	})
	return group.Wait()
}

// openAdmin opens the address for the metrics of a loop, where somebody asked for them.
func (r reconcileCmd) openAdmin(ctx context.Context, c console, pool *pgxpool.Pool, registry *prometheus.Registry) (
	func(context.Context) error, error,
) {
	if r.Every == 0 {
		r.AdminAddr = ""
	}
	serve, at, err := openAdmin(ctx, c, r.AdminAddr, registry, newReadiness(pool).check)
	if at != "" {
		c.log.Info("serving", "admin_addr", at)
	}
	return serve, err
}

// work does what was asked for, and prints what it did.
func (r reconcileCmd) work(ctx context.Context, c console, job *reconcile.Job) error {
	switch {
	case r.DryRun:
		s, err := job.DryRun(ctx)
		return errors.Join(err, printSummary(c, s, err))
	case r.Every == 0:
		s, err := job.Run(ctx)
		return verdict(s, errors.Join(err, printSummary(c, s, err)))
	}
	var found error
	job.Loop(ctx, r.Every, func(s reconcile.Summary, err error) {
		if err != nil {
			c.log.Error("reconciliation failed", "error", fault.Sentence(err))
		}
		if forHuman(s) {
			found = fault.ErrFound
		}
		_ = printSummary(c, s, err) // a reader that went away does not end the loop
	})
	return found
}

// verdict is what a run's exit code says: failed, else found something for a human, else failed in part.
func verdict(s reconcile.Summary, err error) error {
	switch {
	case err != nil:
		return err
	case forHuman(s):
		return fault.ErrFound
	case s.Errors > 0:
		return fault.New(nil, "what became of %d operations could not be recorded: they are looked up again", s.Errors)
	}
	return nil
}

// forHuman tells whether a run found something that only a person can judge.
func forHuman(s reconcile.Summary) bool { return s.NeedsAttention > 0 || s.Contradicted > 0 }

// runSummary is a summary as JSON.
type runSummary struct {
	Claimed              int64 `json:"claimed"`
	Succeeded            int64 `json:"succeeded"`
	Failed               int64 `json:"failed"`
	Pending              int64 `json:"pending"`
	Resent               int64 `json:"resent"`
	NeedsAttention       int64 `json:"needs_attention"`
	StillUnknown         int64 `json:"still_unknown"`
	OldestUnknownSeconds int64 `json:"oldest_unknown_seconds"`
	Errors               int64 `json:"errors"`
	DurationMS           int64 `json:"duration_ms"`
	Contradicted         int64 `json:"-"` // told by the exit code, the log and a metric
}

// printSummary prints one line, also of a run that failed half-way; nothing of one that never began.
func printSummary(c console, s reconcile.Summary, err error) error {
	if err != nil && s == (reconcile.Summary{}) {
		return nil
	}
	line, err := json.Marshal(runSummary(s))
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	c.printf("%s\n", line)
	return nil
}

// progress shows a person at a terminal how a run goes; nobody else.
func progress(c console) func(reconcile.Summary) {
	if c.screen == nil {
		return nil
	}
	return func(s reconcile.Summary) {
		fmt.Fprintf(c.screen, "reconciling: %d claimed, %d succeeded, %d failed, %d pending, %d resent, %d for a human, %d still unknown\n",
			s.Claimed, s.Succeeded, s.Failed, s.Pending, s.Resent, s.NeedsAttention, s.StillUnknown)
	}
}
