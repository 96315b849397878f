package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-cmp/cmp"

	"refundd/client"
)

// Refund executes a refund by the project's own client, in one exchange, which is held against the contract like any
// other. What the client makes of the answer has to be what the answer says.
func (c Client) Refund(operationID, orderID string, cents int64) Answer {
	c.T.Helper()
	wire := &wire{caller: c}
	refunds, err := client.New(client.Config{
		BaseURL: c.URL, APIKey: c.Key, Transport: wire, Attempts: 1, Deadline: requestWait, AttemptTimeout: requestWait,
	})
	if err != nil { // no key that the client would send
		return c.Post("/v1/refunds", Fields{"operation_id": operationID, "order_id": orderID, "amount_cents": cents})
	}
	receipt, err := refunds.Refund(context.Background(),
		client.RefundRequest{OperationID: operationID, OrderID: orderID, AmountCents: cents})
	if wire.err != nil {
		c.T.Errorf("refund %s: %v", operationID, wire.err)
		return wire.answer
	}
	if diff := cmp.Diff(wordsOf(wire.answer), understood(receipt, err)); diff != "" {
		c.T.Errorf("refund %s: the client misunderstands (-answer +client):\n%s", operationID, diff)
	}
	return wire.answer
}

// wire carries the one exchange of a call.
type wire struct {
	caller Client
	sent   bool
	answer Answer
	err    error // no complete answer arrived
}

var errOnce = errors.New("one exchange was asked for")

// RoundTrip implements http.RoundTripper. A second request, such as a look-up, is not carried.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.sent {
		return nil, errOnce
	}
	w.sent = true
	r = r.Clone(r.Context())
	r.Header.Del("Refund-Attempt-Layer") // tests label their attempts themselves
	r.Header.Del("Refund-Attempt")
	var body []byte
	if body, w.err = io.ReadAll(r.Body); w.err != nil {
		return nil, w.err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var res *http.Response
	if res, w.err = transport.RoundTrip(r); w.err != nil {
		return nil, w.err
	}
	var said []byte
	said, w.err = io.ReadAll(res.Body)
	_ = res.Body.Close()
	if w.err != nil {
		return nil, w.err
	}
	w.answer = Answer{res.StatusCode, res.Header, said}
	w.caller.judge(exchange{r, body, w.answer}, true)
	res.Body = io.NopCloser(bytes.NewReader(said))
	return res, nil
}

// wordsOf are the members of an answer that a caller decides by.
func wordsOf(a Answer) string {
	if a.Status >= 400 {
		p, err := decode[Problem](a)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(p.Code, a.Status, p.IsRetryable, p.MoneyMoved, p.NextAction, p.DiagnosticRef)
	}
	r, err := decode[Receipt](a)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(r.Status, r.Replayed, r.RefundID, r.State, r.AmountCents, r.Currency, r.MoneyMoved, r.NextAction)
}

// understood are the same members as the client gives them.
func understood(r client.Receipt, err error) string {
	var e *client.Error
	if errors.As(err, &e) {
		return fmt.Sprint(e.Code, e.Status, e.Retryable, e.MoneyMoved, e.NextAction, e.DiagnosticRef)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(r.Status, r.Replayed, r.RefundID, r.State, r.AmountCents, r.Currency, r.MoneyMoved, r.NextAction)
}
