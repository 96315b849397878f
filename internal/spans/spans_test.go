package spans

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// work is what a room does of a piece of work that is done for three callers.
func work(ctx context.Context) {
	var callers Shared
	for range 3 {
		callers.Add(ctx)
	}
	ctx, batch := callers.Start(ctx, "batch")
	batch.Number("size", 3)
	_, call := Call(ctx, "call")
	call.Word("result", "unknown")
	call.Failed("unknown")
	call.End()
	_, tx := Start(ctx, "transaction")
	tx.End()
	batch.End()
}

func TestOff_AllocatesNothing(t *testing.T) {
	unsampled := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
	}))
	for name, ctx := range map[string]context.Context{"no span": context.Background(),
		"one that is not sampled": unsampled} {
		if n := testing.AllocsPerRun(100, func() { work(ctx) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func BenchmarkOff(b *testing.B) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		work(ctx)
	}
}

func TestShared_IsInTheTraceOfTheFirst_AndLinkedWithAll(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept)).Tracer("test")
	var callers Shared
	requests := make([]trace.Span, 3)
	for i := range requests {
		var ctx context.Context
		ctx, requests[i] = tracer.Start(context.Background(), "request")
		callers.Add(ctx)
		callers.Add(context.Background()) // somebody who is not traced
	}
	ctx, batch := callers.Start(context.Background(), "batch")
	requests[0].End() // its caller has left
	_, tx := Start(ctx, "transaction")
	tx.End()
	batch.End()
	for _, r := range requests[1:] {
		r.End()
	}
	found := map[string][]tracetest.SpanStub{}
	for _, s := range kept.GetSpans() {
		found[s.Name] = append(found[s.Name], s)
	}
	shared, inner := found["batch"][0], found["transaction"][0]
	if len(shared.Links) != 3 || shared.Parent.SpanID() != requests[0].SpanContext().SpanID() {
		t.Errorf("the batch has %d links and parent %s", len(shared.Links), shared.Parent.SpanID())
	}
	for i, link := range shared.Links {
		if link.SpanContext.SpanID() != requests[i].SpanContext().SpanID() {
			t.Errorf("link %d is another span's", i)
		}
	}
	if inner.Parent.SpanID() != shared.SpanContext.SpanID() {
		t.Error("the transaction is not in the batch")
	}
	for _, r := range found["request"] {
		if len(r.Links) != 1 || r.Links[0].SpanContext.SpanID() != shared.SpanContext.SpanID() {
			t.Errorf("a request has links %v, want the batch", r.Links)
		}
	}
}
