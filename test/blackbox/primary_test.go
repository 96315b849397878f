package blackbox

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/testdb"
)

// own is a service on a Postgres of its own, whose settings a test may change.
func own(t *testing.T, flags ...string) *harness.Service {
	t.Helper()
	s := &harness.Service{DB: testdb.NewIn(t, testdb.Start(t, embedpg.Options{}))}
	s.AddServer(t, flags...)
	return s
}

// system changes a setting of the whole server's, "" takes it back. Its processes have it soon after.
func system(t *testing.T, s *harness.Service, name, value string) {
	t.Helper()
	change := `ALTER SYSTEM RESET ` + name
	if value != "" {
		change = fmt.Sprintf(`ALTER SYSTEM SET %s = '%s'`, name, value)
	}
	exec(t, s.DB.URL, change)
	exec(t, s.DB.URL, `SELECT pg_reload_conf()`)
}

// ready waits until /readyz answers status.
func ready(t *testing.T, s *harness.Service, status int) {
	t.Helper()
	c := harness.Client{URL: s.Servers[0].URL, T: t}
	deadline := time.Now().Add(10 * time.Second)
	for {
		a := c.Get("/readyz")
		if a.Status == status {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("readyz answers %d for 10 s, want %d: %s", a.Status, status, a.Body)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestA70_AllSessionsAreKilledAtOnce_NobodyHearsOfIt(t *testing.T) {
	t.Parallel()
	s := harness.New(t)
	tenant := s.OpenTenant(t)
	const callers, rounds = 12, 4
	for i := range callers {
		tenant.Order(fmt.Sprintf("P%d", i), 1_000_000)
	}
	stop := make(chan struct{})
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			order := fmt.Sprintf("P%d", i)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("K-%d-%d", i, n)
				if a := tenant.Client().Refund(key, order, 1); a.Status != http.StatusCreated {
					t.Errorf("refund %s: %d %s", key, a.Status, a.Body)
				}
				if a := tenant.Client().Get(harness.RefundPath(key)); a.Status != http.StatusOK {
					t.Errorf("GET %s: %d %s", key, a.Status, a.Body)
				}
			}
		})
	}
	for range rounds {
		time.Sleep(500 * time.Millisecond)
		exec(t, s.DB.URL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
			AND pid <> pg_backend_pid()`)
	}
	close(stop)
	calls.Wait()
	s.DB.Owner.Reset()
	s.Audit(t)
}

func TestA70_ColumnsOfAnotherType_AreReadAfresh(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := &harness.Service{DB: testdb.New(t)}
			s.DB.ServiceURL += "&default_query_exec_mode=" + mode
			s.AddServer(t)
			tenant := s.OpenTenant(t)
			tenant.Order("P", 10000)
			want(t, tenant.Client().Refund("K", "P", 1), "processed")
			want(t, tenant.Client().Refund("K", "P", 1), "already_processed")
			time.Sleep(1100 * time.Millisecond) // so that sessions are older than what changes
			tenant.Exec(`ALTER TABLE refund_operations ALTER reason TYPE varchar(300), ALTER attempts TYPE bigint`)
			tenant.Exec(`ALTER TABLE orders ALTER currency TYPE varchar(3), ALTER provider TYPE varchar(32)`)
			tenant.Exec(`ALTER TABLE api_keys ALTER created_at TYPE timestamptz(3), ALTER key_id TYPE varchar(300)`)
			for i := range 3 {
				want(t, tenant.Client().Refund("K", "P", 1), "already_processed")
				want(t, tenant.Client().Refund(fmt.Sprintf("L%d", i), "P", 1), "processed")
				if a := tenant.Client().Get("/v1/orders/P"); a.Status != http.StatusOK {
					t.Errorf("GET order: %d %s", a.Status, a.Body)
				}
			}
		})
	}
}

func TestA71_NotReadyWhileAWriteCouldNotSucceed(t *testing.T) {
	t.Parallel()
	s := harness.New(t)
	ready(t, s, http.StatusOK)
	for _, c := range []struct{ name, do, undo string }{
		{"table gone", `ALTER TABLE ledger_transfers RENAME TO gone`, `ALTER TABLE gone RENAME TO ledger_transfers`},
		{"column gone", `ALTER TABLE refund_operations RENAME state TO gone`,
			`ALTER TABLE refund_operations RENAME gone TO state`},
		{"older schema", `UPDATE schema_migrations SET version = version - 1`,
			`UPDATE schema_migrations SET version = version + 1`},
		{"no schema", `ALTER TABLE schema_migrations RENAME TO gone`, `ALTER TABLE gone RENAME TO schema_migrations`},
		{"no debit", `REVOKE UPDATE (refunded_cents) ON orders FROM refundd_service`,
			`GRANT UPDATE (refunded_cents) ON orders TO refundd_service`},
		{"no claim", `REVOKE INSERT ON refund_operations FROM refundd_service`,
			`GRANT INSERT ON refund_operations TO refundd_service`},
		{"no function", `ALTER FUNCTION claim_refunds RENAME TO gone`, `ALTER FUNCTION gone RENAME TO claim_refunds`},
		{"no function of one", `ALTER FUNCTION claim_refund RENAME TO gone`,
			`ALTER FUNCTION gone RENAME TO claim_refund`},
		{"no keys", `REVOKE SELECT ON api_keys FROM refundd_service`, `GRANT SELECT ON api_keys TO refundd_service`},
	} {
		exec(t, s.DB.URL, c.do)
		ready(t, s, http.StatusServiceUnavailable)
		exec(t, s.DB.URL, c.undo)
		ready(t, s, http.StatusOK)
	}
}

func TestA70_A71_AServerThatWasMadeReadOnly_IsServedAgainWhenItIsNot(t *testing.T) {
	t.Parallel()
	s := own(t)
	tenant := s.OpenTenant(t)
	tenant.Order("P", 10000)
	want(t, tenant.Client().Refund("K", "P", 100), "processed")
	for i := range 2 {
		system(t, s, "default_transaction_read_only", "on")
		ready(t, s, http.StatusServiceUnavailable)
		key := fmt.Sprintf("L%d", i)
		want(t, tenant.Client().Refund(key, "P", 100), "database_unavailable")
		want(t, tenant.Client().Get(harness.RefundPath("K")), "database_unavailable")
		system(t, s, "default_transaction_read_only", "")
		ready(t, s, http.StatusOK)
		want(t, tenant.Client().Refund(key, "P", 100), "processed")
		want(t, tenant.Client().Refund("K", "P", 100), "already_processed")
	}
	wantMoved(t, tenant, "P", 300)
}

func TestA84_NoStandbyAnswers_NothingIsReportedAsDone(t *testing.T) {
	t.Parallel()
	s := own(t, "--pool-size", "32") // of which one tenant's locked orders may hold several connections
	tenant := s.OpenTenant(t)
	keys := []string{"cancelled", "given-up"}
	for _, key := range keys {
		tenant.Order(key, 10000)
	}
	// Two refunds are on their way when the standbys go: their COMMITs wait in vain.
	release := s.Hold(t, `SELECT FROM orders FOR UPDATE`)
	answers := make([]harness.Answer, len(keys))
	var calls sync.WaitGroup
	for i, key := range keys {
		calls.Go(func() { answers[i] = tenant.Client().Refund(key, key, 100) })
	}
	const waiting = `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'`
	until(t, "both wait", func() bool { return count(t, s, `SELECT count(*) FROM (`+waiting+`) w`) == 2 })
	exec(t, s.DB.URL, `CREATE TABLE claimers AS `+waiting)
	system(t, s, "synchronous_standby_names", "nobody")
	until(t, "commits wait for the standbys", func() bool { return commitWaits(s) })
	release()
	// Somebody's cancel of one makes its COMMIT a success, with a warning. Of the other it is our own, when we give up.
	const stuck = `FROM pg_stat_activity JOIN claimers USING (pid) WHERE wait_event = 'SyncRep'`
	until(t, "both commits wait", func() bool { return count(t, s, `SELECT count(*) `+stuck) == 2 })
	count(t, s, `SELECT pg_cancel_backend(min(pid))::int `+stuck)
	calls.Wait()
	for i, key := range keys {
		want(t, answers[i], "database_unavailable")
		until(t, "it is committed on this server alone", func() bool { return tenant.Movements(key) == 1 })
	}
	together(2*len(keys), func(i int) {
		if key := keys[i/2]; i%2 == 0 {
			want(t, tenant.Client().Get(harness.RefundPath(key)), "database_unavailable")
		} else {
			want(t, tenant.Client().Refund(key, key, 100), "database_unavailable")
		}
	})
	ready(t, s, http.StatusServiceUnavailable)

	system(t, s, "synchronous_standby_names", "")
	ready(t, s, http.StatusOK)
	for _, key := range keys {
		want(t, tenant.Client().Refund(key, key, 100), "already_processed")
		wantMoved(t, tenant, key, 100)
	}
}

// commitWaits reports whether a commit takes longer than any other one, as it does once the checkpointer knows of the
// standbys.
func commitWaits(s *harness.Service) bool {
	// the refunds wait for their locks for 3 s
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	_, err := s.DB.Owner.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', true),
		pg_logical_emit_message(true, 'test', '')`)
	return err != nil
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for 20 s until %s", what)
		}
	}
}

func count(t *testing.T, s *harness.Service, sql string) (n int64) {
	t.Helper()
	if err := s.DB.Owner.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}
