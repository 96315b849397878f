package blackbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traced "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"refundd/test/harness"
)

// collector takes spans over HTTP as any collector does.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	raw   bytes.Buffer // all that was sent, as it was
	spans []*traced.Span
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collected.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("collector got %s %s: %v", r.Method, r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// named are the spans with a name.
func (c *collector) named(name string) []*traced.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s *traced.Span) bool { return s.GetName() != name })
}

// A trace tells where the time went, to people who may see nothing else: it has the caller's trace id and no word of
// what was refunded, to whom, why, or what anybody said of it. All of it arrives before the process has ended.
func TestTraces_TellTheRoad_AndNothingOfTheRefund(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	p := newPaying(t, "--otlp-endpoint", c.URL, "--provider-breaker-failures", "1000")
	const callers = "callers-own-77c1"
	words := harness.Fields{"message": harness.Canary}
	for i, mode := range []string{"", "decline", "error_after", "drop_before"} {
		order, operation := fmt.Sprintf("ORDER-%s-%d", callers, i), fmt.Sprintf("OP-%s-%d", callers, i)
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
		if mode != "" {
			p.provider.Fault(mode, words, harness.Times(1))
		}
		a := p.Client.Put(harness.AuthorizationPath(operation), harness.Fields{
			"case_id": callers, "order_id": order, "amount_cents": 4321, "approved_by": callers, "reason": callers,
		})
		want(t, a, "201")
		p.Client.Do(harness.Request{
			Method: http.MethodPost, Path: "/v1/refunds", Valid: true,
			Body: harness.JSON(harness.Fields{"operation_id": operation, "order_id": order, "amount_cents": 4321,
				"metadata": harness.Fields{"note": callers}}),
			Header: http.Header{
				"Traceparent": {fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319%d-b7ad6b7169203331-01", i)},
				"Tracestate":  {"vendor=" + callers}, "Baggage": {"customer=" + callers}, "User-Agent": {callers},
			},
		})
	}
	p.Get("/v1/orders?customer_email=" + callers + "%40example.com")
	p.Get("/v1/authorizations?case_id=" + callers)
	p.Get("/v1/" + callers)
	p.Service.Due(t)
	p.Service.Reconcile(t, "--otlp-endpoint", c.URL)
	if code := p.Service.Servers[0].Terminate(t); code != 0 {
		t.Errorf("serve ends with %d", code)
	}

	secrets := []string{harness.Canary, callers, p.ID, p.Client.Key, "4321", "customer_email", "case_id"}
	c.mu.Lock()
	for _, secret := range secrets {
		if i := strings.Index(c.raw.String(), secret); i >= 0 {
			t.Errorf("spans tell of %q: %q", secret, c.raw.String()[max(0, i-60):i+60])
		}
	}
	c.mu.Unlock()
	for name, least := range map[string]int{
		"POST /v1/refunds": 4, "PUT /v1/authorizations/{operation_id}": 4, "GET /v1/orders": 1, "other unknown": 1,
		"batch of refunds": 4, "batch of outcomes": 4, "transaction": 8, "provider refund": 4, "provider lookup": 1, "reconcile": 1,
	} {
		if n := len(c.named(name)); n < least {
			t.Errorf("%d spans named %q, want at least %d", n, name, least)
		}
	}
	for _, s := range c.named("POST /v1/refunds") {
		if id := fmt.Sprintf("%x", s.GetTraceId()); !strings.HasPrefix(id, "0af7651916cd43dd8448eb211c80319") {
			t.Errorf("a request is in trace %s, not in its caller's", id)
		}
	}
	for _, s := range c.named("batch of refunds") {
		if len(s.GetLinks()) == 0 {
			t.Error("a batch has no link to what it did")
		}
	}
}

// A collector that takes connections and says nothing, and one that is not there, cost nobody an answer, nor time.
func TestTraces_OfASilentCollector_CostNothing(t *testing.T) {
	t.Parallel()
	// nothing accepts: the kernel does, up to its backlog
	hole, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	gone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	const refunds = 300
	for what, addr := range map[string]string{"silent": hole.Addr().String(), "gone": gone.Addr().String()} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := harness.New(t, "--otlp-endpoint", "http://"+addr)
			tenant := s.OpenTenant(t)
			tenant.Order("L", refunds)
			began := time.Now()
			together(10, func(i int) {
				for j := range refunds / 10 {
					if a := tenant.Client().Refund(fmt.Sprintf("K%d-%d", i, j), "L",
						1); a.Status != http.StatusCreated {
						t.Errorf("answer %d %s", a.Status, a.Body)
					}
				}
			})
			took := time.Since(began)
			stopping := time.Now()
			if code := s.Servers[0].Terminate(t); code != 0 {
				t.Errorf("serve ends with %d", code)
			}
			if stopped := time.Since(stopping); took > 20*time.Second || stopped > 10*time.Second {
				t.Errorf("%d refunds take %v, the end takes %v", refunds, took, stopped)
			}
			if _, err := s.Servers[0].Logs.Await(time.Second, nil, "the collector takes no spans"); err != nil {
				t.Error(err)
			}
			wantMoved(t, tenant, "L", refunds)
		})
	}
}

// OTEL_EXPORTER_OTLP_ENDPOINT is what every other program of a deployment is given.
func TestTraces_OpenTelemetrysOwnVariable_IsTaken(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	s := harness.New(t)
	server := harness.ServeIn(t, s.DB.ServiceURL,
		[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment=test"})
	s.Tenant(t).ClientOf(server).Get(harness.OrderPath("L"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(c.named("GET /v1/orders/{order_id}")) == 0 && ctx.Err() == nil { // exported every 5 s
		time.Sleep(50 * time.Millisecond)
	}
	if ctx.Err() != nil || !strings.Contains(c.raw.String(), "deployment.environment") {
		t.Errorf("no span, or not the resource's attributes")
	}
	if code := server.Terminate(t); code != 0 {
		t.Errorf("serve ends with %d", code)
	}
}
