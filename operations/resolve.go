package operations

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"refundd/internal/clocks"
	"refundd/internal/spans"
)

// Who works on an operation, as its history says.
const (
	ActorCaller         = "caller"
	ActorReconciliation = "reconciliation"
	ActorOperator       = "operator"
)

// Pursuit is what became of an operation by one taking of its lease.
type Pursuit struct {
	Operation Operation
	From      State     // in which the lease was taken
	Moved     bool      // this lease's fact is what moved it from there
	Resent    bool      // the request was sent again, or at last
	Unknown   bool      // the provider gave no outcome
	Answered  bool      // it answered in good order, if only that it shows none
	Unasked   bool      // it was not asked, since the lease was not good for that any more, or nobody could tell
	Untaken   bool      // it refused our credentials before it was ever heard, and the row is as it was
	Kind      ErrorKind // of the last call, where it brought no outcome
	untouched bool      // somebody else has the lease

	retryAfter time.Duration // for how long the provider asks to be left alone

	Contradicted bool // the provider's books contradict an operation that has an end, and keeps it
}

// Pursue finds out what happened to a leased operation, and records it: it looks at the provider's books first, unless
// nothing was ever sent, and sends again, with the same key, only while the provider is sure to remember it. The
// outcome is recorded whatever becomes of ctx.
func (e *Engine) Pursue(ctx context.Context, l Lease) (Pursuit, error) {
	return e.pursue(ctx, l, nil)
}

// pursue is Resolve for who may have taken the breaker's permit already. Looking needs none: a breaker that failing
// requests opened tells nothing of what the books show, and one payment's look-ups that fail tell nothing of another's.
// Where no request may be sent, what was never sent is looked up as well, so that who took the lease has asked.
func (e *Engine) pursue(ctx context.Context, l Lease, p permit) (Pursuit, error) {
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
	if l.inVain(f) {
		p.drop()
		l.Operation.LeaseLeft = 0
		return Pursuit{Operation: l.Operation, From: l.State, Untaken: true, Kind: f.kind}, e.untake(ctx, l)
	}
	if f.kind == ErrorNotFound && l.State == StateReserved {
		p = e.permitted(l, p)
		f.barred = p == nil
	}
	l.lastSend = clocks.Now().Add(e.config.ProviderTimeout)
	r := e.record(ctx, f)
	if r.err == nil && r.change.resend {
		failpoint("resend.decided")
		resolution, err := e.send(ctx, l, p, true)
		resolution.Answered = true
		return resolution, err
	}
	p.drop()
	return l.pursuit(f, r, false), r.err
}

// inVain tells whether a probe asked nobody: our credentials were refused, or, where a person wished to know, nobody
// was there. Reconciliation counts the latter, since a provider that is away for long puts its refunds in front of a
// human.
func (l Lease) inVain(f fact) bool {
	return l.probe && (f.kind == ErrorMisconfigured || f.unwritten && l.attemptedFor == ActorOperator)
}

// permitted is the permit to send that a holder has, or gets now; nil where its provider's breaker is open.
func (e *Engine) permitted(l Lease, p permit) permit {
	if provider := e.providerOf(l.Operation); p == nil && provider != nil {
		return provider.breaker.permit()
	}
	return p
}

// send asks the provider for the refund, if the gate lets it, and records the answer.
func (e *Engine) send(ctx context.Context, l Lease, p permit, resent bool) (Pursuit, error) {
	failpoint("send.begun")
	if p = e.permitted(l, p); p == nil {
		return e.walkAway(ctx, l, nil)
	}
	notAfter, open, err := e.maySend(ctx, l)
	if err != nil || !open {
		p.drop()
		return e.walkAway(ctx, l, err)
	}
	failpoint("send.admitted")
	f := e.refund(ctx, l, p, notAfter)
	failpoint("send.answered")
	r := e.record(ctx, f)
	return l.pursuit(f, r, resent), r.err
}

