package api

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// beginSpan begins the request's span, in its caller's trace where it names one; probes have none. What else a caller
// adds to its traceparent (tracestate, baggage) may hold anything and is not taken.
func (x *exchange) beginSpan() {
	if x.match.route != nil && x.match.route.scope == public && x.r.Method != http.MethodPost {
		return
	}
	ctx := propagation.TraceContext{}.Extract(x.r.Context(), propagation.HeaderCarrier(x.r.Header))
	caller := trace.SpanContextFromContext(ctx).WithTraceState(trace.TraceState{})
	ctx, x.span = x.s.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, caller),
		x.match.method()+" "+x.match.label(),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", x.match.method()),
			attribute.String("http.route", x.match.label()),
			attribute.String("refundd.diagnostic_ref", x.ref),
			attribute.String("refundd.attempt_layer", x.attempt.label()),
		))
	x.r = x.r.WithContext(ctx)
}

// describeSpan says how the request was answered.
func (x *exchange) describeSpan(rep reply, code string) {
	if x.span == nil {
		return
	}
	x.span.SetAttributes(attribute.Int("http.response.status_code", rep.status), attribute.String("refundd.code", code))
	if rep.outcome != "" {
		x.span.SetAttributes(attribute.String("refundd.outcome", rep.outcome))
	}
	if rep.status >= http.StatusInternalServerError {
		x.span.SetStatus(codes.Error, "")
	}
}

func (x *exchange) endSpan() {
	if x.span != nil {
		x.span.End()
	}
}

// traceID names the trace of what is logged, where one is kept.
func (x *exchange) traceID() string {
	if x.span == nil || !x.span.SpanContext().IsSampled() {
		return ""
	}
	return x.span.SpanContext().TraceID().String()
}
