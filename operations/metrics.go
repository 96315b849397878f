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
	calls *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, e *Engine) (*metrics, error) {
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
	m.calls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refundd_provider_calls_total", Help: "Calls to providers, by what came of them: an outcome or a kind of error.",
	}, []string{"provider", "call", "result"})
	if r == nil {
		return m, nil
	}
	queued := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "refundd_queue_depth", Help: "Refunds waiting for a transaction.",
	}, func() float64 { return float64(e.waiting()) })
	faults := []error{
		r.Register(m.size), r.Register(m.wait), r.Register(m.split), r.Register(m.calls), r.Register(queued),
	}
	for name, p := range e.providers {
		faults = append(faults, r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "refundd_provider_breaker_state", Help: "0 closed, 1 half open, 2 open.",
			ConstLabels: prometheus.Labels{"provider": name},
		}, func() float64 { return float64(p.breaker.circuit.State()) })))
	}
	return m, errors.Join(faults...)
}
