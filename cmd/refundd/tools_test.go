package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"refundd/access"
	"refundd/migrations"
	"refundd/test/testdb"
)

func TestMigrate_MovesTheSchemaUpAndDown(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	latest := fmt.Sprint(migrations.Latest())
	for _, step := range []struct{ act, version string }{
		{"version", "0"}, {"up", latest}, {"up", latest}, {"version", latest}, {"down", "0"}, {"up", latest},
	} {
		if got := succeed(t, db.URL, "migrate", step.act); got != step.version {
			t.Errorf("migrate %s prints %q, want %s", step.act, got, step.version)
		}
	}
}

func TestTenants_AreCreatedOnceAndListed(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := []string{"DATABASE_URL=" + db.OperatorURL}
	succeed(t, db.OperatorURL, "tenants", "create", "--tenant", "strict")
	succeed(t, db.OperatorURL, "tenants", "create", "--tenant", "open", "--require-authorization=false")
	oneSentence(t, command(t, env, "tenants", "create", "--tenant", "open"), exitFailed, "exists")
	oneSentence(t, command(t, env, "tenants", "create", "--tenant", "Not So"), exitUsage, "a-z, 0-9 and -")
	lines := strings.Split(succeed(t, db.OperatorURL, "tenants", "list"), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "open    false") ||
		!strings.HasPrefix(lines[2], "strict  true") {
		t.Errorf("tenants list prints\n%s", strings.Join(lines, "\n"))
	}
}

func TestKeys_LiveFromCreationToRevocation(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	env := []string{"DATABASE_URL=" + db.OperatorURL}
	succeed(t, db.OperatorURL, "tenants", "create", "--tenant", "shop")
	oneSentence(t, command(t, env, "keys", "create", "--tenant", "shop", "--scopes", "read,everything"), exitUsage,
		"refunds:write")
	oneSentence(t, command(t, env, "keys", "create", "--tenant", "nobody", "--scopes", "read"), exitFailed,
		"tenant not found")
	oneSentence(t, command(t, env, "keys", "create", "--tenant", "shop", "--scopes", "read", "--ttl=-1h"), exitUsage,
		"lifetime")
	oneSentence(t, command(t, env, "keys", "revoke", "key_none"), exitFailed, "key not found")

	made := command(t, env, "keys", "create", "--tenant", "shop", "--scopes", "read,refunds:write", "--ttl", "1h")
	first := strings.TrimSuffix(made.stdout, "\n")
	if strings.ContainsAny(first, " \n") || strings.Contains(made.stderr, first) {
		t.Fatalf("the secret is not alone: stdout %q, stderr %q", made.stdout, made.stderr)
	}
	who := authenticate(t, db, first)
	if who.TenantID != "shop" || !who.Allows(access.Read) || !who.Allows(access.RefundsWrite) ||
		who.Allows(access.OrdersWrite) {
		t.Errorf("the key is of %+v", who)
	}

	second := succeed(t, db.OperatorURL, "keys", "rotate", who.KeyID, "--grace", "1h")
	if heir := authenticate(t, db, second); heir.TenantID != "shop" || len(heir.Scopes) != 2 ||
		heir.KeyID == who.KeyID {
		t.Errorf("the rotated key is of %+v", heir)
	}
	authenticate(t, db, first) // within its grace

	third := succeed(t, db.OperatorURL, "keys", "rotate", authenticate(t, db, second).KeyID)
	refused(t, db, second)
	succeed(t, db.OperatorURL, "keys", "revoke", authenticate(t, db, third).KeyID)
	refused(t, db, third)

	list := succeed(t, db.OperatorURL, "keys", "list", "--tenant", "shop")
	if strings.Count(list, "\n") != 3 || strings.Count(list, "  revoked  ") != 2 ||
		strings.Count(list, "  active  ") != 1 {
		t.Errorf("keys list prints\n%s", list)
	}
	if all := succeed(t, db.OperatorURL, "keys", "list"); all != list {
		t.Errorf("keys list of all tenants prints\n%s", all)
	}
	for _, secret := range []string{first, second, third} {
		if strings.Contains(list, secret) {
			t.Error("keys list shows a secret")
		}
	}
}

// authenticate asks as a server that has just started does.
func authenticate(t *testing.T, db *testdb.DB, secret string) access.Principal {
	t.Helper()
	who, err := newKeys(t, db).Authenticate(t.Context(), secret)
	if err != nil {
		t.Fatalf("authenticate: %v", err)
	}
	return who
}

func refused(t *testing.T, db *testdb.DB, secret string) {
	t.Helper()
	if _, err := newKeys(t, db).Authenticate(t.Context(), secret); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("an ended key meets %v", err)
	}
}

