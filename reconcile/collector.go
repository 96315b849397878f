package reconcile

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/internal/pgtx"
	"refundd/internal/scrape"
	"refundd/operations"
)

// Collector tells, at each scrape, what has no end yet, what contradicts the books, and when reconciliation last ran
// well. It reads the rows, so that every replica tells the same.
type Collector struct {
	pool      *pgxpool.Pool
	providers []string // that are configured
	last      scrape.Reading[snapshot]
}

// NewCollector makes a collector on the pool of the service, which is told of the providers that are configured.
func NewCollector(pool *pgxpool.Pool, providers ...string) *Collector {
	return &Collector{pool: pool, providers: providers}
}

// unknownProvider is the label of all providers that are not configured.
const unknownProvider = "unknown"

var (
	openDesc = prometheus.NewDesc("refundd_operations", "Operations without an end, by state.",
		[]string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("refundd_operations_oldest_age_seconds",
		"Age of the oldest operation in the state; 0 where there is none.", []string{"state"}, nil)
	overDesc = prometheus.NewDesc("refundd_orders_over_refunded",
		"Orders of which a provider paid more than was captured.", nil, nil)
	dueDesc = prometheus.NewDesc("refundd_operations_due",
		fmt.Sprintf("Operations that reconciliation has yet to look at, by provider; "+
			"%q are those of providers that are not configured. More than %d of a provider are not counted.", unknownProvider, operations.MostCounted),
		[]string{"provider"}, nil)
	contradictedDesc = prometheus.NewDesc("refundd_operations_contradicted",
		"Refunds with an end of which the provider's books showed several, or another amount or currency, when they were last read.", nil, nil)
	lastRunDesc = prometheus.NewDesc("refundd_reconciliation_last_success_timestamp_seconds",
		"When the last run of reconciliation that was a success ended, as Unix time; 0 where none ever was.", nil, nil)
	lastRunAgeDesc = prometheus.NewDesc("refundd_reconciliation_last_success_age_seconds",
		"How long ago that was, by the database's clock; absent where none ever was.", nil, nil)
	lastFailedDesc = prometheus.NewDesc("refundd_reconciliation_last_run_failed",
		"1 where the last run of reconciliation that ended was no success, 0 where it was; absent where none ever ended.", nil, nil)
	liesDesc = prometheus.NewDesc("refundd_audit_lies",
		"What contradicted the books by the last audit; absent where there never was one.", nil, nil)
	auditAgeDesc = prometheus.NewDesc("refundd_audit_age_seconds",
		"How long ago that ended, by the database's clock; absent where there never was one.", nil, nil)
	readDesc = prometheus.NewDesc("refundd_operations_scrape_success",
		"1 where the database told the above, 0 where it could not.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		openDesc, oldestDesc, dueDesc, overDesc, contradictedDesc, lastRunDesc, lastRunAgeDesc, lastFailedDesc, liesDesc, auditAgeDesc, readDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s := c.last.Get(c.read)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if !s.read {
		gauge(readDesc, 0)
		return
	}
	gauge(readDesc, 1)
	for _, state := range openStates {
		gauge(openDesc, float64(s.count[state]), string(state))
		gauge(oldestDesc, s.oldest[state], string(state))
	}
	gauge(overDesc, s.over)
	for provider, count := range s.due {
		gauge(dueDesc, float64(count), provider)
	}
	gauge(contradictedDesc, s.contradicted)
	gauge(lastRunDesc, s.lastRun)
	if s.lastRun > 0 {
		gauge(lastRunAgeDesc, s.lastRunAge)
	}
	if s.lastFailed != nil {
		gauge(lastFailedDesc, *s.lastFailed)
	}
	if s.lies != nil && s.auditAge != nil {
		gauge(liesDesc, *s.lies)
		gauge(auditAgeDesc, *s.auditAge)
	}
}

var openStates = []operations.State{operations.StateReserved, operations.StatePending, operations.StateNeedsAttention}

// snapshot is what the database told at one moment.
type snapshot struct {
	read                bool
	count               map[operations.State]int64
	oldest              map[operations.State]float64 // seconds
	due                 map[string]int64             // by provider
	over                float64                      // orders
	contradicted        float64                      // operations
	lastRun, lastRunAge float64                      // seconds; 0 = never
	lastFailed          *float64                     // nil: none ever ended
	lies, auditAge      *float64                     // of the last audit; nil: none ever was
}

// read returns what the database tells now; why it does not, the service's own log says.
func (c *Collector) read(ctx context.Context) snapshot {
	s := snapshot{count: make(map[operations.State]int64), oldest: make(map[operations.State]float64),
		due: make(map[string]int64)}
	s.read = pgtx.Glimpse(ctx, c.pool, func(b *pgx.Batch) { s.queue(b, c.providers) }) == nil
	return s
}

// queue queues what is read: what is held and what is wrong, counted by partial indexes, whatever else the tables have;
// and the last run.
func (s *snapshot) queue(b *pgx.Batch, providers []string) {
	clear(s.count) // of an earlier try
	clear(s.oldest)
	s.due = map[string]int64{unknownProvider: 0}
	for _, name := range providers {
		s.due[name] = 0
	}
	operations.QueueDue(b, func(provider string, count int64) {
		if !slices.Contains(providers, provider) {
			provider = unknownProvider
		}
		s.due[provider] += count
	})
	b.Queue(`
		SELECT state, count(*), greatest(extract(epoch FROM
			clock_timestamp() - least(greatest(min(created_at), '0001-01-01Z'), clock_timestamp())), 0)::float8
		FROM refund_operations WHERE state IN ('reserved', 'pending',
			'needs_attention') GROUP BY state`).Query(func(rows pgx.Rows) error {
		var state operations.State
		var count int64
		var oldest float64
		_, err := pgx.ForEachRow(rows, []any{&state, &count, &oldest}, func() error {
			s.count[state], s.oldest[state] = count, oldest
			return nil
		})
		return err
	})
	b.Queue(`SELECT (SELECT count(*) FROM orders WHERE over_refunded_cents > 0),
		(SELECT count(*) FROM refund_operations WHERE contradicted_at IS NOT NULL)`).
		QueryRow(func(row pgx.Row) error { return row.Scan(&s.over, &s.contradicted) })
	b.Queue(`
		SELECT coalesce(extract(epoch FROM max(finished_at)), 0)::float8,
			coalesce(extract(epoch FROM clock_timestamp() - max(finished_at)), 0)::float8
		FROM (SELECT finished_at FROM reconciliation_runs WHERE finished_at IS NOT NULL AND error IS NULL AND errors = 0
			AND NOT dry_run
			ORDER BY started_at DESC LIMIT 1) last`).QueryRow(func(row pgx.Row) error {
		return row.Scan(&s.lastRun,
			&s.lastRunAge)
	})
	b.Queue(`
		SELECT (SELECT CASE WHEN error IS NULL AND errors = 0 THEN 0 ELSE 1 END::float8 FROM reconciliation_runs
			WHERE finished_at IS NOT NULL AND NOT dry_run ORDER BY started_at DESC LIMIT 1)`).
		QueryRow(func(row pgx.Row) error { return row.Scan(&s.lastFailed) })
	b.Queue(`
		SELECT max(lies)::float8, max(extract(epoch FROM clock_timestamp() - finished_at))::float8
		FROM (SELECT lies, finished_at FROM audits ORDER BY audit_id DESC LIMIT 1) last`).
		QueryRow(func(row pgx.Row) error { return row.Scan(&s.lies, &s.auditAge) })
}
