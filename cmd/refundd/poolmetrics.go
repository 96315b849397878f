package main

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// poolCollector tells the state of the connections to Postgres.
type poolCollector struct{ pool *pgxpool.Pool }

var (
	poolConnections = prometheus.NewDesc("refundd_pool_connections", "Connections to Postgres by state.",
		[]string{"state"}, nil)
	poolMax      = prometheus.NewDesc("refundd_pool_max_connections", "Connections that the pool may open.", nil, nil)
	poolAcquires = prometheus.NewDesc("refundd_pool_acquires_total", "Connections handed out.", nil, nil)
	poolWaits    = prometheus.NewDesc("refundd_pool_waits_total", "Connections that were waited for.", nil, nil)
	poolWaited   = prometheus.NewDesc("refundd_pool_wait_seconds_total", "Time spent waiting for a connection.", nil,
		nil)
	poolGivenUp = prometheus.NewDesc("refundd_pool_canceled_acquires_total",
		"Waits for a connection that were given up.", nil, nil)
)

// Describe implements prometheus.Collector.
func (poolCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMax, poolAcquires, poolWaits, poolWaited, poolGivenUp} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(out chan<- prometheus.Metric) {
	s := c.pool.Stat()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	gauge(poolConnections, float64(s.AcquiredConns()), "in_use")
	gauge(poolConnections, float64(s.IdleConns()), "idle")
	gauge(poolConnections, float64(s.ConstructingConns()), "opening")
	gauge(poolMax, float64(s.MaxConns()))
	counter(poolAcquires, float64(s.AcquireCount()))
	counter(poolWaits, float64(s.EmptyAcquireCount()))
	counter(poolWaited, s.EmptyAcquireWaitTime().Seconds())
	counter(poolGivenUp, float64(s.CanceledAcquireCount()))
}