// walkAway answers what stands, where the lease is no longer good for sending, or nobody could tell for the error why.
// If it is still ours, the attempt is recorded as one that asked nobody, which frees it.
func (e *Engine) walkAway(ctx context.Context, l Lease, why error) (Pursuit, error) {
	f := fact{lease: l, source: sourceLookup, kind: ErrorNotSent, unasked: true}
	r := e.record(ctx, f)
	return l.pursuit(f, r, false), errors.Join(why, r.err)
}

func (l Lease) pursuit(f fact, r recorded, resent bool) Pursuit {
	return Pursuit{
		Operation: r.operation, From: l.State, Moved: r.moved, Resent: resent && !f.unwritten, Kind: f.kind,
		Unknown:  r.err != nil || f.kind != "" && f.kind != ErrorContradictory && !r.moved,
		Answered: f.answered(), Unasked: f.unasked, retryAfter: min(f.retryAfter, maxRetryAfter),
		Contradicted: r.change.books == booksContradict,
	}
}

// answered tells whether the provider answered in good order.
func (f fact) answered() bool {
	return f.kind == "" || f.kind == ErrorNotFound || f.kind == ErrorContradictory
}

// refund makes one request to the provider, of which no byte is written after notAfter.
func (e *Engine) refund(ctx context.Context, l Lease, p permit, notAfter clocks.Moment) fact {
	f := fact{lease: l, source: sourceRefund}
	provider := e.providerOf(l.Operation)
	if provider == nil {
		p.drop()
		f.kind, f.unwritten, f.unasked = ErrorMisconfigured, true, true
		e.logNoOutcome(l, "refund", ProviderError{Kind: f.kind})
		return f
	}
	if notAfter.Passed() { // stopped since it passed the gate: no use in a connection
		p.drop()
		f.kind, f.unwritten, f.unasked = ErrorNotSent, true, true
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.ProviderTimeout)
	defer cancel()
	r := l.request()
	r.NotAfter = notAfter
	ctx, span := spans.Call(ctx, "provider refund")
	defer span.End()
	result, err := provider.setup.Provider.Refund(ctx, r)
	f = e.called(f, p, "refund", result, err)
	f.describe(span)
	return f
}

// lookup reads the provider's books.
func (e *Engine) lookup(ctx context.Context, l Lease) fact {
	f := fact{lease: l, source: sourceLookup}
	provider := e.providerOf(l.Operation)
	if provider == nil {
		f.kind = ErrorMisconfigured
		e.logNoOutcome(l, "lookup", ProviderError{Kind: f.kind})
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, e.lookupDeadline())
	defer cancel()
	ctx, span := spans.Call(ctx, "provider lookup")
	defer span.End()
	result, err := provider.setup.Provider.Lookup(ctx, l.request())
	f = e.called(f, nil, "lookup", result, err)
	f.describe(span)
	if failure, ok := errors.AsType[*ProviderError](err); ok && f.kind == ErrorContradictory {
		f.shown = failure.Shows()
		e.logContradiction(f)
	}
	return f
}

// called is f with a provider's answer, which it reports to the breaker that gave the permit.
func (e *Engine) called(f fact, p permit, call string, result ProviderResult, err error) fact {
	failure := failureOf(err)
	if failure.Kind == "" && !isName(result.ProviderRefundID) {
		// what can not be named can not be recorded
		failure = ProviderError{Kind: ErrorUnknown, RequestID: result.RequestID}
	}
	f.result, f.kind, f.reason, f.retryAfter = result, failure.Kind, failure.Reason, failure.RetryAfter
	f.unwritten = failure.Kind == ErrorNotSent && failure.Unwritten
	e.metrics.calls.WithLabelValues(deref(f.lease.Operation.Provider), call, callLabel(f.result, f.kind)).Inc()
	if f.answered() {
		p.used(nil)
	} else {
		p.used(err)
		e.logNoOutcome(f.lease, call, failure)
	}
	if f.kind != "" {
		f.result = ProviderResult{RequestID: failure.RequestID}
	}
	if !isName(f.result.RequestID) {
		f.result.RequestID = ""
	}
	return f
}

