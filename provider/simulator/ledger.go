package simulator

import (
	"net/http"
	"time"
)

// line is a refund as the ledger lists it.
type line struct {
	RefundID    string    `json:"refund_id"`
	Key         string    `json:"idempotency_key"`
	PaymentRef  string    `json:"payment_ref"`
	AmountCents int64     `json:"amount_cents"`
	Currency    string    `json:"currency"`
	Status      status    `json:"status"`
	CreatedAt   time.Time `json:"created_at"`
	Requests    int       `json:"requests"` // that ever carried its key, those that executed nothing included
}

type ledgerBody struct {
	Refunds []line `json:"refunds"`
}

// getLedger lists every refund that was ever executed, oldest first. No fault hides one.
func (s *Server) getLedger(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, ledgerBody{Refunds: s.books.ledger(time.Now())})
}

func (b *books) ledger(now time.Time) []line {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := make([]line, 0, len(b.refunds))
	for _, x := range b.refunds {
		is, _ := x.at(now)
		lines = append(lines, line{
			RefundID: x.ID, Key: x.key, PaymentRef: x.Params.PaymentRef, AmountCents: x.Params.AmountCents,
			Currency: x.Params.Currency, Status: is, CreatedAt: x.CreatedAt, Requests: b.keys[x.key].requests,
		})
	}
	return lines
}

// keyBody is an idempotency key as it is listed.
type keyBody struct {
	Key      string  `json:"idempotency_key"`
	Requests int     `json:"requests"`
	Refunds  int     `json:"refunds"` // executed under it; more than one is a double refund
	Busy     bool    `json:"busy"`    // a request of it runs
	Stored   *string `json:"stored"`  // refund, decline, or null: the next request executes
}

type keysBody struct {
	Keys []keyBody `json:"keys"`
}

// getKeys lists every key that was ever seen, in the order of their first requests.
func (s *Server) getKeys(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, keysBody{Keys: s.books.list(time.Now())})
}

func (b *books) list(now time.Time) []keyBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]keyBody, 0, len(b.seen))
	for _, name := range b.seen {
		k := b.keys[name]
		body := keyBody{Key: name, Requests: k.requests, Refunds: len(b.byKey[name]), Busy: k.busy}
		switch r, d := b.stored(k, now); {
		case r != nil:
			body.Stored = new(string(eventRefund))
		case d != nil:
			body.Stored = new(string(eventDecline))
		}
		list = append(list, body)
	}
	return list
}

type expiryBody struct {
	Key string `json:"idempotency_key"` // empty: all of them
}

// expireKeys forgets what is stored under the keys. What was executed stays executed.
func (s *Server) expireKeys(w http.ResponseWriter, r *http.Request) {
	var body expiryBody
	if r.ContentLength != 0 {
		var err error
		if body, err = readBody[expiryBody](r); err != nil {
			writeError(w, err)
			return
		}
	}
	if err := s.books.expire(body.Key); err != nil {
		s.answerError(w, err)
		return
	}
	s.answer(w, struct{}{})
}

func (b *books) expire(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record(entry{Event: eventExpire, Key: name})
}
