//go:build stripemock

// Package stripemock holds the requests that provider/stripe sends against stripe-mock, which Stripe generates from its
// own OpenAPI description: a path, a parameter or a type that Stripe does not document is refused there. It knows no
// payments and keeps no books, so that its answers are nobody's refunds.
package stripemock

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/internal/clocks"
	"refundd/operations"
	"refundd/provider/stripe"
)

// exchange is what was asked of the mock, and how it liked it.
type exchange struct {
	Request string
	Status  int
}

// mock is stripe-mock behind a proxy that notes what passes.
type mock struct {
	*httptest.Server
	mu   sync.Mutex
	seen []exchange
	body []string
}

// free is an address that nobody listens at.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func start(t *testing.T) *mock {
	t.Helper()
	addr := free(t)
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "stripe-mock", "-http-addr", addr, "-https-addr", free(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start stripe-mock: %v", err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	listening := make(chan struct{}, 16)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "Listening for HTTP") {
				listening <- struct{}{}
			}
		}
	}()
	select {
	case <-listening:
	case <-time.After(30 * time.Second):
		t.Fatal("stripe-mock does not listen")
	}
	m := &mock{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen = append(m.seen, exchange{r.Request.Method + " " + r.Request.URL.RequestURI(), r.StatusCode})
		m.body = append(m.body, string(body))
		return nil
	}
	m.Server = httptest.NewServer(proxy)
	t.Cleanup(m.Close)
	return m
}

// took wants the mock to have got these requests and no others, and to have liked each.
func (m *mock) took(t *testing.T, requests ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var want []exchange
	for _, r := range requests {
		want = append(want, exchange{r, http.StatusOK})
	}
	if d := cmp.Diff(want, m.seen); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, strings.Join(m.body, "\n"))
	}
	m.seen, m.body = nil, nil
}

func TestRequests_AreWhatStripeDocuments(t *testing.T) {
	m := start(t)
	c, err := stripe.NewClient(stripe.Config{Key: "sk_test_123", Base: m.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := operations.ProviderRequest{
		TenantID: "acme", OperationID: "op-1", Key: "acme:op-1", AmountCents: 100, Currency: "USD", NotAfter: clocks.Now().Add(time.Minute),
	}
	for ref, name := range map[string]string{"pi_1": "payment_intent", "ch_1": "charge"} {
		r.PaymentRef, r.ProviderRefundID, r.Account = ref, "", ""
		if result, err := c.Refund(t.Context(), r); kindOf(err) != operations.ErrorUnknown {
			t.Errorf("a refund that is not ours is taken: %+v, %v", result, err)
		}
		m.took(t, "POST /v1/refunds")
		r.ProviderRefundID, r.Account = "re_1", "acct_1"
		_, _ = c.Lookup(t.Context(), r)
		m.took(t, "GET /v1/refunds?limit=100&"+name+"="+ref, "GET /v1/refunds/re_1")
		_, _ = c.Payment(t.Context(), ref, "")
		path := map[string]string{"pi_1": "payment_intents", "ch_1": "charges"}[ref]
		m.took(t, "GET /v1/"+path+"/"+ref)
	}
}

// A key without its form, and a parameter that Stripe does not know, are refused by the mock: it does look.
func TestMock_Refuses(t *testing.T) {
	m := start(t)
	for body, want := range map[string]int{"payment_intent=pi_1&amount=100": 200,
		"payment_intent=pi_1&amount=much": 400, "payment=pi_1": 400} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.URL+"/v1/refunds",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Authorization", "Bearer sk_test_123")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", body, response.StatusCode, want)
		}
	}
}

func kindOf(err error) operations.ErrorKind {
	if failure, ok := errors.AsType[*operations.ProviderError](err); ok {
		return failure.Kind
	}
	return ""
}
