package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"refundd/client"
)

// Metrics counts the calls of tools and the requests that they cost. Its labels hold words of this package alone:
// neither an answer's text nor an id becomes one.
type Metrics struct {
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	attempts *prometheus.CounterVec
}

// NewMetrics returns counters, registered with r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_tool_calls_total",
			Help: "Calls of tools, by the answer's status and, where it failed, its code; none else.",
		}, []string{"tool", "status", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refundd_tool_call_seconds", Help: "How long calls of tools took.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 9),
		}, []string{"tool"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_tool_attempts_total",
			Help: "Requests to the service, by the layer that made the attempt and, where it failed, its code; none else.",
		}, []string{"layer", "code"}),
	}
	for _, c := range []prometheus.Collector{m.calls, m.took, m.attempts} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Called counts a call; it is for Config.OnCall.
func (m *Metrics) Called(c Call) {
	m.calls.WithLabelValues(c.Tool, c.Status, label(c.Code)).Inc()
	m.took.WithLabelValues(c.Tool).Observe(c.Took.Seconds())
}

// Attempted counts a request; it is for client.Config.OnAttempt.
func (m *Metrics) Attempted(a client.Attempt) {
	layer := "other"
	switch a.Layer {
	case client.LayerModelTransport, client.LayerAgentLoop, client.LayerToolTransport, client.LayerBusiness:
		layer = a.Layer
	}
	m.attempts.WithLabelValues(layer, label(a.Code)).Inc()
}

// label is a code as a label: whoever answers may call it anything.
func label(code string) string {
	if _, known := words[code]; known {
		return code
	}
	if code == "" {
		return "none"
	}
	return "other"
}
