package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
	"refundd/test/testdb"
)

const (
	insufficientPrivilege = "42501"
	restrictViolation     = "23001" // what the triggers raise
	generatedAlways       = "428C9"
)

// letIn are the rows of those who may call.
const letIn = `
	INSERT INTO tenants (tenant_id) VALUES ('acme'), ('other');
	INSERT INTO api_keys (key_id, tenant_id, secret_hash, scopes)
		VALUES ('k', 'acme', decode(repeat('ab', 32), 'hex'), '{read}');`

// books are rows of every other table, in every state that a refund without a provider and one with a provider may
// have.
const books = `
	INSERT INTO orders (tenant_id, order_id, currency, captured_cents) VALUES ('acme', 'A-1', 'USD', 10000),
		('other', 'A-1', 'USD', 1);
	INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
	VALUES ('acme', 'P-1', 'USD', 10000, 'simulator', 'pay_1');
	INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency, approved_by)
	VALUES ('acme', 'op-1', 'C-1', 'A-1', 4999, 'USD', 'ann');
	INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
		state, settled_at)
	VALUES ('acme', 'op-1', repeat('a', 64), gen_random_uuid(), 'A-1', 4999, 'USD', 'succeeded', now()),
	       ('acme', 'op-2', repeat('a', 64), NULL, 'A-1', 1, 'USD', 'revoked', now());
	INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
		state,
	                               provider, provider_key, provider_key_expires_at, attempts)
	VALUES ('acme', 'op-3', repeat('a', 64), gen_random_uuid(), 'P-1', 1, 'USD', 'reserved', 'simulator', 'acme:op-3',
		now(), 1);
	UPDATE orders SET refunded_cents = 4999 WHERE (tenant_id, order_id) = ('acme', 'A-1');
	INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
		currency)
	VALUES ('acme', 'op-1', 1, 'refund', 'merchant', 'customer', 4999, 'USD');
	INSERT INTO operation_events (tenant_id, operation_id, kind) VALUES ('acme', 'op-3', 'reserved');
	INSERT INTO reconciliation_runs (run_id) VALUES (gen_random_uuid());`

func withBooks(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	exec(t, db.Owner, letIn+books)
	return db
}

// attempt runs a statement, takes it back, and returns its SQLSTATE and constraint, both empty where it was accepted.
func attempt(t *testing.T, pool *pgxpool.Pool, sql string) (state, constraint string) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), sql)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code, pgErr.ConstraintName
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return "", ""
}