// describe says in a trace what came of a call.
func (f fact) describe(span spans.Span) {
	span.Word("refundd.provider", deref(f.lease.Operation.Provider))
	span.Word("refundd.result", callLabel(f.result, f.kind))
	if !f.answered() {
		span.Failed(string(f.kind))
	}
}

// logNoOutcome says that a call brought none; where our credentials are refused, or there is a reason that a person can
// put right, that an operator must act. What the provider said stays unsaid.
func (e *Engine) logNoOutcome(l Lease, call string, failure ProviderError) {
	level := slog.LevelWarn
	if failure.Kind == ErrorMisconfigured || failure.Reason != "" {
		level = slog.LevelError
	}
	if !isName(failure.RequestID) {
		failure.RequestID = ""
	}
	e.config.Logger.Log(context.Background(), level, "provider call without an outcome",
		slog.String("provider", deref(l.Operation.Provider)), slog.String("call", call),
		slog.String("kind", string(failure.Kind)), slog.String("reason", string(failure.Reason)),
		slog.String("provider_request_id", failure.RequestID), slog.String("tenant_id", l.Operation.TenantID),
		slog.String("operation_id", l.Operation.OperationID), slog.Int("attempt", l.attempts))
}

// logContradiction says what a provider's books show instead of the one refund that they should.
func (e *Engine) logContradiction(f fact) {
	o := f.lease.Operation
	e.config.Logger.Warn("provider's books contradict an operation", slog.String("provider", deref(o.Provider)),
		slog.String("tenant_id", o.TenantID), slog.String("operation_id", o.OperationID),
		slog.String("state", string(o.State)),
		slog.String("kind", string(f.kind)), slog.String("shown", f.shown), slog.Int("attempt", f.lease.attempts))
}

// isName tells whether a provider's name of a thing is one to store and to show, or none: printable ASCII of a sane
// length. Anything else might keep an outcome from being recorded, or say what a provider's text may not.
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

// failureOf is an error's kind and what came with it; what no implementation should return is unknown.
func failureOf(err error) ProviderError {
	var failure *ProviderError
	switch {
	case err == nil:
		return ProviderError{}
	case errors.As(err, &failure):
		return *failure
	default:
		return ProviderError{Kind: ErrorUnknown}
	}
}

func (l Lease) request() ProviderRequest {
	o := l.Operation
	return ProviderRequest{
		TenantID: o.TenantID, OperationID: o.OperationID, Key: l.providerKey, PaymentRef: l.paymentRef, Account: l.account,
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

// nextCheck is how long until reconciliation looks again, not before the provider wants to be asked; negative means
// never.
func (e *Engine) nextCheck(s schedule, attempts int, f fact) time.Duration {
	wait := e.backoff(s, attempts)
	if wait < 0 {
		return wait
	}
	return max(wait, min(f.retryAfter, maxRetryAfter))
}

// maxRetryAfter is the longest wait that a provider may ask for: a refund without an outcome is somebody's money.
const maxRetryAfter = time.Hour

func (e *Engine) backoff(s schedule, attempts int) time.Duration {
	switch s {
	case nextNow:
		return 0
	case nextLag:
		return max(e.config.ListingLag, e.config.ListingLag+time.Second) // it may be as long as a duration can be
	case nextSlowest:
		return e.config.BackoffMax
	case nextRest:
		return e.config.BreakerOpen
	case nextDaily:
		return 24 * time.Hour
	case nextNever:
		return -time.Millisecond
	default:
		return doubled(e.config.BackoffMin, attempts-1, e.config.BackoffMax)
	}
}

// doubled is d doubled n times, but no more than limit.
func doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit/2; n-- {
		d *= 2
	}
	if n > 0 {
		return limit
	}
	return min(d, limit)
}
