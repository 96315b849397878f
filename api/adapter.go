package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"refundd/access"
	"refundd/operations"
)

// endpoint answers one method of one path; what it returns is written by the exchange.
type endpoint func(ctx context.Context, x *exchange) (reply, error)

// reply is an answer that is no problem.
type reply struct {
	status     int
	body       any    // written as JSON, unless raw is set
	raw        []byte // written as it is
	mediaType  string // of raw
	stream     http.Handler
	replayed   bool
	location   string
	link       string
	retryAfter int // seconds, 0 for none
	moved      operations.MoneyMoved
	outcome    string // what a call to refund did
}

// adapt makes an endpoint of a function of the engine's: read makes its argument of the request and notes every fault,
// show presents its result. What is refused here was refused before any row was read.
func adapt[Req, Resp any](
	read func(*input) Req, act func(context.Context, Req) (Resp, error), show func(Resp) reply,
) endpoint {
	return func(ctx context.Context, x *exchange) (reply, error) {
		in := input{x: x}
		req := read(&in)
		if err := in.verdict(); err != nil {
			return reply{}, err
		}
		if err := x.withinRate(); err != nil {
			return reply{}, err
		}
		resp, err := act(ctx, req)
		if err != nil {
			return reply{}, err
		}
		return show(resp), nil
	}
}

// exchange is one request on its way to its one answer.
type exchange struct {
	s           *server
	w           http.ResponseWriter
	r           *http.Request
	match       match
	ref         string    // Request-Id and diagnostic_ref
	started     time.Time // for its duration only
	principal   access.Principal
	rate        *standing // nil while unauthenticated, or where no limit is set
	operationID string    // empty while unknown
	attempt     attempt
	span        trace.Span // nil where nothing is traced
}

// run does all that may fail; a panic of a handler is an error like any other.
func (x *exchange) run() (rep reply, err error) {
	defer func() {
		if v := recover(); v != nil {
			rep, err = reply{}, newPanicError(v)
		}
	}()
	if x.match.route == nil {
		return reply{}, x.match.refusal()
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.s.timeout)
	defer cancel()
	if scope := x.match.route.scope; scope != public {
		if err := x.admit(ctx, scope); err != nil {
			return reply{}, err
		}
	}
	return x.match.route.serve(ctx, x)
}

// admit tells who calls, and that it may.
func (x *exchange) admit(ctx context.Context, scope access.Scope) error {
	secret, ok := bearer(x.r.Header["Authorization"])
	if !ok {
		return access.ErrUnauthenticated
	}
	p, err := x.s.keys.Authenticate(ctx, secret)
	if err != nil {
		return err
	}
	x.principal = p
	if x.s.limiter != nil {
		st := x.s.limiter.take(p.KeyID, time.Now())
		x.rate = &st
	}
	if !p.Allows(scope) {
		return access.ErrForbidden
	}
	return nil
}

// bearer takes the secret out of the one Authorization header (RFC 6750).
func bearer(values []string) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	secret = strings.Trim(secret, " ")
	return secret, strings.EqualFold(scheme, "Bearer") && secret != ""
}

// withinRate refuses what is over the key's limit: it was counted when the key was admitted.
func (x *exchange) withinRate() error {
	if x.rate == nil || x.rate.allowed {
		return nil
	}
	return &rejection{code: codeRateLimited, retryAfter: x.rate.reset}
}

// answer writes the reply, or the problem that err is, after it was logged and counted: who has the answer finds its
// trace.
func (x *exchange) answer(rep reply, err error) {
	var p *problem
	var body []byte
	if err == nil {
		body, err = rep.encode()
	}
	if err != nil {
		p = x.problem(err)
		rep = p.reply()
		if body, err = rep.encode(); err != nil {
			panic(err) // a problem holds strings and numbers alone
		}
	}
	x.record(rep, p)
	x.write(rep, body, p)
}

func (rep reply) encode() ([]byte, error) {
	if rep.body == nil {
		return rep.raw, nil
	}
	return encode(rep.body)
}

func (x *exchange) write(rep reply, body []byte, p *problem) {
	h := x.w.Header()
	if x.rate != nil {
		x.rate.describe(h)
	}
	if p != nil {
		p.describe(h)
	}
	if rep.stream != nil {
		rep.stream.ServeHTTP(x.w, x.r)
		return
	}
	rep.describe(h)
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.w.WriteHeader(rep.status)
	// A caller that left is not told anything; its next attempt meets the stored outcome.
	_, _ = x.w.Write(body)
}

// isClientGone tells a connection that closed from a deadline that passed.
func (x *exchange) isClientGone() bool {
	return errors.Is(x.r.Context().Err(), context.Canceled)
}
