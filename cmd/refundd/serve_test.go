package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"refundd/test/testdb"
)

// answer is what came back for one request; status 0 tells that nothing did.
type answer struct {
	status int
	body   string
}

// caller speaks to a server with a key.
type caller struct{ url, key string }

func (c caller) call(t *testing.T, method, path, body string) answer {
	t.Helper()
	a, err := c.try(context.WithoutCancel(t.Context()), method, path, body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return a
}

func (c caller) try(ctx context.Context, method, path, body string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(text)}, err
}

// expect calls and checks the status.
func (c caller) expect(t *testing.T, status int, method, path, body string) answer {
	t.Helper()
	a := c.call(t, method, path, body)
	if a.status != status {
		t.Errorf("%s %s answers %d %s, want %d", method, path, a.status, a.body, status)
	}
	return a
}

// served is a refundd serve of a test's own, with a tenant and a key.
type served struct {
	*program
	caller
	admin caller
}

func serve(t *testing.T, db *testdb.DB, args ...string) served {
	t.Helper()
	succeed(t, db.OperatorURL, "tenants", "create", "--tenant", "shop")
	key := succeed(t, db.OperatorURL, "keys", "create", "--tenant", "shop", "--scopes",
		"orders:write,authorizations:write,refunds:write,read")
	p := start(t, []string{"DATABASE_URL=" + db.ServiceURL},
		append([]string{"serve", "--addr", "127.0.0.1:0", "--drain-delay", "0s"}, args...)...)
	var line struct {
		Addr  string `json:"addr"`
		Admin string `json:"admin_addr"`
	}
	if err := json.Unmarshal([]byte(p.logged(t, "serving")), &line); err != nil {
		t.Fatal(err)
	}
	return served{p, caller{"http://" + line.Addr, key}, caller{"http://" + line.Admin, ""}}
}

func TestServe_AnswersWhatIsInFlightAtSIGTERM(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := serve(t, db)
	s.expect(t, 200, "GET", "/readyz", "")
	s.expect(t, 201, "PUT", "/v1/orders/A-1", `{"currency":"EUR","captured_cents":5000}`)
	s.expect(t, 201, "PUT", "/v1/authorizations/op-1",
		`{"case_id":"c","order_id":"A-1","amount_cents":5000,"approved_by":"ann"}`)
	if metrics := s.admin.expect(t, 200, "GET", "/metrics", ""); !strings.Contains(metrics.body,
		"\nrefundd_pool_max_connections 16\n") ||
		!strings.Contains(metrics.body, "\ngo_goroutines ") || !strings.Contains(metrics.body, "\nprocess_open_fds ") {
		t.Errorf("metrics lack the pool, Go or the process:\n%s", metrics.body)
	}

	release := lockOrder(t, db, "A-1")
	refund := make(chan answer)
	go func() {
		refund <- s.call(t, "POST", "/v1/refunds", `{"operation_id":"op-1","order_id":"A-1","amount_cents":5000}`)
	}()
	awaitLockWait(t, db)
	s.signal(t, syscall.SIGTERM)
	s.logged(t, "stopping")
	s.admin.expect(t, 503, "GET", "/readyz", "")
	if a, err := s.try(t.Context(), "GET", "/healthz", ""); err == nil {
		t.Errorf("a new connection is answered %d after SIGTERM", a.status)
	}
	release()
	if a := <-refund; a.status != 201 || !strings.Contains(a.body, `"status":"processed"`) {
		t.Errorf("the refund in flight is answered %d %s", a.status, a.body)
	}
	if code := s.wait(t, 10*time.Second); code != 0 {
		t.Errorf("exits %d", code)
	}
	if out := s.stdout.String(); out != "" {
		t.Errorf("serve writes to stdout: %q", out)
	}
}

// lockOrder holds the order's row as another transaction would, until released.
func lockOrder(t *testing.T, db *testdb.DB, orderID string) (release func()) {
	t.Helper()
	tx, err := db.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), `SELECT FROM orders WHERE order_id = $1 FOR NO KEY UPDATE`, orderID); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// awaitLockWait returns once a session of this database waits for a lock.
func awaitLockWait(t *testing.T, db *testdb.DB) {
	t.Helper()
	eventually(t, "a session that waits for the lock", func() bool {
		var waits bool
		err := db.Owner.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		return waits
	})
}

func TestServe_StopsInBoundedTimeWhateverWaits(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := serve(t, db, "--request-timeout", "2s")
	s.expect(t, 201, "PUT", "/v1/orders/A-1", `{"currency":"EUR","captured_cents":5000}`)
	s.expect(t, 201, "PUT", "/v1/authorizations/op-1",
		`{"case_id":"c","order_id":"A-1","amount_cents":5000,"approved_by":"ann"}`)
	lockOrder(t, db, "A-1")
	refund := make(chan answer)
	go func() {
		refund <- s.call(t, "POST", "/v1/refunds", `{"operation_id":"op-1","order_id":"A-1","amount_cents":5000}`)
	}()
	awaitLockWait(t, db)
	s.signal(t, syscall.SIGTERM)
	if a := <-refund; a.status != 504 || !strings.Contains(a.body, `"money_moved":"unknown"`) {
		t.Errorf("a refund past its deadline is answered %d %s", a.status, a.body)
	}
	if code := s.wait(t, 20*time.Second); code != 0 {
		t.Errorf("exits %d", code)
	}
}

// Behind a pooler in transaction mode that keeps no prepared statements, the URL names another mode.
func TestServe_WorksInEveryExecModeThatTheURLNames(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			db.ServiceURL = edit(t, db.ServiceURL, func(u *url.URL) {
				query := u.Query()
				query.Set("default_query_exec_mode", mode)
				u.RawQuery = query.Encode()
			})
			s := serve(t, db)
			s.expect(t, 201, "PUT", "/v1/orders/A-1",
				`{"currency":"EUR","captured_cents":5000,"customer":{"email":"a@b.c"}}`)
			s.expect(t, 201, "PUT", "/v1/authorizations/op-1",
				`{"case_id":"c","order_id":"A-1","amount_cents":4000,"approved_by":"ann","metadata":{"a":"b"}}`)
			s.expect(t, 201, "PUT", "/v1/authorizations/op-2",
				`{"case_id":"c","order_id":"A-1","amount_cents":4000,"approved_by":"ann","expires_at":"2999-01-01T00:00:00Z"}`)
			s.expect(t, 201, "POST", "/v1/refunds",
				`{"operation_id":"op-1","order_id":"A-1","amount_cents":4000,"metadata":{"a":"b"}}`)
			s.expect(t, 200, "POST", "/v1/refunds", `{"operation_id":"op-1","order_id":"A-1","amount_cents":4000}`)
			s.expect(t, 422, "POST", "/v1/refunds", `{"operation_id":"op-2","order_id":"A-1","amount_cents":4000}`)
			s.expect(t, 200, "POST", "/v1/authorizations/op-2/revoke", `{"reason":"late"}`)
			s.expect(t, 200, "GET", "/v1/refunds?order_id=A-1&state=succeeded", "")
			s.expect(t, 200, "GET", "/v1/refunds/op-1/events", "")
			s.expect(t, 200, "GET", "/v1/authorizations?case_id=c", "")
			s.expect(t, 200, "GET", "/v1/orders?customer_email=A@B.c", "")
			succeed(t, db.ServiceURL, "audit")
			succeed(t, db.ServiceURL, "show", "op-1")
			succeed(t, db.OperatorURL, "keys", "list")
		})
	}
}
