package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// AdminConfig is what the admin address needs.
type AdminConfig struct {
	Gatherer prometheus.Gatherer
	Logger   *slog.Logger // optional
	Ready    func(context.Context) error
}

// NewAdmin makes the handler of the admin address: /metrics, /healthz and /readyz, without authentication.
func NewAdmin(c AdminConfig) (http.Handler, error) {
	if c.Gatherer == nil || c.Ready == nil {
		return nil, errors.New("api: the admin address needs a gatherer, and something that tells whether it is ready")
	}
	m, err := newMetrics(nil)
	if err != nil {
		return nil, err
	}
	s := &server{log: c.Logger, metrics: m, ready: c.Ready, timeout: defaultRequestTimeout}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	exposed := promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	s.router = newRouter([]route{
		{http.MethodGet, "/metrics", public, namesNone, func(context.Context, *exchange) (reply, error) {
			return reply{status: http.StatusOK, stream: exposed}, nil
		}},
		{http.MethodGet, "/healthz", public, namesNone, healthz},
		{http.MethodGet, "/readyz", public, namesNone, s.readyz},
	})
	return s, nil
}