func newKeys(t *testing.T, db *testdb.DB) *access.Keys {
	t.Helper()
	keys, err := access.New(access.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// books fills a database with two tenants: one operation executed, one withdrawn, one only approved.
func books(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	_, err := db.Owner.Exec(t.Context(), `
		INSERT INTO tenants (tenant_id) VALUES ('shop'), ('other');
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents) VALUES
			('shop', 'A-1001', 'USD', 10000, 4999), ('other', 'A-1001', 'USD', 10000, 0);
		INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency,
			approved_by,
			reason, expires_at) VALUES
			('shop', 'op-done', 'c-1', 'A-1001', 4999, 'USD', 'ann', E'red\x1b[31m', NULL),
			('shop', 'op-both', 'c-2', 'A-1001', 100, 'USD', 'ann', NULL, now() - interval '1 hour'),
			('other', 'op-both', 'c-3', 'A-1001', 100, 'USD', 'bob', NULL, NULL);
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency,
			state, created_at, settled_at) VALUES
			('shop', 'op-done', '7e15038037248f2d875a940c35361ea1827868c8eb1f6ee87b1ebb3a4e7991ea', gen_random_uuid(),
				'A-1001',
				4999, 'USD', 'succeeded',
			 '2026-01-02 03:04:05.6+02', '2026-01-02 03:04:05.6+02');
		INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
			currency, created_at) VALUES
			('shop', 'op-done', 1, 'refund', 'merchant', 'customer', 4999, 'USD', '2026-01-02 03:04:05.6+02');
		INSERT INTO operation_events (tenant_id, operation_id, kind, to_state, actor, created_at) VALUES
			('shop', 'op-done', 'noted', 'succeeded', 'ann', '2026-01-02 03:04:05.61+02')`)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestShow_TellsAllOfOneOperation(t *testing.T) {
	t.Parallel()
	db := books(t)
	env := []string{"DATABASE_URL=" + db.ServiceURL}
	done := succeed(t, db.ServiceURL, "show", "op-done")
	for _, says := range []string{
		"Operation op-done of tenant shop: succeeded, money moved: yes\n", "approved_by   ann", "captured_cents        10000",
		"state                    succeeded", "settled_at               2026-01-02T01:04:05.6Z",
		"2026-01-02T01:04:05.6Z   transfer refund  merchant to customer, 4999 USD\n", "2026-01-02T01:04:05.61Z  event noted",
	} {
		if !strings.Contains(done, says) {
			t.Errorf("show does not say %q:\n%s", says, done)
		}
	}
	if strings.Contains(done, "\x1b") {
		t.Error("show lets a reason colour the terminal")
	}
	if strings.Index(done, "transfer refund") > strings.Index(done, "event noted") {
		t.Errorf("the timeline is out of order:\n%s", done)
	}
	oneSentence(t, command(t, env, "show", "op-none"), exitFailed, "neither approved nor refunded")
	oneSentence(t, command(t, env, "show", "op-done", "--tenant", "other"), exitFailed, "neither approved nor refunded")
	oneSentence(t, command(t, env, "show", "op-both"), exitUsage, "several tenants (other, shop): add --tenant")
	if open := succeed(t, db.ServiceURL, "show", "op-both", "--tenant", "other"); !strings.Contains(open,
		"approved, not executed, money moved: no") {
		t.Errorf("show of an approval:\n%s", open)
	}
	if late := succeed(t, db.ServiceURL, "show", "op-both", "--tenant", "shop"); !strings.Contains(late, "expired") ||
		!strings.Contains(late, "empty: no money moved") {
		t.Errorf("show of an expired approval:\n%s", late)
	}
}

func TestShow_PrintsJSON(t *testing.T) {
	t.Parallel()
	var got struct {
		Authorization struct {
			CaseID string `json:"case_id"`
		}
		Operation struct{ State string }
		Order     struct {
			Captured int64 `json:"captured_cents"`
		}
		Transfers []struct{ Kind string }
		Events    []struct{ Actor string }
	}
	text := succeed(t, books(t).ServiceURL, "show", "op-done", "--json")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if fmt.Sprintf("%+v", got) != "{Authorization:{CaseID:c-1} Operation:{State:succeeded} Order:{Captured:10000} Transfers:[{Kind:refund}] Events:[{Actor:ann}]}" {
		t.Errorf("show --json tells %+v", got)
	}
}

func TestAudit_ExitsThreeWhenTheBooksLie(t *testing.T) {
	t.Parallel()
	db := books(t)
	if got := succeed(t, db.ServiceURL, "audit"); got != "1 operations, 1 transfers, 2 orders: the books balance" {
		t.Errorf("audit prints %q", got)
	}
	if _, err := db.Owner.Exec(t.Context(), `UPDATE orders SET refunded_cents = 7
		WHERE tenant_id = 'other'`); err != nil {
		t.Fatal(err)
	}
	env := []string{"DATABASE_URL=" + db.ServiceURL}
	lies := command(t, env, "audit")
	if lies.code != exitFound || lies.stderr != "" ||
		!strings.Contains(lies.stdout, "\nrefunded_cents_differs tenant=other order=A-1001 operation=-: ") {
		t.Errorf("audit of a lie: %+v", lies)
	}
	var report struct {
		LieCount int                 `json:"lie_count"`
		Lies     []map[string]string `json:"lies"`
	}
	lies = command(t, env, "audit", "--json")
	if err := json.Unmarshal([]byte(lies.stdout), &report); err != nil || lies.code != exitFound ||
		report.LieCount != 1 ||
		report.Lies[0]["tenant_id"] != "other" {
		t.Errorf("audit --json of a lie: %+v (%v)", lies, err)
	}
}
