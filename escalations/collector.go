package escalations

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/internal/pgtx"
	"refundd/internal/scrape"
)

// Collector tells, at each scrape, how many cases are open and how many of them are overdue, by queue. It reads the
// rows, so that every replica tells the same.
type Collector struct {
	pool *pgxpool.Pool
	last scrape.Reading[[]queued]
}

// queued is what a queue holds.
type queued struct {
	Queue         string
	Open, Overdue float64
}

// NewCollector returns a collector on the pool of the service.
func NewCollector(pool *pgxpool.Pool) *Collector { return &Collector{pool: pool} }

var (
	openDesc = prometheus.NewDesc("refundd_escalations_open", "Cases that wait for a person, by queue.",
		[]string{"queue"}, nil)
	overdueDesc = prometheus.NewDesc("refundd_escalations_overdue", "Of these, those that nobody decided in time.",
		[]string{"queue"}, nil)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) { out <- openDesc; out <- overdueDesc }

// Collect implements prometheus.Collector. What the database does not tell is absent.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, q := range c.last.Get(c.read) {
		out <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, q.Open, q.Queue)
		out <- prometheus.MustNewConstMetric(overdueDesc, prometheus.GaugeValue, q.Overdue, q.Queue)
	}
}

// read returns nothing where the database does not tell; why not, the service's own log says.
func (c *Collector) read(ctx context.Context) []queued {
	var found []queued
	err := pgtx.Glimpse(ctx, c.pool, func(b *pgx.Batch) {
		b.Queue(`
			SELECT queue, count(*)::float8 AS open,
				(count(*) FILTER (WHERE due_at < clock_timestamp()))::float8 AS overdue
			FROM escalations WHERE state = 'open' GROUP BY queue`).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, pgx.RowToStructByName[queued])
			return err
		})
	})
	if err != nil {
		return nil
	}
	return found
}
