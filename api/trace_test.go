package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"refundd/operations"
)

const callersTrace, callersSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

// TestTrace_OfARefund_ShowsItsRoad draws each span as its name behind that of its parent.
func TestTrace_OfARefund_ShowsItsRoad(t *testing.T) {
	t.Parallel()
	kept := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept)).Tracer("test")
	p := startProvided(t, operations.Config{}, func(c *Config) { c.Tracer = tracer })
	p.paid(t, "L1")
	kept.Reset()
	a := p.refund(t, "L1", header("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01"),
		header("Tracestate", "x="+canary), header("Baggage", "customer="+canary))
	if a.status != 201 {
		t.Fatalf("refund: %d %s", a.status, a.raw)
	}
	all := kept.GetSpans()
	names := map[string]string{callersSpan: "caller"}
	for _, s := range all {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	drawn := map[string]int{}
	for _, s := range all {
		drawn[names[s.Parent.SpanID().String()]+" > "+s.Name]++
		if s.SpanContext.TraceID().String() != callersTrace {
			t.Errorf("%s is in another trace than the caller's", s.Name)
		}
		if strings.HasPrefix(s.Name, "batch") &&
			(len(s.Links) != 1 || names[s.Links[0].SpanContext.SpanID().String()] != "POST /v1/refunds") {
			t.Errorf("%s has links %v, want the request", s.Name, s.Links)
		}
		if s.SpanContext.TraceState().Len() > 0 {
			t.Errorf("%s has the caller's trace state", s.Name)
		}
	}
	want := map[string]int{
		"caller > POST /v1/refunds":            1,
		"POST /v1/refunds > batch of refunds":  1,
		"POST /v1/refunds > provider refund":   1,
		"POST /v1/refunds > batch of outcomes": 1,
		"batch of refunds > transaction":       1,
		"batch of outcomes > transaction":      1,
	}
	for road, n := range want {
		if drawn[road] != n {
			t.Errorf("%d of %q, want %d: %v", drawn[road], road, n, drawn)
		}
	}
	request := all[len(all)-1]
	told := map[string]string{}
	for _, a := range request.Attributes {
		told[string(a.Key)] = a.Value.String()
	}
	if d := cmp.Diff(map[string]string{
		"http.request.method": "POST", "http.route": "/v1/refunds", "http.response.status_code": "201",
		"refundd.attempt_layer": "none", "refundd.code": "ok", "refundd.outcome": "processed", "refundd.diagnostic_ref": a.header.Get("Request-Id"),
	}, told); d != "" {
		t.Errorf("the request's span (-want +got):\n%s", d)
	}
	if line := p.log.line(t, a.header.Get("Request-Id")); !strings.Contains(line, `"trace_id":"`+callersTrace+`"`) {
		t.Errorf("the log does not name the trace: %s", line)
	}
}
