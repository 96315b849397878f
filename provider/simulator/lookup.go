package simulator

import (
	"net/http"
	"net/url"
	"slices"
	"time"
)

type refundsBody struct {
	Refunds []refundBody `json:"refunds"`
}

// getRefunds lists every refund of a payment, of a key, or of both. A forgotten key's refunds are found by it all the
// same: the refund says under which key it came.
func (s *Server) getRefunds(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, err)
		return
	}
	if f := s.faults.take(modeLookupDown); f != nil {
		s.wait(f.delay())
		s.answerError(w, &problem{f.Status, f.Code, f.Message})
		return
	}
	var lag time.Duration
	if f := s.faults.take(modeLookupLag); f != nil {
		lag = f.delay()
	}
	s.wait(s.options.Latency)
	now := time.Now()
	body := refundsBody{Refunds: []refundBody{}}
	for _, x := range s.books.find(q) {
		if now.Sub(x.CreatedAt) >= lag {
			body.Refunds = append(body.Refunds, x.body(x.key, now))
		}
	}
	s.answer(w, body)
}

// query names refunds; an empty member names all.
type query struct{ key, paymentRef string }

func readQuery(raw string) (q query, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, invalid("the query is malformed")
	}
	for name, v := range values {
		switch {
		case len(v) != 1 || v[0] == "":
			return q, invalid("a parameter of the query is empty or repeated")
		case name == "idempotency_key":
			q.key = v[0]
		case name == "payment_ref":
			q.paymentRef = v[0]
		default:
			return q, invalid("a parameter of the query is unknown")
		}
	}
	if len(values) == 0 {
		return q, invalid("idempotency_key or payment_ref is required")
	}
	return q, nil
}

// find is the refunds that q names, oldest first.
func (b *books) find(q query) []executed {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.key == "" {
		return slices.Clone(b.byRef[q.paymentRef])
	}
	found := slices.Clone(b.byKey[q.key])
	return slices.DeleteFunc(found, func(x executed) bool {
		return q.paymentRef != "" && x.Params.PaymentRef != q.paymentRef
	})
}

// answer shows what was read of the books, once it can not be lost any more.
func (s *Server) answer(w http.ResponseWriter, body any) {
	if err := s.books.durable(); err != nil {
		s.answerError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, body)
}
