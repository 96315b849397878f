package operations

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Who works on an operation, as its history says.
const (
	ActorCaller         = "caller"
	ActorReconciliation = "reconciliation"
	ActorOperator       = "operator"
)

// Resolution is what became of an operation by one taking of its lease.
type Resolution struct {
	Operation Operation
	From      State     // in which the lease was taken
	Moved     bool      // this lease's finding is what moved it from there
	Resent    bool      // the request was sent again, or at last
	Unknown   bool      // the provider gave no outcome
	Answered  bool      // it answered in good order, if only that it shows none
	Untaken   bool      // it refused our credentials before it was ever heard, and the row is as it was
	Kind      ErrorKind // of the last call, where it brought no outcome
	untouched bool      // somebody else has the lease
}

// Resolve finds out what happened to a leased operation, and records it: it looks at the provider's books first, unless
// nothing was ever sent, and sends again, with the same key, only while the provider is sure to remember it. The outcome is
// recorded whatever becomes of ctx.
func (e *Engine) Resolve(ctx context.Context, l Lease) (Resolution, error) {
	return e.resolve(ctx, l, nil)
}

// resolve is Resolve for who may have taken the breaker's permit already. Looking needs none: a breaker that failing requests
// opened tells nothing of what the books show, and one payment's look-ups that fail tell nothing of another's. Where no
// request may be sent, what was never sent is looked up as well, so that who took the lease has asked.
func (e *Engine) resolve(ctx context.Context, l Lease, p permit) (Resolution, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.config.Lease)
	defer cancel()
	failpoint("resolve.begun")
	if l.sends {
		if p = e.permitted(l, p); p != nil {
			return e.send(ctx, l, p, true)
		}
	}
	f := e.lookup(ctx, l)
	failpoint("lookup.answered")
	if l.probe && f.kind == ErrorMisconfigured {
		p.drop()
		return Resolution{Operation: l.Operation, From: l.State, Untaken: true, Kind: f.kind}, e.untake(ctx, l)
	}
	if f.kind == ErrorNotFound && l.State == StateReserved {
		p = e.permitted(l, p)
		f.barred = p == nil
	}
	r := e.record(f)
	if r.err == nil && r.change.resend {
		failpoint("resend.decided")
		resolution, err := e.send(ctx, l, p, true)
		resolution.Answered = true
		return resolution, err
	}
	p.drop()
	return l.resolution(f, r, false), r.err
}

// permitted is the permit to send that a holder has, or gets now; nil where its provider's breaker is open.
func (e *Engine) permitted(l Lease, p permit) permit {
	if provider := e.providerOf(l.Operation); p == nil && provider != nil {
		return provider.breaker.permit()
	}
	return p
}

// send asks the provider for the refund, if the gate lets it, and records the answer.
func (e *Engine) send(ctx context.Context, l Lease, p permit, resent bool) (Resolution, error) {
	failpoint("send.begun")
	if p = e.permitted(l, p); p == nil {
		return e.walkAway(l, nil)
	}
	open, err := e.maySend(ctx, l)
	if err != nil || !open {
		p.drop()
		return e.walkAway(l, err)
	}
	failpoint("send.admitted")
	f := e.refund(ctx, l, p)
	failpoint("send.answered")
	r := e.record(f)
	return l.resolution(f, r, resent), r.err
}

// walkAway answers what stands, where the lease is no longer good for sending, or nobody could tell for the error why. If it
// is still ours, the attempt is recorded as one that asked nobody, which frees it.
func (e *Engine) walkAway(l Lease, why error) (Resolution, error) {
	f := finding{lease: l, source: sourceLookup, kind: ErrorNotSent, unasked: true}
	r := e.record(f)
	return l.resolution(f, r, false), errors.Join(why, r.err)
}

func (l Lease) resolution(f finding, r recorded, resent bool) Resolution {
	return Resolution{
		Operation: r.operation, From: l.State, Moved: r.moved, Resent: resent && f.kind != ErrorNotSent, Kind: f.kind,
		Unknown:  r.err != nil || f.kind != "" && f.kind != ErrorContradictory && !r.moved,
		Answered: f.answered(),
	}
}

// answered tells whether the provider answered in good order.
func (f finding) answered() bool {
	return f.kind == "" || f.kind == ErrorNotFound || f.kind == ErrorContradictory
}

