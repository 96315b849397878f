package simulator_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"refundd/internal/clocks"
	"refundd/operations"
	"refundd/provider/simulator"
)

var refundOf4999 = operations.ProviderRequest{
	TenantID: "acme", OperationID: "op-1", Key: "acme:op-1", PaymentRef: "pay-1", AmountCents: 4999, Currency: "EUR",
	NotAfter: clocks.Now().Add(time.Hour),
}

func newClient(t *testing.T, url string) *simulator.Client {
	t.Helper()
	c, err := simulator.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// outcome wants an outcome with an exchange's name.
func outcome(t *testing.T, want operations.ProviderResult, got operations.ProviderResult, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("got %v, want %+v", err, want)
	}
	if d := cmp.Diff(want, got,
		cmpopts.IgnoreFields(operations.ProviderResult{}, "RequestID", "ProviderRefundID")); d != "" {
		t.Error(d)
	}
	if got.RequestID == "" {
		t.Error("the exchange has no name")
	}
}

// kind wants an error of a kind, and returns the exchange's name.
func kind(t *testing.T, want operations.ErrorKind, err error) operations.ProviderError {
	t.Helper()
	e, ok := errors.AsType[*operations.ProviderError](err)
	if !ok || e.Kind != want {
		t.Errorf("got %v, want the kind %s", err, want)
		return operations.ProviderError{}
	}
	return *e
}

var succeeded = operations.ProviderResult{Outcome: operations.OutcomeSucceeded}

func declined(code string) operations.ProviderResult {
	return operations.ProviderResult{Outcome: operations.OutcomeDeclined, DeclineCode: code}
}

func TestClient_RefundsAndFindsWhatItRefunded(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	c := newClient(t, p.url+"/")
	_, err := c.Lookup(t.Context(), refundOf4999)
	kind(t, operations.ErrorNotFound, err)

	first, err := c.Refund(t.Context(), refundOf4999)
	outcome(t, succeeded, first, err)
	again, err := c.Refund(t.Context(), refundOf4999)
	outcome(t, succeeded, again, err)
	found, err := c.Lookup(t.Context(), refundOf4999)
	outcome(t, succeeded, found, err)
	l := p.ledger(t)
	if len(l) != 1 || first.ProviderRefundID != l[0].RefundID || again.ProviderRefundID != l[0].RefundID ||
		found.ProviderRefundID != l[0].RefundID || l[0].Key != "acme:op-1" || l[0].AmountCents != 4999 {
		t.Errorf("got %+v, %+v, %+v and %+v", first, again, found, l)
	}
	want := map[string]string{"tenant_id": "acme", "operation_id": "op-1"}
	if d := cmp.Diff(want, p.lookup(t, "pay-1")[0].Metadata); d != "" {
		t.Error(d)
	}
}

func TestClient_SortsEachFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault    string
		kind     operations.ErrorKind // of the first answer, else
		result   operations.ProviderResult
		executed int
	}{
		{`{"mode":"error_before"}`, operations.ErrorUnknown, operations.ProviderResult{}, 0},
		{`{"mode":"error_after"}`, operations.ErrorUnknown, operations.ProviderResult{}, 1},
		{`{"mode":"drop_before"}`, operations.ErrorUnknown, operations.ProviderResult{}, 0},
		{`{"mode":"drop_after"}`, operations.ErrorUnknown, operations.ProviderResult{}, 1},
		{`{"mode":"refuse"}`, operations.ErrorNotSent, operations.ProviderResult{}, 0},
		{`{"mode":"error_before","status":401}`, operations.ErrorMisconfigured, operations.ProviderResult{}, 0},
		{`{"mode":"error_before","status":403}`, operations.ErrorMisconfigured, operations.ProviderResult{}, 0},
		{`{"mode":"error_before","status":402}`, operations.ErrorUnknown, operations.ProviderResult{}, 0},
		{`{"mode":"error_before","status":404}`, operations.ErrorUnknown, operations.ProviderResult{}, 0},
		{`{"mode":"error_after","status":503}`, operations.ErrorUnknown, operations.ProviderResult{}, 1},
		{`{"mode":"decline"}`, "", declined("declined"), 0},
		{`{"mode":"decline","code":"insufficient_funds"}`, "", declined("insufficient_funds"), 0},
		{`{"mode":"decline","code":"already_refunded"}`, "", declined("already_refunded"), 0},
		{`{"mode":"decline","code":"refund_failed"}`, operations.ErrorUnknown, operations.ProviderResult{}, 0},
		{`{"mode":"decline","code":"something_new"}`, operations.ErrorUnknown, operations.ProviderResult{}, 0},
		{`{"mode":"pending","delay_ms":60000}`, "", operations.ProviderResult{Outcome: operations.OutcomePending}, 1},
		{`{"mode":"fail_later","delay_ms":60000}`, "", succeeded, 1},
		{`{"mode":"hang","delay_ms":50}`, "", succeeded, 1},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			p := start(t, simulator.Options{})
			p.fault(t, c.fault)
			got, err := newClient(t, p.url).Refund(t.Context(), refundOf4999)
			if c.kind == "" {
				outcome(t, c.result, got, err)
			} else if kind(t, c.kind, err).RequestID == "" && !strings.Contains(c.fault, "drop") {
				t.Error("the exchange has no name")
			}
			p.executions(t, c.executed)
		})
	}
}

