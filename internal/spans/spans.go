// Package spans draws what a request sets in motion into the trace that the request belongs to (OpenTelemetry). It
// knows nothing of refunds.
//
// Its promises: where the context carries no span that is sampled, as everywhere while tracing is off, nothing is done
// and nothing allocated, so that rooms draw without asking. A span says fixed words and numbers alone: it has no place
// for an error's text, a statement's arguments or anybody's id.
package spans

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name that our spans go under.
const Scope = "refundd"

// Span is a piece of work in a trace. The zero Span is of none, and its methods do nothing.
type Span struct{ span trace.Span }

// Start begins a piece of work inside of the one that ctx is of.
func Start(ctx context.Context, name string) (context.Context, Span) {
	return within(ctx, ctx, name, trace.SpanKindInternal, nil)
}

// Call is Start for a request to somebody else.
func Call(ctx context.Context, name string) (context.Context, Span) {
	return within(ctx, ctx, name, trace.SpanKindClient, nil)
}

// within begins a span of ctx inside of the one that parent has, if it has one that is sampled. Whether that has ended
// does not matter: what was set in motion goes on.
func within(ctx, parent context.Context, name string, kind trace.SpanKind, links []trace.Link) (context.Context, Span) {
	outer := trace.SpanFromContext(parent)
	if !outer.SpanContext().IsSampled() {
		return ctx, Span{}
	}
	ctx, inner := outer.TracerProvider().Tracer(Scope).Start(
		trace.ContextWithSpan(ctx, outer), name, trace.WithSpanKind(kind), trace.WithLinks(links...))
	return ctx, Span{inner}
}

// Shared collects those whom one piece of work is done for.
type Shared struct {
	first context.Context // the first of them with a span that is sampled
	spans []trace.Span
}

// Add adds one of them by its context.
func (s *Shared) Add(ctx context.Context) {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return
	}
	if s.first == nil {
		s.first = ctx
	}
	s.spans = append(s.spans, span)
}

// Start begins the work: a span in the trace of the first, linked with those of all, as theirs are with it.
func (s *Shared) Start(ctx context.Context, name string) (context.Context, Span) {
	if s.first == nil {
		return ctx, Span{}
	}
	links := make([]trace.Link, len(s.spans))
	for i, span := range s.spans {
		links[i].SpanContext = span.SpanContext()
	}
	ctx, work := within(ctx, s.first, name, trace.SpanKindInternal, links)
	for _, span := range s.spans {
		span.AddLink(trace.Link{SpanContext: work.span.SpanContext()})
	}
	return ctx, work
}

// Word adds one of a fixed set of words.
func (s Span) Word(key, word string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, word))
	}
}

// Number adds a number.
func (s Span) Number(key string, n int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, n))
	}
}

// Failed marks the work as failed by a kind of fault, one of a fixed set.
func (s Span) Failed(kind string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String("error.type", kind))
		s.span.SetStatus(codes.Error, "")
	}
}

// End ends the work.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}
