package webhooks

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/internal/pgtx"
	"refundd/internal/scrape"
)

// Collector tells, at each scrape, what waits to be delivered. It reads the rows, so that every replica tells the same.
type Collector struct {
	pool *pgxpool.Pool
	last scrape.Reading[*waiting]
}

// waiting is what endpoints were not sent yet.
type waiting struct{ queued, oldest, disabled float64 }

// NewCollector returns a collector on the pool of the service.
func NewCollector(pool *pgxpool.Pool) *Collector { return &Collector{pool: pool} }

var (
	queuedDesc = prometheus.NewDesc("refundd_webhook_queued",
		"Events that enabled endpoints were not offered yet, or did not take yet.", nil, nil)
	oldestDesc = prometheus.NewDesc("refundd_webhook_oldest_seconds",
		"Age of the oldest of these.", nil, nil)
	disabledDesc = prometheus.NewDesc("refundd_webhook_endpoints_disabled",
		"Endpoints that are not sent to because they took nothing for three days, or are gone.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	out <- queuedDesc
	out <- oldestDesc
	out <- disabledDesc
}

// Collect implements prometheus.Collector. What the database does not tell is absent.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	w := c.last.Get(c.read)
	if w == nil {
		return
	}
	out <- prometheus.MustNewConstMetric(queuedDesc, prometheus.GaugeValue, w.queued)
	out <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, w.oldest)
	out <- prometheus.MustNewConstMetric(disabledDesc, prometheus.GaugeValue, w.disabled)
}

// read returns nothing where the database does not tell; why not, the service's own log says.
func (c *Collector) read(ctx context.Context) *waiting {
	var w waiting
	err := pgtx.Glimpse(ctx, c.pool, func(b *pgx.Batch) {
		b.Queue(`
			SELECT coalesce(sum(fresh.n + refused.n) FILTER (WHERE e.disabled_at IS NULL), 0)::float8,
				coalesce(greatest(extract(epoch FROM clock_timestamp()
					- min(least(fresh.oldest, refused.oldest)) FILTER (WHERE e.disabled_at IS NULL)), 0), 0)::float8,
				count(*) FILTER (WHERE e.disabled_because <> 'requested')::float8
			FROM webhook_endpoints e
			CROSS JOIN LATERAL (SELECT coalesce(sum(s.last_position - e.position), 0) AS n, min(ev.created_at) AS oldest
				FROM webhook_streams s LEFT JOIN webhook_events ev ON ev.tenant_id = s.tenant_id
					AND ev.position = e.position + 1
				WHERE s.tenant_id = e.tenant_id OFFSET 0) AS fresh
			CROSS JOIN LATERAL (SELECT count(*) AS n, min(d.created_at) AS oldest FROM webhook_deliveries d
				WHERE d.tenant_id = e.tenant_id AND d.endpoint_id = e.endpoint_id
					AND d.state = 'queued' OFFSET 0) AS refused
			WHERE e.deleted_at IS NULL`).
			QueryRow(func(row pgx.Row) error { return row.Scan(&w.queued, &w.oldest, &w.disabled) })
	})
	if err != nil {
		return nil
	}
	return &w
}
