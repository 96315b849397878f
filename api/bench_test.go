package api

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"refundd/access"
	"refundd/operations"
)

// A refund, as it is asked for with no more than is required and with all that may be said, and as it was executed.
const benchBareBody = `{"operation_id":"op_01J9ZK3V7Q8X5T2M4N6P8R0S1T","order_id":"order-000123","amount_cents":1250}`
const benchBody = `{"operation_id":"op_01J9ZK3V7Q8X5T2M4N6P8R0S1T","order_id":"order-000123","amount_cents":1250,"currency":"EUR",` +
	`"reason":"damaged in transit","metadata":{"agent":"support-3","ticket":"T-1029"}}`

func benchReceipt() operations.Receipt {
	at := time.Date(2026, 3, 4, 5, 6, 7, 890123000, time.UTC)
	return operations.Receipt{
		Status: operations.StatusAlreadyProcessed, Replayed: true,
		Operation: operations.Operation{
			TenantID: tenant, OperationID: "op_01J9ZK3V7Q8X5T2M4N6P8R0S1T", RefundID: "0195c1de-7b1a-7cc3-98a1-0242ac120002",
			OrderID: "order-000123", AmountCents: 1250, Currency: "EUR", Reason: new("damaged in transit"),
			Metadata: map[string]string{"agent": "support-3", "ticket": "T-1029"},
			State:    operations.StateSucceeded, CreatedAt: at, SettledAt: &at,
		},
	}
}

// benchWriter takes an answer and keeps nothing of it.
type benchWriter struct{ header http.Header }

func (w *benchWriter) Header() http.Header         { return w.header }
func (w *benchWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *benchWriter) WriteHeader(int)             {}

// benchBodyReader is a request's body that can be read again; like net/http's, it tells its end along with the last
// bytes.
type benchBodyReader struct{ bytes.Reader }

func (r *benchBodyReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == nil && r.Len() == 0 {
		err = io.EOF
	}
	return n, err
}

func (*benchBodyReader) Close() error { return nil }

func benchServer(b testing.TB) *server {
	b.Helper()
	m, err := newMetrics(nil)
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := &server{log: log, metrics: m, timeout: time.Minute}
	receipt := benchReceipt()
	submit := adapt(readSubmission,
		func(context.Context, operations.Request) (operations.Receipt, error) { return receipt, nil }, showReceipt)
	routes := noServer().routes()
	for i, r := range routes {
		if r.method == http.MethodPost && r.pattern == refundsPath {
			routes[i].scope = public
			routes[i].serve = func(ctx context.Context, x *exchange) (reply, error) {
				x.principal = access.Principal{TenantID: tenant, KeyID: "key_0195c1de7b1a"}
				return submit(ctx, x)
			}
		}
	}
	s.router = newRouter(routes)
	return s
}

func benchRequest(b testing.TB, sent string) (r *http.Request, rewind func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	r = httptest.NewRequestWithContext(ctx, http.MethodPost, refundsPath, strings.NewReader(sent))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer x")
	raw, body := []byte(sent), &benchBodyReader{}
	r.Body = body
	return r, func() { body.Reset(raw) }
}

// BenchmarkExchange is what a replay costs here: without the network, the engine and the key's lookup.
func BenchmarkExchange(b *testing.B) {
	s := benchServer(b)
	for _, refund := range []struct{ name, body string }{{"bare", benchBareBody}, {"full", benchBody}} {
		b.Run(refund.name, func(b *testing.B) {
			r, rewind := benchRequest(b, refund.body)
			w := &benchWriter{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				rewind()
				clear(w.header)
				s.ServeHTTP(w, r)
			}
		})
	}
}

// What an exchange leaves to the collector is bounded by count, which is the same on every machine: 26 at the time of
// writing. Under the race detector what is pooled is sometimes made anew.
func TestExchange_AllocatesLittle(t *testing.T) {
	s := benchServer(t)
	r, rewind := benchRequest(t, benchBareBody)
	w := &benchWriter{header: http.Header{}}
	const most = 36
	allocations := testing.AllocsPerRun(500, func() {
		rewind()
		clear(w.header)
		s.ServeHTTP(w, r)
	})
	if w.header.Get("Request-Id") == "" || allocations > most {
		t.Errorf("%v allocations, want at most %d; the answer's headers: %v", allocations, most, w.header)
	}
}

// BenchmarkParts are the parts of an exchange, one by one.
func BenchmarkParts(b *testing.B) {
	s := benchServer(b)
	r, rewind := benchRequest(b, benchBody)
	x := &exchange{
		s: s, r: r, match: s.router.find(r), ref: "0195c1de-7b1a-7cc3-98a1-0242ac120002", started: time.Now(),
		principal: access.Principal{TenantID: tenant,
			KeyID: "key_0195c1de7b1a"}, operationID: "op_01J9ZK3V7Q8X5T2M4N6P8R0S1T",
	}
	receipt := benchReceipt()
	rep := showReceipt(receipt)
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"find", func() { s.router.find(r) }},
		{"readBody", func() {
			rewind()
			if _, err := readBody(r); err != nil {
				b.Fatal(err)
			}
		}},
		{"decode", func() {
			if _, err := decode[refundBody]([]byte(benchBody)); err != nil {
				b.Fatal(err)
			}
		}},
		{"readSubmission", func() {
			rewind()
			in := input{x: x}
			readSubmission(&in)
		}},
		{"showReceipt", func() { rep = showReceipt(receipt) }},
		{"encode", func() {
			if _, err := rep.encode(); err != nil {
				b.Fatal(err)
			}
		}},
		{"record", func() { x.record(rep, nil) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				part.run()
			}
		})
	}
}
