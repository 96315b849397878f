package simulator

import (
	"errors"
	"net/http"
	"time"
)

// refundBody is a refund as it is answered.
type refundBody struct {
	RefundID    string            `json:"refund_id"`
	Key         string            `json:"idempotency_key"`
	PaymentRef  string            `json:"payment_ref"`
	AmountCents int64             `json:"amount_cents"`
	Currency    string            `json:"currency"`
	Metadata    map[string]string `json:"metadata"`
	Status      status            `json:"status"`
	FailureCode *string           `json:"failure_code"` // of a failed one
	CreatedAt   time.Time         `json:"created_at"`
}

// body shows r as it is at now.
func (r *refund) body(key string, now time.Time) refundBody {
	is, code := r.at(now)
	b := refundBody{
		RefundID: r.ID, Key: key, PaymentRef: r.Params.PaymentRef, AmountCents: r.Params.AmountCents,
		Currency: r.Params.Currency, Metadata: r.Params.Metadata, Status: is, CreatedAt: r.CreatedAt,
	}
	if code != "" {
		b.FailureCode = &code
	}
	return b
}

// errDropped closes the connection without an answer.
var errDropped = errors.New("simulator: dropped")

// result is what a request of a key comes to: one of refund and decline.
type result struct {
	refund   *refund
	decline  *decline
	replayed bool
}

// postRefund executes a refund once per key.
func (s *Server) postRefund(w http.ResponseWriter, r *http.Request) {
	name, p, err := readRefund(r)
	if err != nil {
		writeError(w, err)
		return
	}
	res, err := s.refund(name, p)
	switch {
	case errors.Is(err, errDropped):
		panic(http.ErrAbortHandler)
	case err != nil:
		s.answerError(w, err)
	case res.decline != nil:
		replayed(w, res)
		writeJSON(w, http.StatusPaymentRequired, problem{Code: res.decline.Code, Message: res.decline.Message})
	default:
		replayed(w, res)
		writeJSON(w, http.StatusCreated, res.refund.body(name, res.refund.CreatedAt))
	}
}

func replayed(w http.ResponseWriter, res result) {
	if res.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
}

// answerError answers a fault's or the server's error.
func (s *Server) answerError(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	switch {
	case !ok:
		s.options.Logger.Error("books unavailable", "error", err)
	case p.status == http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	writeError(w, err)
}

// readRefund takes the key and the parameters of POST /refunds.
func readRefund(r *http.Request) (name string, p params, err error) {
	name = r.Header.Get("Idempotency-Key")
	if !isKey(name) {
		return "", p, errNoKey
	}
	if p, err = readBody[params](r); err != nil {
		return "", p, err
	}
	switch {
	case p.PaymentRef == "" || len(p.PaymentRef) > 255:
		return "", p, invalid("payment_ref must have 1 to 255 characters")
	case p.AmountCents < 1:
		return "", p, invalid("amount_cents must be at least 1")
	case !isCurrency(p.Currency):
		return "", p, invalid("currency must be an ISO 4217 code")
	case len(p.Metadata) > 50:
		return "", p, invalid("metadata has more than 50 members")
	}
	return name, p, nil
}

func isKey(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= MaxKeyLength
}

func isCurrency(s string) bool {
	for _, c := range s {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return len(s) == 3
}

// refund runs one request of a key, from its first fault to its last. What it did is durable when it returns.
func (s *Server) refund(name string, p params) (result, error) {
	if err := s.books.request(name); err != nil {
		return result{}, err
	}
	if f := s.faults.take(modeRefuse, modeErrorBefore, modeDropBefore); f != nil {
		return result{}, errors.Join(s.books.durable(), s.misbehave(f))
	}
	k, err := s.books.hold(name)
	if err != nil {
		return result{}, errors.Join(s.books.durable(), err)
	}
	defer s.books.free(k)
	if err := s.think(); err != nil {
		return result{}, err
	}
	res, err := s.execute(k, name, p)
	if err := errors.Join(s.books.durable(), err); err != nil {
		return result{}, err
	}
	if f := s.faults.take(modeErrorAfter, modeDropAfter); f != nil {
		return result{}, s.misbehave(f)
	}
	return res, nil
}

// think lets the time pass that a request takes, or hangs in.
func (s *Server) think() error {
	takes := s.options.Latency
	if f := s.faults.take(modeHang); f != nil {
		takes += f.delay()
		if err := s.books.durable(); err != nil {
			return err
		}
	}
	if !s.wait(takes) {
		return errDropped
	}
	return nil
}

// misbehave is the end of a request that met f.
func (s *Server) misbehave(f *fault) error {
	if !s.wait(f.delay()) || f.Mode == modeDropBefore || f.Mode == modeDropAfter {
		return errDropped
	}
	return &problem{f.Status, f.Code, f.Message}
}

// execute moves the money, or declines, unless the key did so before.
func (s *Server) execute(k *key, name string, p params) (result, error) {
	s.books.mu.Lock()
	defer s.books.mu.Unlock()
	now := time.Now().Round(0).UTC()
	if r, d := s.books.stored(k, now); r != nil || d != nil {
		return replay(r, d, p)
	}
	if f := s.faults.take(modeDecline); f != nil {
		d := &decline{Params: p, Code: f.Code, Message: f.Message, CreatedAt: now}
		return result{decline: d}, s.books.record(entry{Event: eventDecline, Key: name, Decline: d})
	}
	r := s.newRefund(p, now)
	return result{refund: r}, s.books.record(entry{Event: eventRefund, Key: name, Refund: r})
}

// replay answers what is stored, to the same parameters.
func replay(r *refund, d *decline, p params) (result, error) {
	if r != nil && !r.Params.equal(p) || d != nil && !d.Params.equal(p) {
		return result{}, errReuse
	}
	return result{refund: r, decline: d, replayed: true}, nil
}

// newRefund begins a refund at now, with what is scheduled for it.
func (s *Server) newRefund(p params, now time.Time) *refund {
	r := &refund{ID: newID("re_"), Params: p, CreatedAt: now, Status: statusSucceeded}
	due := now
	if f := s.faults.take(modePending); f != nil {
		due = due.Add(f.delay())
		r.Status = statusPending
		r.Steps = append(r.Steps, step{Status: statusSucceeded, At: due})
	}
	if f := s.faults.take(modeFailLater); f != nil {
		r.Steps = append(r.Steps, step{Status: statusFailed, FailureCode: f.Code, At: due.Add(f.delay())})
	}
	return r
}