// refund makes one request to the provider.
func (e *Engine) refund(ctx context.Context, l Lease, p permit) finding {
	f := finding{lease: l, source: sourceRefund}
	provider := e.providerOf(l.Operation)
	if provider == nil {
		p.drop()
		f.kind = ErrorMisconfigured
		e.logNoOutcome(l, "refund", f.kind, "")
		return f
	}
	if !l.alive(e.config.Lease) { // suspended since it passed the gate: ctx, which ends then, may not have noticed yet
		p.drop()
		f.kind = ErrorNotSent
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.ProviderTimeout)
	defer cancel()
	f.result, f.kind = e.called(p, "refund", l)(provider.setup.Provider.Refund(ctx, l.request()))
	return f
}

// lookup reads the provider's books.
func (e *Engine) lookup(ctx context.Context, l Lease) finding {
	f := finding{lease: l, source: sourceLookup}
	provider := e.providerOf(l.Operation)
	if provider == nil {
		f.kind = ErrorMisconfigured
		e.logNoOutcome(l, "lookup", f.kind, "")
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, e.lookupDeadline())
	defer cancel()
	f.result, f.kind = e.called(nil, "lookup", l)(provider.setup.Provider.Lookup(ctx, l.request()))
	return f
}

// called turns a provider's answer into a finding's result and kind, and reports it to the breaker that gave the permit.
func (e *Engine) called(p permit, call string, l Lease) func(ProviderResult, error) (ProviderResult, ErrorKind) {
	return func(result ProviderResult, err error) (ProviderResult, ErrorKind) {
		kind, requestID := kindOf(err)
		if kind == "" && !isName(result.ProviderRefundID) {
			kind, requestID = ErrorUnknown, result.RequestID // a refund that can not be named can not be recorded
		}
		name := deref(l.Operation.Provider)
		e.metrics.calls.WithLabelValues(name, call, callLabel(result, kind)).Inc()
		switch kind {
		case "", ErrorNotFound, ErrorContradictory:
			p.used(nil)
		default:
			p.used(err)
			e.logNoOutcome(l, call, kind, requestID)
		}
		if kind != "" {
			result = ProviderResult{RequestID: requestID}
		}
		if !isName(result.RequestID) {
			result.RequestID = ""
		}
		return result, kind
	}
}

// logNoOutcome says that a call brought none; where our credentials are refused, that an operator must act. What the provider
// said stays unsaid.
func (e *Engine) logNoOutcome(l Lease, call string, kind ErrorKind, requestID string) {
	level := slog.LevelWarn
	if kind == ErrorMisconfigured {
		level = slog.LevelError
	}
	if !isName(requestID) {
		requestID = ""
	}
	e.config.Logger.Log(context.Background(), level, "provider call without an outcome",
		slog.String("provider", deref(l.Operation.Provider)), slog.String("call", call), slog.String("kind", string(kind)),
		slog.String("provider_request_id", requestID), slog.String("tenant_id", l.Operation.TenantID),
		slog.String("operation_id", l.Operation.OperationID), slog.Int("attempt", l.attempts))
}

// isName tells whether a provider's name of a thing is one to store and to show, or none: printable ASCII of a sane length.
// Anything else might keep an outcome from being recorded, or say what a provider's text may not.
func isName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= 255
}

func callLabel(result ProviderResult, kind ErrorKind) string {
	if kind != "" {
		return string(kind)
	}
	return string(result.Outcome)
}

// kindOf tells an error's kind; what no implementation should return is unknown.
func kindOf(err error) (ErrorKind, string) {
	var failure *ProviderError
	switch {
	case err == nil:
		return "", ""
	case errors.As(err, &failure):
		return failure.Kind, failure.RequestID
	default:
		return ErrorUnknown, ""
	}
}

func (l Lease) request() ProviderRequest {
	o := l.Operation
	return ProviderRequest{
		TenantID: o.TenantID, OperationID: o.OperationID, Key: l.providerKey, PaymentRef: l.paymentRef,
		AmountCents: o.AmountCents, Currency: o.Currency, ProviderRefundID: deref(o.ProviderRefundID),
	}
}

// provider is a configured provider at work.
type provider struct {
	setup   ProviderSetup
	breaker *breaker
}

func (e *Engine) providerOf(o Operation) *provider {
	if o.Provider == nil {
		return nil
	}
	return e.providers[*o.Provider]
}

// backoff is how long until reconciliation looks again; negative means never.
func (e *Engine) backoff(s schedule, attempts int) time.Duration {
	switch s {
	case nextNow:
		return 0
	case nextLag:
		return e.config.ListingLag + time.Second
	case nextSlowest:
		return e.config.BackoffMax
	case nextRest:
		return e.config.BreakerOpen
	case nextDaily:
		return 24 * time.Hour
	case nextNever:
		return -time.Millisecond
	default:
		return min(e.config.BackoffMin<<min(attempts-1, 20), e.config.BackoffMax)
	}
}
