// Package bench is a load generator and measuring stick for a running deployment.
//
// Its promises: in an open loop, latency counts from when a request was to be sent, so that a service that stalls
// cannot hide the requests it kept from being sent; the CPU of service, Postgres and generator is told apart, and so is
// what else the machine did meanwhile; after each load every acknowledged refund is looked for among the rows, one by
// one, every new row for its acknowledgement, and the books are audited. The numbers of a run that Check refuses are
// worth nothing.
//
// The generator shares a machine with what it measures, so it is cheap: one goroutine per connection writes requests
// that were built before, and reads of each answer the status, the length, and whether it speaks of the operation that
// was sent.
//
// It works in a tenant of its own. Transfers are permanent, so that tenant stays. Rows are made by SQL inside Postgres,
// for which the service's role is enough; as a superuser it spares the foreign keys' checks.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what a Bench works with.
type Config struct {
	Pool     *pgxpool.Pool // the deployment's database: rows are made and counted there
	TenantID string        // in which nobody else writes; it has no rows yet
	Secret   string        // an API key of it with refunds:write
	Scale    Scale
	Audit    func(context.Context) error         // proves the books; nil for none
	Provider func(context.Context) (Used, error) // by the simulated provider; nil where there is none
	Progress func(line string)                   // for who watches; nil for none
}

// Scale is how many rows there are before the first load.
type Scale struct {
	Orders   int64 // that refunds are spread over; default 100,000
	Executed int64 // refunds that were executed already, for replays and conflicts; default 20,000
	Random   bool  // operation ids spread over their index as random UUIDs do; else they ascend as UUIDv7 do
}

const (
	defaultOrders   = 100_000
	defaultExecuted = 20_000
)

// Target is what is put under load.
type Target struct {
	Name string
	URL  string                              // http://host:port
	Used func(context.Context) (Used, error) // by the service; nil where nobody can tell
}

// Load is what is asked of a target at once.
type Load struct {
	Mix         Mix
	Connections int           // each has at most one request under way
	Rate        float64       // of an open loop, requests per second; 0 is a closed loop: as many as are answered
	Warmup      time.Duration // is not counted
	Duration    time.Duration // is
}

func (l Load) validate() error {
	var faults []error
	if len(l.Mix.parts) == 0 {
		faults = append(faults, errors.New("no mix"))
	}
	if l.Connections < 1 {
		faults = append(faults, fmt.Errorf("%d connections", l.Connections))
	}
	if l.Rate < 0 || l.Warmup < 0 || l.Duration <= 0 {
		faults = append(faults, errors.New("rate and warm-up must not be negative, and the duration must be positive"))
	}
	return errors.Join(faults...)
}

// Bench puts targets under load, one load at a time.
type Bench struct {
	config   Config
	books    *books
	postgres *postgres
	fastest  float64 // answers per second seen so far: how many refunds to approve for the next load
}

// New makes the rows of the scale.
func New(ctx context.Context, c Config) (*Bench, error) {
	if c.Pool == nil || c.TenantID == "" || c.Secret == "" {
		return nil, errors.New("bench: no pool, tenant or secret")
	}
	if c.Scale.Orders == 0 {
		c.Scale.Orders = defaultOrders
	}
	if c.Scale.Executed == 0 {
		c.Scale.Executed = defaultExecuted
	}
	if c.Scale.Orders < 0 || c.Scale.Orders > maxOrders || c.Scale.Executed < 0 || c.Scale.Executed > maxExecuted {
		return nil, fmt.Errorf("bench: up to %d orders and %d executed refunds", maxOrders, maxExecuted)
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	b := &Bench{config: c, books: newBooks(c), fastest: firstGuess}
	var err error
	if b.postgres, err = findPostgres(ctx, c.Pool); err != nil {
		return nil, fmt.Errorf("bench: find Postgres: %w", err)
	}
	if err := b.books.fill(ctx); err != nil {
		return nil, fmt.Errorf("bench: make rows: %w", err)
	}
	return b, nil
}

// firstGuess is a rate in refunds per second that approvals are made for before any was seen.
const firstGuess = 5000

// Run puts a target under a load and measures. It answers an error where it could not; whatever the target answered is
// in the result. A round in which the target was faster than thought is run again, with more refunds to execute.
func (b *Bench) Run(ctx context.Context, t Target, l Load) (Result, error) {
	if err := l.validate(); err != nil {
		return Result{}, fmt.Errorf("bench: %w", err)
	}
	for {
		result, err := b.try(ctx, t, l)
		if errors.Is(err, errExhausted) {
			b.fastest *= 4
			continue
		}
		if err != nil {
			return Result{}, fmt.Errorf("bench: %w", err)
		}
		if l.Rate == 0 {
			b.fastest = max(b.fastest, result.PerSecond())
		}
		return result, nil
	}
}

func (b *Bench) try(ctx context.Context, t Target, l Load) (Result, error) {
	rate := l.Rate
	if rate == 0 {
		rate = 1.5 * b.fastest
	}
	need := int64(rate*(l.Warmup+l.Duration).Seconds()) + 2*int64(l.Connections)
	for _, p := range l.Mix.parts {
		if err := b.books.approve(ctx, p.kind, need*int64(p.weight)/int64(l.Mix.total)+int64(l.Mix.total)); err != nil {
			return Result{}, fmt.Errorf("approve refunds: %w", err)
		}
	}
	r, err := newRun(b, t, l)
	if err != nil {
		return Result{}, err
	}
	return r.measure(ctx)
}

// Check compares what was answered since the last Check with the rows, and audits the books. ErrUntrue says that they
// differ.
func (b *Bench) Check(ctx context.Context) (Proof, error) {
	p, err := b.books.check(ctx)
	if err != nil {
		return p, fmt.Errorf("bench: check rows: %w", err)
	}
	if b.config.Audit == nil {
		return p, nil
	}
	if err := b.config.Audit(ctx); err != nil {
		return p, fmt.Errorf("bench: audit: %w", err)
	}
	return p, nil
}
