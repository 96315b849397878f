package api

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts exchanges. No id, key, reason or path as it was sent is a label.
type metrics struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	refunds  *prometheus.CounterVec
	attempts *prometheus.CounterVec
	events   *prometheus.CounterVec
	database *prometheus.CounterVec
}

// codeOK is the code of an answer that is no problem, in metrics and logs.
const codeOK = "ok"

// newMetrics registers the API's metrics, if there is somewhere to.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_http_requests_total",
			Help: "Requests by route, class of the status (2xx, …), code of the answer (a problem's, or ok) and the " +
				"retrying layer that made the attempt.",
		}, []string{"route", "method", "class", "code", "layer"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "refundd_http_request_duration_seconds",
			Help:    "Time from a request's arrival to its answer, by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
		refunds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_refunds_total",
			Help: "Calls to refund by what they did: processed, already_processed, pending, or refused with a problem's code.",
		}, []string{"status", "code"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_refund_attempts_total",
			Help: "Calls to refund by the retrying layer and the number of the attempt in it, as their callers label them.",
		}, []string{"layer", "attempt"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_provider_events_total",
			Help: "Events that providers announced, by what became of them: applied (a refund moved), unchanged, not_ours, " +
				"refused (unsigned, malformed, too large), or failed: not heeded because of us, and to be sent again.",
		}, []string{"provider", "result"}),
		database: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_database_refusals_total",
			Help: "Requests that were answered database_unavailable, by why: disk_full, too_many_connections, read_only, locked, " +
				"other (what Postgres said), or unreachable (it said nothing).",
		}, []string{"why"}),
	}
	for _, why := range refusals { // a counter that begins with its first one rises from nowhere, and no rate sees it
		m.database.WithLabelValues(why)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.latency, m.refunds, m.attempts, m.events, m.database} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Why Postgres refused, by its SQLSTATE; any other is whyOther.
const (
	whyUnreachable = "unreachable"
	whyOther       = "other"
)

var (
	whyOf = map[string]string{
		pgerrcode.DiskFull: "disk_full", pgerrcode.TooManyConnections: "too_many_connections",
		pgerrcode.ReadOnlySQLTransaction: "read_only", pgerrcode.LockNotAvailable: "locked",
	}
	refusals = append(slices.Collect(maps.Values(whyOf)), whyUnreachable, whyOther)
)

// whyRefused tells it of the cause of a database_unavailable.
func whyRefused(cause error) string {
	var said interface{ SQLState() string }
	if !errors.As(cause, &said) {
		return whyUnreachable
	}
	if why, known := whyOf[said.SQLState()]; known {
		return why
	}
	return whyOther
}

// refused counts what an answer owes to the database.
func (m *metrics) refused(p *problem) {
	if p != nil && p.Code == "database_unavailable" {
		m.database.WithLabelValues(whyRefused(p.cause)).Inc()
	}
}

func (m *metrics) count(x *exchange, rep reply, code string, took time.Duration) {
	route, method := x.match.label(), x.match.method()
	m.requests.WithLabelValues(route, method, classOf(rep.status), code, x.attempt.label()).Inc()
	m.latency.WithLabelValues(route, method).Observe(took.Seconds())
	if route != refundsPath || method != "POST" {
		return
	}
	outcome := rep.outcome
	if code != codeOK {
		outcome = "refused"
	}
	m.refunds.WithLabelValues(outcome, code).Inc()
	m.attempts.WithLabelValues(x.attempt.label(), x.attempt.ordinal()).Inc()
}

// classOf is the class of an HTTP status, as the field writes it.
func classOf(status int) string {
	return [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}[status/100]
}
