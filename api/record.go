package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"refundd/operations"
)

// record counts the exchange and writes its one log event.
func (x *exchange) record(rep reply, p *problem) {
	code := codeOK
	if p != nil {
		code = p.Code
	}
	took := time.Since(x.started)
	x.s.metrics.count(x, rep, code, took)
	x.s.metrics.refused(p)
	x.describeSpan(rep, code)
	level := x.level(rep)
	if !x.s.log.Enabled(x.r.Context(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 22)
	attrs = append(attrs,
		slog.String("diagnostic_ref", x.ref),
		slog.String("route", x.match.label()),
		slog.String("method", x.match.method()),
		slog.Int("status", rep.status),
		slog.String("code", code),
		slog.Int64("duration_us", took.Microseconds()),
		slog.String("peer", x.r.RemoteAddr), // of a proxy, where there is one
	)
	attrs = x.appendKnown(attrs, rep)
	if rep.status >= 500 {
		attrs = appendCause(attrs, p.cause)
	}
	if x.isClientGone() {
		attrs = append(attrs, slog.Bool("client_gone", true))
	}
	x.s.logEvent(x.r.Context(), x.started.Add(took), level, attrs)
}

// logEvent is Logger.LogAttrs, but does not look for the line of ours that wrote the event: that costs a tenth of it.
func (s *server) logEvent(ctx context.Context, at time.Time, level slog.Level, attrs []slog.Attr) {
	event := slog.NewRecord(at, level, "request", 0)
	event.AddAttrs(attrs...)
	_ = s.log.Handler().Handle(ctx, event) // a log that cannot be written stops nobody
}

// level keeps probes quiet; every refusal is seen.
func (x *exchange) level(rep reply) slog.Level {
	switch {
	case rep.status >= 500 && !x.isClientGone():
		return slog.LevelError
	case rep.status < 400 && x.match.route != nil && x.match.route.scope == public && x.r.Method != http.MethodPost:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// appendKnown adds what is known of caller, operation and attempt.
func (x *exchange) appendKnown(attrs []slog.Attr, rep reply) []slog.Attr {
	for _, a := range [...]struct{ name, value string }{
		{"trace_id", x.traceID()},
		{"tenant_id", x.principal.TenantID},
		{"key_id", x.principal.KeyID},
		{"operation_id", x.operationID},
		{"attempt_layer", x.attempt.layer},
		{"money_moved", string(rep.moved)},
		{"outcome", rep.outcome},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.name, a.value))
		}
	}
	if x.attempt.number > 0 {
		attrs = append(attrs, slog.Int("attempt", x.attempt.number))
	}
	if rep.replayed {
		attrs = append(attrs, slog.Bool("replayed", true))
	}
	return attrs
}

// panicError is a handler's panic. Its value is not kept: it may hold anything.
type panicError struct {
	value string // its type
	stack string
}

func newPanicError(v any) *panicError {
	return &panicError{value: fmt.Sprintf("%T", v), stack: string(debug.Stack())}
}

func (e *panicError) Error() string { return "panic" }

// appendCause adds an error in its safe form: the acts that our own code wrapped it with, and of what it wraps the type
// and SQLSTATE. Other texts may quote a connection string, a provider or a caller, and stay out.
func appendCause(attrs []slog.Attr, err error) []slog.Attr {
	var panicked *panicError
	if errors.As(err, &panicked) {
		return append(attrs, slog.String("cause", "panic: "+panicked.value), slog.String("stack", panicked.stack))
	}
	attrs = append(attrs, slog.String("cause", safeCause(err)))
	var sql interface{ SQLState() string }
	if errors.As(err, &sql) {
		attrs = append(attrs, slog.String("sqlstate", sql.SQLState()))
	}
	return attrs
}

// spoken are errors whose whole text is known and safe, besides the table's.
var spoken = []error{
	context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, errors.ErrUnsupported,
}

func safeCause(err error) string {
	if err == nil {
		return ""
	}
	if text, ok := safeText(err); ok {
		return text
	}
	switch wrapped := err.(type) { //nolint:errorlint // each layer of the chain is looked at by itself
	case *operations.Refusal:
		return safeCause(wrapped.Err)
	case interface{ Unwrap() []error }:
		parts := make([]string, 0, 2)
		for _, e := range wrapped.Unwrap() {
			parts = append(parts, safeCause(e))
		}
		return act(err) + strings.Join(parts, ": ")
	case interface{ Unwrap() error }:
		if inner := wrapped.Unwrap(); inner != nil && isPlainWrap(err) {
			return act(err) + safeCause(inner)
		}
	}
	return fmt.Sprintf("%T", err)
}

// safeText is the text of an error that is one of the known ones itself.
func safeText(err error) (string, bool) {
	for _, s := range sentinels {
		if err == s.err { //nolint:errorlint // the error itself, not what it wraps
			return err.Error(), true
		}
	}
	for _, known := range spoken {
		if err == known { //nolint:errorlint // the error itself, not what it wraps
			return err.Error(), true
		}
	}
	return "", false
}

// isPlainWrap tells fmt.Errorf's wrapping, which is how our code names its acts, from a foreign type's.
func isPlainWrap(err error) bool {
	return fmt.Sprintf("%T", err) == "*fmt.wrapError"
}

// act is the text before the first thing that err wraps.
func act(err error) string {
	var first error
	switch wrapped := err.(type) { //nolint:errorlint // this very layer
	case interface{ Unwrap() []error }:
		if all := wrapped.Unwrap(); len(all) > 0 {
			first = all[0]
		}
	case interface{ Unwrap() error }:
		first = wrapped.Unwrap()
	}
	if first == nil {
		return ""
	}
	text := err.Error()
	i := strings.Index(text, first.Error())
	if i <= 0 {
		return ""
	}
	return text[:i]
}