func TestClient_DeadlinePasses_IsUnknown(t *testing.T) {
	t.Parallel()
	p := start(t, simulator.Options{})
	p.fault(t, `{"mode":"hang","delay_ms":500,"count":1}`)
	c := newClient(t, p.url)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Refund(ctx, refundOf4999)
	kind(t, operations.ErrorUnknown, err)
	_, err = c.Refund(t.Context(), refundOf4999) // another one with this key still runs
	kind(t, operations.ErrorUnknown, err)
	eventually(t, "it executes", func() bool { _, err := c.Lookup(t.Context(), refundOf4999); return err == nil })
}

func TestClient_NothingWasWritten_IsNotSent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, "http://"+listener.Addr().String())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Refund(ended, refundOf4999)
	kind(t, operations.ErrorNotSent, err)
	listener.Close()
	_, err = c.Refund(t.Context(), refundOf4999)
	kind(t, operations.ErrorNotSent, err)
	_, err = c.Lookup(t.Context(), refundOf4999)
	kind(t, operations.ErrorNotSent, err)
}

func TestClient_Lookup_SortsEachAnswer(t *testing.T) {
	t.Parallel()
	ours := func(change ...string) string {
		return strings.NewReplacer(change...).Replace(`{"refund_id":"re_1","idempotency_key":"acme:op-1","payment_ref":"pay-1",` +
			`"amount_cents":4999,"currency":"EUR","metadata":{"tenant_id":"acme","operation_id":"op-1"},"status":"succeeded",` +
			`"failure_code":null,"created_at":"2026-01-02T03:04:05Z","new_member":1}`)
	}
	list := func(refunds ...string) string { return `{"refunds":[` + strings.Join(refunds, ",") + `]}` }
	elsewhere := ours("op-1", "op-2", "re_1", "re_2")
	for name, c := range map[string]struct {
		status int
		body   string
		kind   operations.ErrorKind
		result operations.ProviderResult
	}{
		"ours": {200, list(elsewhere, ours()), "", succeeded},
		"ours, pending": {200, list(ours("succeeded", "pending")), "",
			operations.ProviderResult{Outcome: operations.OutcomePending}},
		"ours, failed": {200, list(ours("succeeded", "failed")), "", declined("refund_failed")},
		"ours, failed with code": {200, list(ours("succeeded", "failed", "null", `"lost_or_stolen_card"`)), "",
			declined("lost_or_stolen_card")},
		"ours, failed, no decline": {200, list(ours("succeeded", "failed", "null", `"already_refunded"`)), "",
			declined("refund_failed")},
		"under another key":   {200, list(ours("acme:op-1", "by hand")), "", succeeded},
		"without metadata":    {200, list(ours(`"tenant_id"`, `"a"`, `"operation_id"`, `"b"`)), "", succeeded},
		"none":                {200, list(), operations.ErrorNotFound, operations.ProviderResult{}},
		"another operation's": {200, list(elsewhere), operations.ErrorNotFound, operations.ProviderResult{}},
		"another tenant's": {200, list(ours("acme", "other")), operations.ErrorNotFound,
			operations.ProviderResult{}},
		"two of ours": {200, list(ours(), ours("acme:op-1", "again", "re_1", "re_2")),
			operations.ErrorContradictory, operations.ProviderResult{}},
		"another amount": {200, list(ours("4999", "5000")), operations.ErrorContradictory,
			operations.ProviderResult{}},
		"another currency": {200, list(ours("EUR", "USD")), operations.ErrorContradictory,
			operations.ProviderResult{}},
		"another payment": {200, list(ours("pay-1", "pay-2")), operations.ErrorContradictory,
			operations.ProviderResult{}},
		"an unknown status": {200, list(ours("succeeded", "disputed")), operations.ErrorUnknown,
			operations.ProviderResult{}},
		"no name":           {200, list(ours("re_1", "")), operations.ErrorUnknown, operations.ProviderResult{}},
		"no list":           {200, `{}`, operations.ErrorUnknown, operations.ProviderResult{}},
		"a list of null":    {200, `{"refunds":null}`, operations.ErrorUnknown, operations.ProviderResult{}},
		"no JSON":           {200, `<html>`, operations.ErrorUnknown, operations.ProviderResult{}},
		"half of it":        {200, list(ours())[:90], operations.ErrorUnknown, operations.ProviderResult{}},
		"not found":         {404, list(), operations.ErrorUnknown, operations.ProviderResult{}},
		"an error":          {503, list(ours()), operations.ErrorUnknown, operations.ProviderResult{}},
		"a redirect":        {307, list(ours()), operations.ErrorUnknown, operations.ProviderResult{}},
		"no permission":     {403, list(ours()), operations.ErrorMisconfigured, operations.ProviderResult{}},
		"too many requests": {429, list(ours()), operations.ErrorNotSent, operations.ProviderResult{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newClient(t, answering(t, c.status, c.body)).Lookup(t.Context(), refundOf4999)
			if c.kind != "" {
				kind(t, c.kind, err)
				return
			}
			outcome(t, c.result, got, err)
		})
	}
}

