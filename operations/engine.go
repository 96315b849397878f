package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Config is what an Engine needs; the zero value of each optional field means its default.
type Config struct {
	Pool       *pgxpool.Pool
	Logger     *slog.Logger                                               // optional
	Registerer prometheus.Registerer                                      // optional: where the engine's metrics go
	OnEvents   func(ctx context.Context, tx pgx.Tx, events []Event) error // optional: pure SQL, in the transaction of the events
	MaxQueue   int                                                        // refunds that may wait for a transaction; default 4096
}

const defaultMaxQueue = 4096

func (c *Config) validate() error {
	var faults []error
	if c.Pool == nil {
		faults = append(faults, errors.New("no database pool"))
	}
	if c.MaxQueue < 0 {
		faults = append(faults, fmt.Errorf("max queue %d is negative", c.MaxQueue))
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = defaultMaxQueue
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(faults...)
}

// Engine executes refunds. Its methods may be called at once from any number of goroutines.
type Engine struct {
	config  Config
	reads   *queue[operationKey, *call] // calls whose key is to be looked up
	claims  *queue[OrderKey, *call]     // calls for tx 1; those of one order keep their order
	metrics *metrics
}

// New makes an engine, or reports every fault of its configuration.
func New(c Config) (*Engine, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure engine: %w", err)
	}
	e := &Engine{
		config: c,
		reads:  newQueue[operationKey, *call](c.MaxQueue),
		claims: newQueue[OrderKey, *call](c.MaxQueue),
	}
	m, err := newMetrics(c.Registerer, e.claims.depth)
	if err != nil {
		return nil, fmt.Errorf("configure engine: %w", err)
	}
	e.metrics = m
	return e, nil
}

// Run works off the queues until ctx ends; what is queued by then is still answered, what comes later is ErrOverloaded.
// Submit needs it running.
func (e *Engine) Run(ctx context.Context) error {
	// The readers feed the claimers: the second queue closes when the first is empty.
	reading, readersGone := context.WithCancel(context.WithoutCancel(ctx))
	defer readersGone()
	var all, reads errgroup.Group
	for range readers {
		reads.Go(func() error { e.reads.work(ctx, batchSize, e.read); return nil })
	}
	for range claimers {
		all.Go(func() error { e.claims.work(reading, batchSize, e.execute); return nil })
	}
	all.Go(func() error {
		defer readersGone()
		return reads.Wait()
	})
	return all.Wait()
}
