package operations

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the engine. No id, key or reason is ever a label.
type metrics struct {
	size  prometheus.Histogram
	wait  prometheus.Histogram
	split prometheus.Counter
}

func newMetrics(r prometheus.Registerer, depth func() int) (*metrics, error) {
	m := &metrics{
		size: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "refundd_batch_size", Help: "Refunds per transaction.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, batchSize},
		}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "refundd_batch_wait_seconds", Help: "Time that a refund waited for its transaction to begin.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 9),
		}),
		split: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "refundd_batches_split_total", Help: "Batches rolled back for one bad row and run again one by one.",
		}),
	}
	if r == nil {
		return m, nil
	}
	queued := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "refundd_queue_depth", Help: "Refunds waiting for a transaction.",
	}, func() float64 { return float64(depth()) })
	return m, errors.Join(r.Register(m.size), r.Register(m.wait), r.Register(m.split), r.Register(queued))
}
