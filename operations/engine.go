package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/internal/batch"
)

// OnEvents queues what other rooms write in the transaction of events. It is pure SQL, which travels in the message
// that commits them: following a transition costs no round trip. The rows are as the transition leaves them.
type OnEvents func(b *pgx.Batch, events []Event) error

// Config is what an Engine needs; the zero value of each optional field means its default.
type Config struct {
	Pool       *pgxpool.Pool
	Logger     *slog.Logger          // optional
	Registerer prometheus.Registerer // optional: where the engine's metrics go
	OnEvents   OnEvents              // optional
	Followed   []State               // transitions to these are what OnEvents is told
	MaxQueue   int                   // refunds that may wait for a transaction; default 4096

	Providers       map[string]ProviderSetup // by the name that orders carry; an order of any other provider is refused
	ProviderTimeout time.Duration            // of one call; default 10 s
	Lease           time.Duration            // at least LeastLease, at most MostLease; default DefaultLease
	ListingLag      time.Duration            // until a provider's listing shows all of its refunds; default 1 min
	BreakerFailures int                      // consecutive ones that open a provider's breaker; default 5
	BreakerOpen     time.Duration            // how long it stays open; default 10 s
	ReservedAge     time.Duration            // at which a human is told of a reservation; default 72 h
	PendingAge      time.Duration            // at which a human is told of a pending refund; default 14 days
	RecheckFor      time.Duration            // how long late failures are looked for; default 30 days
	BackoffMin      time.Duration            // until reconciliation looks again, doubled by each attempt; default 10 s
	BackoffMax      time.Duration            // its limit; default 1 h
}

func (c *Config) setDefaults() {
	setDefault(&c.MaxQueue, 4096)
	setDefault(&c.ProviderTimeout, 10*time.Second)
	setDefault(&c.Lease, DefaultLease(c.ProviderTimeout))
	setDefault(&c.ListingLag, time.Minute)
	setDefault(&c.BreakerFailures, 5)
	setDefault(&c.BreakerOpen, 10*time.Second)
	setDefault(&c.ReservedAge, 72*time.Hour)
	setDefault(&c.PendingAge, 14*24*time.Hour)
	setDefault(&c.RecheckFor, 30*24*time.Hour)
	setDefault(&c.BackoffMin, 10*time.Second)
	setDefault(&c.BackoffMax, time.Hour)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func (c *Config) validate() error {
	var faults []error
	if c.Pool == nil {
		faults = append(faults, errors.New("no database pool"))
	}
	if c.MaxQueue < 0 {
		faults = append(faults, fmt.Errorf("max queue %d is negative", c.MaxQueue))
	}
	if (c.OnEvents == nil) != (len(c.Followed) == 0) {
		faults = append(faults, errors.New("a hook and the states that it follows go together"))
	}
	if slices.Contains(c.Followed, StateReserved) {
		faults = append(faults, errors.New("a reservation is committed by its only message: nobody can be told of it before"))
	}
	for name, d := range map[string]time.Duration{
		"provider timeout": c.ProviderTimeout, "lease": c.Lease, "listing lag": c.ListingLag, "breaker's open time": c.BreakerOpen,
		"age of reservations": c.ReservedAge, "age of pending refunds": c.PendingAge, "re-check window": c.RecheckFor,
		"shortest back-off": c.BackoffMin, "longest back-off": c.BackoffMax,
	} {
		if d < 0 {
			faults = append(faults, fmt.Errorf("%s %v is negative", name, d))
		}
	}
	if least := LeastLease(c.ProviderTimeout); c.Lease < least {
		faults = append(faults, fmt.Errorf("lease %v leaves no time to look up and to record: it must be at least %v",
			c.Lease, least))
	}
	for name, setup := range c.Providers {
		if most := setup.MostLease(c.ProviderTimeout); c.Lease > most {
			faults = append(faults, fmt.Errorf("lease %v is longer than the %v that keys of provider %s leave", c.Lease,
				most, name))
		}
	}
	return errors.Join(faults...)
}

// Engine executes refunds. Its methods may be called at once from any number of goroutines.
type Engine struct {
	Reads
	config         Config
	reads          *batch.Group[operationKey, *Operation] // keys to be looked up
	claims         *batch.Group[*call, claimed]           // tx 1; calls of one order keep their order
	patient        *batch.Group[*call, claimed]           // tx 1 of calls whose order somebody else holds
	gate           *batch.Group[Lease, bool]              // leases in front of a provider
	records        *batch.Group[*fact, recorded]          // facts for tx 2
	patientRecords *batch.Group[*fact, recorded]          // facts of orders that somebody else holds
	// what waits for an order that somebody else holds, but refunds
	turns   *batch.Group[turn, any]
	submits inFlight
	acts    inFlight // what goes on after its caller has left
	metrics *metrics

	providers     map[string]*provider
	providerNames []string // beside the milliseconds that each of them remembers a key
	retentions    []int64
}

// New makes an engine, or reports every fault of its configuration.
func New(c Config) (*Engine, error) {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure engine: %w", err)
	}
	e := &Engine{
		Reads: Reads{c.Pool}, config: c,
		providers: make(map[string]*provider, len(c.Providers)),
	}
	e.reads = batch.New(readLimits(c.MaxQueue), e.readAll)
	e.claims = batch.New(claimLimits(c.MaxQueue), e.claimAll)
	e.patientRecords = batch.New(patientLimits(c.Pool), e.recordPatiently)
	e.turns = batch.New(patientLimits(c.Pool), takeTurns)
	e.patient = batch.New(patientLimits(c.Pool), e.claimPatiently)
	e.gate = batch.New(gateLimits, e.checkLeases)
	e.records = batch.New(recordLimits, e.recordAll)
	for name, setup := range c.Providers {
		e.providers[name] = &provider{setup, newBreaker(name, c.BreakerFailures, c.BreakerOpen, c.Logger)}
		e.providerNames = append(e.providerNames, name)
		e.retentions = append(e.retentions, setup.KeyRetention.Milliseconds())
	}
	m, err := newMetrics(c.Registerer, e)
	if err != nil {
		return nil, fmt.Errorf("configure engine: %w", err)
	}
	e.metrics = m
	return e, nil
}

// Run returns once ctx has ended and what was under way by then is answered, or recorded; what comes later is
// ErrOverloaded.
func (e *Engine) Run(ctx context.Context) error {
	<-ctx.Done()
	e.submits.drain() // which may call a provider,
	e.acts.drain()    // and such a call goes on after its caller has left
	return nil
}
