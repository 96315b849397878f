package api

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/access"
	"refundd/escalations"
	"refundd/operations"
	"refundd/reconcile"
	"refundd/test/testdb"
	"refundd/webhooks"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const tenant = "acme"

// service is the API over a real engine and database, reached through a real connection.
type service struct {
	url      string
	secret   string // of a key with every scope
	keys     *access.Keys
	operator *access.Keys // may let callers in
	db       *testdb.DB
	log      *logBuffer
	metrics  *prometheus.Registry
	handler  *server
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// line is the log event of a request.
func (b *logBuffer) line(t *testing.T, ref string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var found string
	for line := range strings.Lines(b.buf.String()) {
		if strings.Contains(line, ref) {
			if found != "" {
				t.Errorf("two log events of %s", ref)
			}
			found = line
		}
	}
	if found == "" {
		t.Errorf("no log event of %s", ref)
	}
	return found
}

// start serves a tenant; it needs no authorizations unless the test asks for them.
func start(t *testing.T, change ...func(*Config)) *service {
	t.Helper()
	return startWith(t, operations.Config{}, change...)
}

// startWith serves an engine of its own configuration, on a database of its own.
func startWith(t *testing.T, of operations.Config, change ...func(*Config)) *service {
	t.Helper()
	db := testdb.New(t)
	s := &service{db: db, log: &logBuffer{}, metrics: prometheus.NewRegistry()}
	log := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	of.Pool, of.Logger, of.Registerer = db.Pool, log, s.metrics
	engine, err := operations.New(of)
	if err != nil {
		t.Fatal(err)
	}
	if s.keys, err = access.New(access.Config{Pool: db.Pool}); err != nil {
		t.Fatal(err)
	}
	if s.operator, err = access.New(access.Config{Pool: testdb.Pool(t, db.OperatorURL)}); err != nil {
		t.Fatal(err)
	}
	if err := s.operator.CreateTenant(t.Context(), tenant, false); err != nil {
		t.Fatal(err)
	}
	s.secret = s.key(t, tenant, access.AllScopes()...)
	desk, err := escalations.New(escalations.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	history, err := reconcile.NewHistory(db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	outbox, err := webhooks.New(webhooks.Config{Pool: db.Pool, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Engine: engine, Keys: s.keys, Desk: desk, History: history, Outbox: outbox, Registerer: s.metrics, Ready: db.Pool.Ping, Logger: log,
	}
	for _, c := range change {
		c(&config)
	}
	h, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.handler = h.server
	s.serve(t, h, engine)
	return s
}

func (s *service) serve(t *testing.T, h API, engine *operations.Engine) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	server := NewServer("", h, Timeouts{}, nil)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = engine.Run(ctx) })
	running.Go(func() { _ = server.Serve(h.Listen(listener)) })
	t.Cleanup(func() {
		_ = server.Close()
		stop()
		running.Wait()
	})
}

func (s *service) key(t *testing.T, tenantID string, scopes ...access.Scope) string {
	t.Helper()
	secret, _, err := s.operator.CreateKey(t.Context(), access.NewKey{TenantID: tenantID, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// answered is a response, read to its end.
type answered struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (a answered) text(name string) string {
	v, _ := a.body[name].(string)
	return v
}

// errorsOf is the faults of an invalid_request, as "pointer code".
func (a answered) errorsOf() []string {
	list, _ := a.body["errors"].([]any)
	faults := make([]string, 0, len(list))
	for _, e := range list {
		m := e.(map[string]any)
		faults = append(faults, m["pointer"].(string)+" "+m["code"].(string))
	}
	return faults
}

type option func(*http.Request)

func header(name string, values ...string) option {
	return func(r *http.Request) {
		r.Header.Del(name)
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
}

func as(secret string) option { return header("Authorization", "Bearer "+secret) }

// do sends one request with the all-scopes key and holds its answer against the contract.
func (s *service) do(t *testing.T, method, path, body string, options ...option) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.secret)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, set := range options {
		set(r)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answered{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") && method != http.MethodHead {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			t.Fatalf("%s %s answers no JSON: %q", method, path, raw)
		}
	}
	s.checkAlways(t, r, a)
	return a
}

// checkAlways holds for every answer.
func (s *service) checkAlways(t *testing.T, r *http.Request, a answered) {
	t.Helper()
	ref := a.header.Get("Request-Id")
	if ref == "" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %s: Request-Id %q, Cache-Control %q", r.Method, r.URL, ref, a.header.Get("Cache-Control"))
	}
	s.log.line(t, ref)
	if strings.Contains(s.log.line(t, ref), s.secret) {
		t.Errorf("%s %s: the log has the secret", r.Method, r.URL)
	}
	if a.status >= 400 && r.Method != http.MethodHead {
		checkProblem(t, r, a)
	}
	conform(t, r, a)
}

func checkProblem(t *testing.T, r *http.Request, a answered) {
	t.Helper()
	k := kinds[a.text("code")]
	if a.header.Get("Content-Type") != "application/problem+json" ||
		a.body["diagnostic_ref"] != a.header.Get("Request-Id") ||
		a.body["isRetryable"] != k.retryable || a.status != k.status || a.body["status"] != float64(k.status) ||
		a.body["next_action"] != k.next || a.text("type") != "urn:refundd:problem:"+a.text("code") {
		t.Errorf("%s %s: not the documented problem: %d %s", r.Method, r.URL, a.status, a.raw)
	}
	if want := map[bool]string{true: "true", false: "false"}[k.retryable]; a.header.Get("X-Should-Retry") != want {
		t.Errorf("%s %s: X-Should-Retry %q, want %s", r.Method, r.URL, a.header.Get("X-Should-Retry"), want)
	}
	if (k.retryAfter > 0) != (a.header.Get("Retry-After") != "") {
		t.Errorf("%s %s: Retry-After %q", r.Method, r.URL, a.header.Get("Retry-After"))
	}
}

// registered makes an order of 10000 euro cents.
func (s *service) registered(t *testing.T, orderID string) {
	t.Helper()
	a := s.do(t, "PUT", "/v1/orders/"+orderID, `{"currency":"EUR","captured_cents":10000}`)
	if a.status != http.StatusCreated {
		t.Fatalf("PUT order: %d %s", a.status, a.raw)
	}
}

// noServer has routes to look at, none of which can be served.
func noServer() *server { return &server{engine: &operations.Engine{}} }