// answering is a server that gives one answer to everything.
func answering(t *testing.T, status int, body string) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Request-Id", "req_1")
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestClient_Refund_BelievesOnlyARefundThatIsItsOwn(t *testing.T) {
	t.Parallel()
	good := `{"refund_id":"re_1","idempotency_key":"acme:op-1","payment_ref":"pay-1","amount_cents":4999,"currency":"EUR",` +
		`"metadata":{},"status":"succeeded","created_at":"2026-01-02T03:04:05Z"}`
	for _, c := range []struct{ old, new string }{
		{"4999", "5000"}, {"EUR", "USD"}, {"pay-1", "pay-2"}, {"acme:op-1", "acme:op-2"}, {"re_1", ""}, {"succeeded",
			"paid"},
		{"{", "["}, {good, "null"}, {good, ""},
	} {
		url := answering(t, http.StatusCreated, strings.Replace(good, c.old, c.new, 1))
		_, err := newClient(t, url).Refund(t.Context(), refundOf4999)
		kind(t, operations.ErrorUnknown, err)
	}
	for status, body := range map[int]string{201: good, 202: "", 204: "", 307: good, 400: `{"code":"declined"}`} {
		got, err := newClient(t, answering(t, status, body)).Refund(t.Context(), refundOf4999)
		if status == 201 {
			outcome(t, succeeded, got, err)
			continue
		}
		kind(t, operations.ErrorUnknown, err)
	}
}

// raw answers each request of each connection with what reply says, byte by byte, and closes where it says nothing.
func raw(t *testing.T, requests *atomic.Int64, reply func(n int64) string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections sync.WaitGroup
	t.Cleanup(connections.Wait)
	t.Cleanup(func() { listener.Close() })
	connections.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					answer := reply(requests.Add(1))
					_, _ = io.WriteString(c, answer)
					if answer == "" || strings.Contains(answer, "Content-Length: 9999") {
						return
					}
				}
			})
		}
	})
	return "http://" + listener.Addr().String()
}

func TestClient_ConnectionCloses_IsNotSentAgain(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url := raw(t, &requests, func(n int64) string {
		if n == 1 {
			return "HTTP/1.1 500 Error\r\nContent-Length: 2\r\n\r\n{}"
		}
		return ""
	})
	c := newClient(t, url)
	_, err := c.Refund(t.Context(), refundOf4999)
	kind(t, operations.ErrorUnknown, err)
	_, err = c.Refund(t.Context(), refundOf4999)
	kind(t, operations.ErrorUnknown, err)
	if n := requests.Load(); n != 2 {
		t.Errorf("two calls sent %d requests", n)
	}
	_, err = c.Lookup(t.Context(), refundOf4999)
	kind(t, operations.ErrorUnknown, err)
	if n := requests.Load(); n != 3 {
		t.Errorf("three calls sent %d requests", n)
	}
}

func TestClient_TruncatedAnswer_IsUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"a body": "HTTP/1.1 201 Created\r\nContent-Length: 9999\r\n\r\n" + `{"refund_id":"re_1"`,
		"a 429":  "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9999\r\n\r\n",
		"a line": "HTTP/1.1 201 Cre", // and then silence
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			url := raw(t, &requests, func(int64) string { return answer })
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := newClient(t, url).Refund(ctx, refundOf4999)
			kind(t, operations.ErrorUnknown, err)
			if n := requests.Load(); n != 1 {
				t.Errorf("one call sent %d requests", n)
			}
		})
	}
}

func TestNewClient_RefusesOtherURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:4010", "ftp://127.0.0.1", "http://", "http://u:p@h", "http://h?x=1",
		"http://h:x"} {
		if _, err := simulator.NewClient(url); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
}
