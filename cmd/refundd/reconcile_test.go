package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"refundd/provider/simulator"
	"refundd/test/testdb"
)

// simulated starts a provider that takes latency for each answer, and answers its URL.
func simulated(t *testing.T, latency time.Duration) caller {
	t.Helper()
	server, err := simulator.New(simulator.Options{Dir: t.TempDir(), Latency: latency})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(func() { web.Close(); _ = server.Close() })
	return caller{url: web.URL}
}

// expectSummary checks that a run printed one JSON object on one line, with those members in the contract's order.
func expectSummary(t *testing.T, stdout string, want map[string]int64) {
	t.Helper()
	var got map[string]int64
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("it prints %q (%v)", stdout, err)
	}
	members := []string{"claimed", "succeeded", "failed", "pending", "resent", "needs_attention", "still_unknown",
		"oldest_unknown_seconds", "errors", "duration_ms"}
	place := func(m string) int { return strings.Index(stdout, `"`+m+`"`) }
	if len(got) != len(members) || !slices.IsSortedFunc(members, func(a, b string) int { return place(a) - place(b) }) {
		t.Errorf("the members are %s", stdout)
	}
	for _, m := range members[:7] {
		if got[m] != want[m] {
			t.Errorf("%s is %d, want %d, in %s", m, got[m], want[m], stdout)
		}
	}
}

func TestReconcile_ExitsByWhatItFound(t *testing.T) {
	t.Parallel()
	db, provider := testdb.New(t), simulated(t, 0)
	env := []string{"DATABASE_URL=" + db.ServiceURL, "REFUNDD_SIMULATOR_URL=" + provider.url}
	reserve(t, db, 3)
	dry := command(t, env, "reconcile", "--dry-run")
	if dry.code != exitClean {
		t.Errorf("a dry run exits %d: %s", dry.code, dry.stderr)
	}
	expectSummary(t, dry.stdout, map[string]int64{"claimed": 3, "resent": 3, "still_unknown": 3})

	ran := command(t, env, "reconcile")
	if ran.code != exitClean || strings.Count(ran.stderr, `"msg":"operation reconciled"`) != 3 {
		t.Errorf("a run exits %d: %s", ran.code, ran.stderr)
	}
	expectSummary(t, ran.stdout, map[string]int64{"claimed": 3, "resent": 3, "succeeded": 3})

	older(t, db, "op-1", `state = 'pending', settled_at = NULL, created_at = now() - interval '15 days', next_check_at = '-infinity'`)
	provider.expect(t, 200, "POST", "/_faults", `{"mode":"lookup_down","message":"`+planted+`"}`)
	found := command(t, env, "reconcile")
	if found.code != exitFound || strings.Contains(found.stderr, planted) {
		t.Errorf("an escalation exits %d: %s", found.code, found.stderr)
	}
	expectSummary(t, found.stdout, map[string]int64{"claimed": 1, "needs_attention": 1})
	again := command(t, env, "reconcile")
	if again.code != exitClean {
		t.Errorf("the next run exits %d: %s", again.code, again.stderr)
	}
	expectSummary(t, again.stdout, nil)

	older(t, db, "op-2", `next_check_at = '-infinity'`)
	if _, err := db.Owner.Exec(t.Context(), `REVOKE UPDATE ON refund_operations FROM refundd_service`); err != nil {
		t.Fatal(err)
	}
	failed := command(t, env, "reconcile")
	if failed.code != exitFailed || !strings.Contains(failed.stderr, "\nrefundd: ") &&
		!strings.HasPrefix(failed.stderr, "refundd: ") {
		t.Errorf("a run that may not claim exits %d: %q", failed.code, failed.stderr)
	}
	nowhere := command(t, []string{"DATABASE_URL=postgres://u:" + planted + "@127.0.0.1:1/db"}, "reconcile")
	oneSentence(t, nowhere, exitFailed, "the connection was refused")
}

// older changes an operation as the owner.
func older(t *testing.T, db *testdb.DB, operation, change string) {
	t.Helper()
	if _, err := db.Owner.Exec(t.Context(), `UPDATE refund_operations SET `+change+` WHERE operation_id = $1`,
		operation); err != nil {
		t.Fatal(err)
	}
}

func TestReconcile_AtSIGTERM_FinishesWhatItHasInHand(t *testing.T) {
	t.Parallel()
	db, provider := testdb.New(t), simulated(t, 400*time.Millisecond)
	reserve(t, db, 20)
	p := start(t, []string{"DATABASE_URL=" + db.ServiceURL}, "reconcile", "--simulator-url", provider.url,
		"--concurrency",
		"4")
	eventually(t, "claims", func() bool { return attempted(t, db) == 4 })
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t, 20*time.Second); code != exitClean {
		t.Errorf("exits %d", code)
	}
	expectSummary(t, p.stdout.String(), map[string]int64{"claimed": 4, "resent": 4, "succeeded": 4})
	if n := attempted(t, db); n != 4 {
		t.Errorf("%d were claimed", n)
	}
}