func tables(t *testing.T, db *testdb.DB) []string {
	t.Helper()
	rows, err := db.Owner.Query(t.Context(), `SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 19 {
		t.Errorf("tables %v", names)
	}
	return names
}

func TestServiceRole_DeletesNothing(t *testing.T) {
	t.Parallel()
	db := withBooks(t)
	for _, table := range tables(t, db) {
		for _, sql := range []string{
			"DELETE FROM " + table, "TRUNCATE " + table, "TRUNCATE " + table + " CASCADE", "DROP TABLE " + table,
			"ALTER TABLE " + table + " DISABLE TRIGGER ALL",
		} {
			if state, _ := attempt(t, db.Pool, sql); state != insufficientPrivilege {
				t.Errorf("%s: SQLSTATE %q", sql, state)
			}
		}
	}
	for _, sql := range []string{
		"SET session_replication_role = replica", "INSERT INTO schema_migrations VALUES (9, false)",
		"CREATE OR REPLACE FUNCTION refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
	} {
		if state, _ := attempt(t, db.Pool, sql); state != insufficientPrivilege {
			t.Errorf("%s: SQLSTATE %q", sql, state)
		}
	}
}

// What names a refund and its money is fixed for the service: only states and what belongs to them may change.
func TestServiceRole_UpdatesOnlyWhatMayChange(t *testing.T) {
	t.Parallel()
	db := withBooks(t)
	may := map[string][]string{
		"api_keys": {"last_used_at"},
		"orders": {"captured_cents", "refunded_cents", "over_refunded_cents", "customer_id", "customer_email",
			"customer_name"},
		"refund_operations": {"state", "provider_refund_id", "provider_key_expires_at", "attempts", "not_sent",
			"last_send_ended",
			"doubted_decline", "lease_until", "next_check_at", "failure_code", "settled_at", "contradicted_at", "look_first"},
		"escalations":     {"state", "operation_id", "owner", "closed_at", "closed_by", "decided_by", "decision_note"},
		"webhook_streams": {"last_position"},
		"webhook_events":  {"position"},
		"webhook_endpoints": {"secret", "old_secret", "old_secret_until", "disabled_at", "disabled_because",
			"deleted_at", "position",
			"due_at", "failures", "failing_since", "paused_until", "lease", "lease_until"},
		"webhook_deliveries": {"state", "attempts", "first_attempt_at", "last_attempt_at", "last_result", "last_status",
			"next_attempt_at", "ended_at"},
		"reconciliation_runs": {"run_id", "started_at", "finished_at", "dry_run", "claimed", "succeeded", "failed",
			"pending", "resent",
			"needs_attention", "still_unknown", "oldest_unknown_seconds", "errors", "duration_ms", "error"},
	}
	rows, err := db.Owner.Query(t.Context(), `
		SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'public'`)
	if err != nil {
		t.Fatal(err)
	}
	var table, column string
	var all [][2]string
	if _, err := pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		all = append(all, [2]string{table, column})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		sql := fmt.Sprintf("UPDATE %s SET %s = %[2]s", c[0], c[1])
		state, _ := attempt(t, db.Pool, sql)
		if allowed := slices.Contains(may[c[0]], c[1]); allowed != (state == "") || !allowed &&
			state != insufficientPrivilege && state != generatedAlways {
			t.Errorf("%s: SQLSTATE %q, want it allowed: %t", sql, state, allowed)
		}
	}
}

func TestServiceRole_WorksAsTheService(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	exec(t, db.Owner, letIn)
	for _, sql := range []string{books, `SELECT FROM orders FOR NO KEY UPDATE`,
		`SELECT FROM refund_operations FOR NO KEY UPDATE SKIP LOCKED`} {
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Errorf("%.60s: %v", sql, err)
		}
	}
}

func TestHistory_IsPermanentForTheOwnerToo(t *testing.T) {
	t.Parallel()
	db := withBooks(t)
	for _, sql := range []string{
		`UPDATE ledger_transfers SET amount_cents = 1`,
		`UPDATE ledger_transfers SET amount_cents = 1 WHERE false`,
		`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
			currency)
		 VALUES ('acme', 'op-1', 1, 'refund', 'merchant', 'customer', 1, 'USD')
		 ON CONFLICT (tenant_id, operation_id, seq) DO UPDATE SET amount_cents = 1`,
		`DELETE FROM ledger_transfers`,
		`TRUNCATE ledger_transfers`,
		`UPDATE operation_events SET kind = 'x'`,
		`DELETE FROM operation_events`,
		`TRUNCATE operation_events`,
		`DELETE FROM refund_operations`,
		`TRUNCATE refund_operations`,
		`TRUNCATE orders CASCADE`,
		`TRUNCATE tenants CASCADE`,
	} {
		if state, _ := attempt(t, db.Owner, sql); state != restrictViolation {
			t.Errorf("%s: SQLSTATE %q", sql, state)
		}
	}
}

// Tests and operators move time this way; no constraint relates these columns.
func TestOwner_MovesTime(t *testing.T) {
	t.Parallel()
	db := withBooks(t)
	for _, column := range []string{"lease_until", "next_check_at", "created_at", "provider_key_expires_at"} {
		for _, value := range []string{"now() - interval '40 days'", "now() + interval '40 days'", "'-infinity'",
			"'infinity'"} {
			sql := fmt.Sprintf("UPDATE refund_operations SET %s = %s", column, value)
			if state, constraint := attempt(t, db.Owner, sql); state != "" {
				t.Errorf("%s: SQLSTATE %s, constraint %s", sql, state, constraint)
			}
		}
	}
}

// Who lets callers in moves no money, and the other way round.
func TestRoles_HaveTheRightsThatTheyUseAndNoOther(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	rows, err := db.Owner.Query(t.Context(), `
		SELECT grantee || ' ' || privilege_type || ' ' || table_name FROM information_schema.table_privileges
		WHERE grantee LIKE 'refundd\_%' AND table_schema = 'public' AND privilege_type <> 'SELECT'
		UNION ALL
		SELECT grantee || ' ' || privilege_type || ' ' || table_name || '.' || column_name
			FROM information_schema.column_privileges c
		WHERE grantee LIKE 'refundd\_%' AND table_schema = 'public' AND table_name IN ('tenants', 'api_keys')
			AND privilege_type = 'UPDATE'
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"refundd_operator INSERT api_keys", "refundd_operator INSERT audits", "refundd_service INSERT audits", "refundd_operator INSERT restores", "refundd_operator INSERT tenants",
		"refundd_operator UPDATE api_keys.expires_at", "refundd_operator UPDATE api_keys.revoked_at",
		"refundd_service INSERT escalations", "refundd_service INSERT ledger_transfers", "refundd_service INSERT operation_events", "refundd_service INSERT orders",
		"refundd_service INSERT reconciliation_runs", "refundd_service INSERT refund_authorizations",
		"refundd_service INSERT refund_operations", "refundd_service INSERT refund_requests", "refundd_service INSERT restores",
		"refundd_service INSERT webhook_deliveries", "refundd_service INSERT webhook_endpoints", "refundd_service INSERT webhook_events",
		"refundd_service INSERT webhook_streams",
		"refundd_service UPDATE api_keys.last_used_at", "refundd_service UPDATE reconciliation_runs",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the roles have\n%q\nwant\n%q", got, want)
	}
}

// A login has the settings of our transactions for itself, so that they need not set them: but for the limits, which
// are longer for whoever else works as the service.
func TestMakeLogin_LeavesTransactionsLittleToSet(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	const changed = `SELECT name FROM pg_settings WHERE source = 'session' AND name NOT LIKE 'transaction\_%'
		ORDER BY 1`
	set := func(pool *pgxpool.Pool) (names []string) {
		if err := pgtx.Query(t.Context(), pool, func(rows pgx.Rows) (err error) {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		}, changed); err != nil {
			t.Error(err)
		}
		return names
	}
	want := []string{
		"idle_in_transaction_session_timeout", "lock_timeout", "plan_cache_mode", "statement_timeout", "synchronous_commit",
	}
	if diff := cmp.Diff(want, set(db.Pool)); diff != "" {
		t.Errorf("a transaction of the login's sets (-want +got):\n%s", diff)
	}
	if names := set(db.Owner); !slices.Contains(names, "search_path") || !slices.Contains(names, "plan_cache_mode") {
		t.Errorf("a transaction of anybody else's sets %q alone", names)
	}
}
