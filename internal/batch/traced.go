package batch

import (
	"context"

	"refundd/internal/spans"
)

// traced begins the batch's span, linked with those of its callers.
func (b *running[In, Out]) traced(name string) (context.Context, spans.Span) {
	var callers spans.Shared
	for _, c := range b.calls {
		callers.Add(c.ctx)
	}
	ctx, span := callers.Start(b.ctx, name)
	span.Number("refundd.batch.size", len(b.calls))
	return ctx, span
}
