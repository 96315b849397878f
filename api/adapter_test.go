package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"refundd/access"
	"refundd/operations"
)

func TestAuthentication_TakesOneBearerKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		values []string
		status int
	}{
		"bearer":            {[]string{"Bearer " + s.secret}, 200},
		"lower case":        {[]string{"bearer " + s.secret}, 200},
		"none":              {nil, 401},
		"empty":             {[]string{""}, 401},
		"no secret":         {[]string{"Bearer "}, 401},
		"another scheme":    {[]string{"Basic " + s.secret}, 401},
		"the secret alone":  {[]string{s.secret}, 401},
		"two headers":       {[]string{"Bearer " + s.secret, "Bearer " + s.secret}, 401},
		"an unknown secret": {[]string{"Bearer rfd_" + strings.Repeat("A", 43)}, 401},
	} {
		a := s.do(t, "GET", "/v1/refunds", "", header("Authorization", c.values...))
		if a.status != c.status || (a.status == 401) != (a.header.Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
}

func TestScopes_EachRouteAsksForItsOwn(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, r := range s.handler.routes() {
		if r.scope == public {
			if a := s.do(t, r.method, r.pattern, "", header("Authorization")); a.status != 200 &&
				r.method == http.MethodGet || a.status == 401 || a.status == 403 {
				t.Errorf("%s %s: %d %s", r.method, r.pattern, a.status, a.raw)
			}
			continue
		}
		var others []access.Scope
		for _, scope := range access.AllScopes() {
			if scope != r.scope {
				others = append(others, scope)
			}
		}
		path := strings.NewReplacer("{operation_id}", "k", "{order_id}", "k").Replace(r.pattern)
		if a := s.do(t, r.method, path, "", as(s.key(t, tenant, others...))); a.text("code") != "forbidden" {
			t.Errorf("%s %s without its scope: %d %s", r.method, path, a.status, a.raw)
		}
		if a := s.do(t, r.method, path, "", as(s.key(t, tenant, r.scope))); a.status == 401 || a.status == 403 {
			t.Errorf("%s %s with its scope: %d %s", r.method, path, a.status, a.raw)
		}
	}
}

func TestTenants_DoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	s := start(t)
	if err := s.operator.CreateTenant(t.Context(), "other", false); err != nil {
		t.Fatal(err)
	}
	other := as(s.key(t, "other", access.AllScopes()...))
	s.registered(t, "A")
	s.do(t, "POST", "/v1/refunds", `{"operation_id":"k","order_id":"A","amount_cents":1}`)
	for path, code := range map[string]string{
		"/v1/orders/A": "order_not_found", "/v1/refunds/k": "refund_not_found", "/v1/authorizations/k": "authorization_not_found",
		"/v1/refunds/k/events": "refund_not_found",
	} {
		if a := s.do(t, "GET", path, "", other); a.text("code") != code {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	for path, body := range map[string]string{
		"/v1/refunds/k/reconcile": "", "/v1/refunds/k/resolve": `{"outcome":"failed","evidence":"e"}`,
	} {
		if a := s.do(t, "POST", path, body, other); a.text("code") != "refund_not_found" {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	if a := s.do(t, "POST", "/v1/refunds",
		`{"operation_id":"k","order_id":"A","amount_cents":1}`, other); a.text("code") != "order_not_found" {
		t.Errorf("refund: %d %s", a.status, a.raw)
	}
}

func TestRecord_NamesTheCallerTheOperationAndTheAttempt(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A")
	const body = `{"operation_id":"k","order_id":"A","amount_cents":1,"reason":"canary"}`
	s.do(t, "POST", "/v1/refunds", body)
	a := s.do(t, "POST", "/v1/refunds", body, header("Refund-Attempt-Layer", "agent_loop"),
		header("Refund-Attempt", "3"))
	line := s.log.line(t, a.header.Get("Request-Id"))
	for _, want := range []string{
		`"level":"INFO"`, `"msg":"request"`, `"route":"/v1/refunds"`, `"method":"POST"`, `"status":200`, `"code":"ok"`, `"duration_us":`,
		`"peer":"127.0.0.1:`,
		`"tenant_id":"acme"`, `"key_id":"key_`, `"operation_id":"k"`, `"attempt_layer":"agent_loop"`, `"attempt":3`, `"replayed":true`,
		`"money_moved":"yes"`, `"outcome":"already_processed"`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("log event lacks %s: %s", want, line)
		}
	}
	if strings.Contains(line, "canary") {
		t.Errorf("log event has the body: %s", line)
	}
	s.do(t, "POST", "/v1/refunds", "{}", header("Refund-Attempt-Layer", "my own"), header("Refund-Attempt", "-1"))
	s.do(t, "GET", "/nonsense/1", "")
	s.do(t, "GET", "/nonsense/2", "")
	for series, want := range map[string]float64{
		`refundd_http_requests_total class=2xx code=ok layer=agent_loop method=POST route=/v1/refunds`:                  1,
		`refundd_http_requests_total class=4xx code=idempotency_key_required layer=other method=POST route=/v1/refunds`: 1,
		`refundd_http_requests_total class=4xx code=not_found layer=none method=other route=unknown`:                    2,
		`refundd_refunds_total code=ok status=processed`:                                                                1,
		`refundd_refunds_total code=ok status=already_processed`:                                                        1,
		`refundd_refunds_total code=idempotency_key_required status=refused`:                                            1,
		`refundd_refund_attempts_total attempt=3 layer=agent_loop`:                                                      1,
		`refundd_refund_attempts_total attempt=none layer=none`:                                                         1,
	} {
		if got := s.counter(t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

// counter is a counter's value, by its name and labels.
func (s *service) counter(t *testing.T, series string) float64 {
	t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			if name == series {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestAttempts_AreLabelsThatDecideNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		layer, number string
		want          attempt
		label         string
		ordinal       string
	}{
		{"", "", attempt{}, "none", "none"},
		{"business", "1", attempt{"business", 1}, "business", "1"},
		{"Business", "0", attempt{"other", 0}, "other", "none"},
		{"tool_transport", "99999999999", attempt{"tool_transport", 0}, "tool_transport", "none"},
		{"model_transport", "9", attempt{"model_transport", 9}, "model_transport", "9"},
		{"agent_loop", "123", attempt{"agent_loop", 123}, "agent_loop", "10_or_more"},
		{"\x00", "x", attempt{"other", 0}, "other", "none"},
	} {
		h := http.Header{}
		h.Set(layerHeader, c.layer)
		h.Set(numberHeader, c.number)
		if got := readAttempt(h); got != c.want || got.label() != c.label || got.ordinal() != c.ordinal {
			t.Errorf("%q %q: %+v %s %s", c.layer, c.number, got, got.label(), got.ordinal())
		}
	}
}

func TestDeadline_PassesWithoutAnUntruth(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
	s.registered(t, "A")
	tx, err := s.db.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM orders FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	const body = `{"operation_id":"k","order_id":"A","amount_cents":1}`
	a := s.do(t, "POST", "/v1/refunds", body)
	if a.text("code") != "deadline_exceeded" || a.text("money_moved") != "unknown" {
		t.Errorf("while the order is locked: %d %s", a.status, a.raw)
	}
	if line := s.log.line(t, a.header.Get("Request-Id")); !strings.Contains(line, `"cause":"deadline exceeded"`) {
		t.Errorf("log event: %s", line)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := s.do(t, "POST", "/v1/refunds", body); a.status != 201 && a.status != 200 {
		t.Errorf("again: %d %s", a.status, a.raw)
	}
}

func TestConnection_ThatClosesEndsItsRequest(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A")
	tx, err := s.db.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT FROM orders FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"operation_id":"left","order_id":"A","amount_cents":1}`
	fmt.Fprintf(conn, "POST /v1/refunds HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", s.secret, len(body), body)
	time.Sleep(100 * time.Millisecond) // let it reach the engine; closing earlier is no other case
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for s.counter(t, `refundd_refunds_total code=deadline_exceeded status=refused`) == 0 {
		time.Sleep(5 * time.Millisecond) // until it is counted, or the test's time is over
	}
	if line := s.log.line(t, `"operation_id":"left"`); !strings.Contains(line, `"client_gone":true`) {
		t.Errorf("log event: %s", line)
	}
}

func TestServer_AnswersABodyThatStalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	stalling := NewServer("", s.handler, Timeouts{Read: 200 * time.Millisecond}, slog.New(slog.DiscardHandler))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = stalling.Serve(listener) })
	defer running.Wait()
	defer func() { _ = stalling.Close() }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/refunds HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100\r\n\r\n{", s.secret)
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 504") ||
		!strings.Contains(string(answer), `"money_moved":"unknown"`) {
		t.Errorf("answer: %v %s", err, answer)
	}
}

// unreachable is a pool of a database that is not there; its password is a canary.
func unreachable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://canary:canary@127.0.0.1:1/canary?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestDatabase_UnavailableIsRetryableAndUnknown(t *testing.T) {
	t.Parallel()
	pool := unreachable(t)
	s := start(t, func(c *Config) {
		engine, err := operations.New(operations.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = engine.Run(ctx) })
		t.Cleanup(func() { stop(); running.Wait() })
		c.Engine, c.Ready = engine, pool.Ping
	})
	for _, c := range []struct{ method, path, body, moved string }{
		{"POST", "/v1/refunds", `{"operation_id":"k","order_id":"A","amount_cents":1}`, "unknown"},
		{"GET", "/v1/refunds/k", "", "unknown"},
		{"GET", "/v1/refunds/k/events", "", "unknown"},
		{"GET", "/v1/refunds", "", "no"},
		{"PUT", "/v1/orders/A", `{}`, "no"},
		{"GET", "/v1/orders/A", "", "no"},
		{"GET", "/v1/orders?customer_id=1", "", "no"},
		{"PUT", "/v1/authorizations/k", `{"case_id":"c","order_id":"A","amount_cents":1,"approved_by":"ada"}`,
			"unknown"},
		{"POST", "/v1/authorizations/k/revoke", "", "unknown"},
		{"POST", "/v1/refunds/k/reconcile", "", "unknown"},
		{"POST", "/v1/refunds/k/resolve", `{"outcome":"failed","evidence":"e"}`, "unknown"},
		{"GET", "/v1/authorizations?case_id=1", "", "no"},
		{"GET", "/readyz", "", "no"},
	} {
		a := s.do(t, c.method, c.path, c.body)
		if a.text("code") != "database_unavailable" || a.text("money_moved") != c.moved {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.raw)
		}
		if line := s.log.line(t, a.header.Get("Request-Id")); strings.Contains(a.raw+line, "canary") ||
			!strings.Contains(line, `"cause":"`) {
			t.Errorf("%s %s: %s", c.method, c.path, line)
		}
	}
	if a := s.do(t, "GET", "/healthz", ""); a.status != 200 {
		t.Errorf("healthz: %d %s", a.status, a.raw)
	}
}

// What the alerts on an exhausted Postgres go by. A disk that is really full is in test/drill.
func TestDatabase_WhyItRefusedIsCounted(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"53100": "disk_full", "53300": "too_many_connections", "25006": "read_only", "55P03": "locked", "57P01": "other", "": "unreachable",
	} {
		cause := fmt.Errorf("claim keys: %w", &pgconn.PgError{Code: code})
		if code == "" {
			cause = fmt.Errorf("claim keys: %w", context.DeadlineExceeded)
		}
		if got := whyRefused(cause); got != want || !slices.Contains(refusals, got) {
			t.Errorf("%q is %q, want %q", code, got, want)
		}
	}
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	m.refused(&problem{Code: "database_unavailable", cause: &pgconn.PgError{Code: "53100"}})
	m.refused(&problem{Code: "internal", cause: &pgconn.PgError{Code: "53100"}})
	m.refused(nil)
	var full dto.Metric
	if err := m.database.WithLabelValues("disk_full").Write(&full); err != nil || full.GetCounter().GetValue() != 1 {
		t.Errorf("counted %v, %v", full.GetCounter().GetValue(), err)
	}
}

func TestNew_ReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := New(Config{RateLimit: -1, RequestTimeout: -1})
	for _, want := range []string{"engine", "keys", "ready", "timeout", "rate limit"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name the %s", err, want)
		}
	}
}

func TestAdmin_ShowsMetricsAndHealth(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	if _, err := NewAdmin(AdminConfig{}); err == nil {
		t.Error("an empty configuration is taken")
	}
	h, err := NewAdmin(AdminConfig{Gatherer: registry,
		Ready: func(context.Context) error { return errors.New("canary") }})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 503, "/v1/refunds": 404} {
		w := recorded(t, h, path)
		if w.Code != want || w.Header().Get("Request-Id") == "" || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func recorded(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}
