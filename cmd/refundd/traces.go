package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"refundd/cmd/refundd/internal/fault"
	"refundd/internal/spans"
)

// traceFlags are shared by all that draws spans. What else OpenTelemetry's own variables say (headers, certificates,
// sampling, queues) its library reads by itself.
type traceFlags struct {
	OTLPEndpoint string `name:"otlp-endpoint" placeholder:"URL" help:"Collector of traces (OTLP over HTTP, such as http://127.0.0.1:4318); without it, or OTEL_EXPORTER_OTLP_ENDPOINT, nothing is traced."`
}

// otlpVariable is what every program that speaks OTLP reads, and ours where its own flag and variable say nothing.
const otlpVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"

// collector is where spans go; nil where nothing is traced.
func (f traceFlags) collector() (*url.URL, error) {
	if f.OTLPEndpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(f.OTLPEndpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("--otlp-endpoint must be a URL such as http://127.0.0.1:4318")
	}
	return u.JoinPath("v1", "traces"), nil
}

// Limits of what a collector that does not answer can cost: memory for this many spans, and this long at the end of a
// process.
const (
	spansQueued  = 4096
	exportLimit  = 5 * time.Second
	retriesLimit = 10 * time.Second
	spansFlush   = time.Second
)

// traces is where the spans of a process go; the zero traces keep none.
type traces struct{ provider *sdktrace.TracerProvider }

// open makes what the flags describe. Nobody waits for the collector: spans that it does not take are lost and counted.
func (f traceFlags) open(log *slog.Logger, r prometheus.Registerer) (traces, error) {
	lost := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "refundd_spans_lost_total", Help: "Spans that the collector of traces did not take.",
	})
	if err := r.Register(lost); err != nil {
		return traces{}, fmt.Errorf("make traces: %w", err)
	}
	u, err := f.collector()
	if err != nil {
		return traces{}, fault.Usage("%s", err)
	}
	if u == nil {
		return traces{}, nil
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(u.String()),
		otlptracehttp.WithTimeout(exportLimit), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: exportLimit, MaxElapsedTime: retriesLimit,
		}))
	if err != nil {
		return traces{}, fmt.Errorf("make traces: %w", err)
	}
	return newTraces(sdktrace.NewBatchSpanProcessor(&counting{SpanExporter: exporter, lost: lost, log: log},
		sdktrace.WithMaxQueueSize(spansQueued))), nil
}

// newTraces keeps spans as the processor does. A batch has as many links as it has callers.
func newTraces(p sdktrace.SpanProcessor) traces {
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = -1
	own, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "refundd"),
			attribute.String("service.version", thisBuild().version)),
		resource.WithFromEnv())
	if err != nil { // what the environment says is wrong: the rest is right
		own = resource.NewSchemaless(attribute.String("service.name", "refundd"))
	}
	return traces{sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p), sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(own))}
}

// tracer is nil where nothing is traced.
func (t traces) tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer(spans.Scope)
}

// close sends what has ended, if the collector takes it in time.
func (t traces) close() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spansFlush)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what is lost is counted
}

// counting counts the spans that are lost, and says once of each outage that they are.
type counting struct {
	sdktrace.SpanExporter
	lost    prometheus.Counter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil:
		c.lost.Add(float64(len(spans)))
		if !c.failing.Swap(true) {
			c.log.Warn("the collector takes no spans", "in_time", !errors.Is(err, context.DeadlineExceeded))
		}
	case c.failing.Swap(false):
		c.log.Info("the collector takes spans again")
	}
	return nil // it is told; OpenTelemetry's own handler would print the error's text
}