// attempted counts the operations whose lease somebody took since they were reserved.
func attempted(t *testing.T, db *testdb.DB) (n int) {
	t.Helper()
	if err := db.Owner.QueryRow(t.Context(),
		`SELECT count(*) FROM refund_operations WHERE attempts > 1`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReconcile_Every_RunsUntilSIGTERM(t *testing.T) {
	t.Parallel()
	db, provider := testdb.New(t), simulated(t, 0)
	reserve(t, db, 2)
	p := start(t, []string{"DATABASE_URL=" + db.ServiceURL}, "reconcile", "--simulator-url", provider.url, "--every",
		"100ms", "--admin-addr", "127.0.0.1:0")
	var line struct {
		Admin string `json:"admin_addr"`
	}
	if err := json.Unmarshal([]byte(p.logged(t, "serving")), &line); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the metrics", func() bool {
		told := caller{url: "http://" + line.Admin}.call(t, "GET", "/metrics", "").body
		return strings.Contains(told,
			"\n"+`refundd_provider_calls_total{call="refund",provider="simulator",result="succeeded"} 2`+"\n")
	})
	eventually(t, "three runs", func() bool { return strings.Count(p.stdout.String(), "\n") >= 3 })
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t, 20*time.Second); code != exitClean {
		t.Errorf("exits %d", code)
	}
	first, _, _ := strings.Cut(p.stdout.String(), "\n")
	expectSummary(t, first+"\n", map[string]int64{"claimed": 2, "resent": 2, "succeeded": 2})
}

func TestServe_ReconcilesAndShowsIt(t *testing.T) {
	t.Parallel()
	db, provider := testdb.New(t), simulated(t, 0)
	s := serve(t, db, "--simulator-url", provider.url, "--reconcile-every", "100ms", "--backoff-min", "0s")
	s.expect(t, 201, "PUT", "/v1/orders/A-1",
		`{"currency":"EUR","captured_cents":5000,"provider":"simulator","provider_payment_ref":"pay-1"}`)
	s.expect(t, 201, "PUT", "/v1/authorizations/op-1",
		`{"case_id":"c","order_id":"A-1","amount_cents":5000,"approved_by":"ann"}`)
	provider.expect(t, 200, "POST", "/_faults", `{"mode":"drop_after","count":1}`)
	provider.expect(t, 200, "POST", "/_faults", `{"mode":"lookup_down"}`)
	s.expect(t, 202, "POST", "/v1/refunds", `{"operation_id":"op-1","order_id":"A-1","amount_cents":5000}`)
	eventually(t, "the reservation in the metrics", func() bool {
		return strings.Contains(s.admin.call(t, "GET", "/metrics", "").body,
			"\n"+`refundd_operations{state="reserved"} 1`+"\n")
	})
	provider.expect(t, 200, "DELETE", "/_faults", "")
	eventually(t, "the outcome", func() bool { return stateOf(t, db, "op-1") == "succeeded" })
	eventually(t, "the metrics", func() bool {
		told := s.admin.call(t, "GET", "/metrics", "").body
		return strings.Contains(told, "\n"+`refundd_operations{state="reserved"} 0`+"\n") &&
			strings.Contains(told, "\nrefundd_reconciliation_last_success_age_seconds ") &&
			strings.Contains(told, "\n"+`refundd_provider_calls_total{call="lookup",provider="simulator",result="succeeded"} `)
	})
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t, 20*time.Second); code != 0 {
		t.Errorf("exits %d", code)
	}
}

// A second attempt's process may reconcile while a server holds the first: the lease decides.
func TestReconcile_BesideAServerThatStillWaits_LooksLater(t *testing.T) {
	t.Parallel()
	db, provider := testdb.New(t), simulated(t, 0)
	s := serve(t, db, "--simulator-url", provider.url)
	s.expect(t, 201, "PUT", "/v1/orders/A-1",
		`{"currency":"EUR","captured_cents":5000,"provider":"simulator","provider_payment_ref":"pay-1"}`)
	s.expect(t, 201, "PUT", "/v1/authorizations/op-1",
		`{"case_id":"c","order_id":"A-1","amount_cents":5000,"approved_by":"ann"}`)
	provider.expect(t, 200, "POST", "/_faults", `{"mode":"hang","delay_ms":1500,"count":1}`)
	refund := make(chan answer)
	go func() {
		a, _ := s.try(context.WithoutCancel(t.Context()), "POST", "/v1/refunds",
			`{"operation_id":"op-1","order_id":"A-1","amount_cents":5000}`)
		refund <- a
	}()
	eventually(t, "the reservation", func() bool { return stateOf(t, db, "op-1") == "reserved" })
	ran := command(t, []string{"DATABASE_URL=" + db.ServiceURL}, "reconcile", "--simulator-url", provider.url)
	expectSummary(t, ran.stdout, nil)
	if a := <-refund; a.status != 201 {
		t.Errorf("the refund is answered %d %s", a.status, a.body)
	}
}

// reserve enters n reservations that are due, each on an order of its own, with nothing of them at the provider.
func reserve(t testing.TB, db *testdb.DB, n int) {
	t.Helper()
	_, err := db.Owner.Exec(t.Context(), fmt.Sprintf(`
		INSERT INTO tenants (tenant_id) VALUES ('acme');
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents, provider,
			provider_payment_ref)
		SELECT 'acme', 'o-' || i, 'EUR', 1000, 100, 'simulator', 'pay-' || i FROM generate_series(1, %[1]d) i;
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency,
			state,
			provider, provider_key, provider_key_expires_at, attempts, last_send_ended, created_at)
		SELECT 'acme', 'op-' || i, encode(sha256(('{"amount_cents": 100, "order_id": "o-' || i || '"}')::bytea), 'hex'),
			gen_random_uuid(),
			'o-' || i, 100, 'EUR', 'reserved', 'simulator', 'acme:op-' || i, now() + interval '20 hours', 1,
			now() - interval '1 hour', now() - interval '1 hour'
		FROM generate_series(1, %[1]d) i;
		INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
			currency)
		SELECT 'acme', 'op-' || i, 1, 'hold', 'merchant', 'in_transit', 100, 'EUR' FROM generate_series(1, %[1]d) i`,
		n))
	if err != nil {
		t.Fatal(err)
	}
}
