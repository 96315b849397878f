package migrations_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// row is a legal row of a table, as SQL expressions by column; a case overrides some of them.
type row map[string]string

var legal = map[string]row{
	"tenants": {"tenant_id": "'new'"},
	"api_keys": {"key_id": "'k2'", "tenant_id": "'acme'", "secret_hash": "decode(repeat('cd', 32), 'hex')",
		"scopes": "'{read}'"},
	"orders": {"tenant_id": "'acme'", "order_id": "'A-2'", "currency": "'USD'", "captured_cents": "100"},
	"refund_authorizations": {"tenant_id": "'acme'", "operation_id": "'new'", "case_id": "'C-2'", "order_id": "'A-1'",
		"amount_cents": "1", "currency": "'USD'", "approved_by": "'ann'"},
	"refund_operations": {"tenant_id": "'acme'", "operation_id": "'new'", "fingerprint": "repeat('0', 64)",
		"refund_id": "gen_random_uuid()",
		"order_id":  "'A-1'", "amount_cents": "1", "currency": "'USD'", "state": "'succeeded'", "settled_at": "now()"},
	"ledger_transfers": {"tenant_id": "'acme'", "operation_id": "'new'", "seq": "1", "kind": "'refund'",
		"debit_account":  "'merchant'",
		"credit_account": "'customer'", "amount_cents": "1", "currency": "'USD'"},
	"operation_events":    {"tenant_id": "'acme'", "operation_id": "'new'", "kind": "'reserved'"},
	"reconciliation_runs": {"run_id": "gen_random_uuid()"},
	"restores":            {"look_until": "now()"},
}

// reserved turns the legal operation into one that a provider pays.
var reserved = row{"order_id": "'P-1'", "state": "'reserved'", "settled_at": "NULL", "provider": "'simulator'",
	"provider_key": "'acme:new'", "provider_key_expires_at": "now()", "attempts": "1"}

// over is a with b's values where both have one.
func over(a row, bs ...row) row {
	merged := maps.Clone(a)
	for _, b := range bs {
		maps.Copy(merged, b)
	}
	return merged
}

func insert(table string, r row) string {
	columns := slices.Sorted(maps.Keys(r))
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = r[c]
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
}

func TestLegalRows_AreAccepted(t *testing.T) {
	t.Parallel()
	db := withBooks(t)
	rows := map[string][]row{
		"tenants":  {{}, {"tenant_id": "repeat('a', 63)"}, {"tenant_id": "'-'"}},
		"api_keys": {{}, {"expires_at": "'infinity'", "revoked_at": "now()"}},
		"orders": {{}, {"captured_cents": "0"}, {"captured_cents": "9223372036854775807"},
			{"captured_cents": "9007199254740991", "refunded_cents": "9007199254740991"},
			{"order_id": `'#"\<&>~!'`}, {"order_id": "repeat('x', 255)"}, {"provider": "'stripe'",
				"provider_payment_ref": "'pi_1'"},
			{"currency": "'HRK'"}},
		"refund_authorizations": {{}, {"operation_id": "repeat('x', 255)"}, {"operation_id": "'...'"},
			{"amount_cents": "9007199254740991"},
			{"metadata": `'{}'`}, {"metadata": `'{"a": "x", "": "", "é": "\u0001"}'`}, {"expires_at": "'infinity'"}, {"expires_at": "'-infinity'"}},
		"refund_operations": {{}, {"tenant_id": "'other'", "operation_id": "'op-1'"},
			{"state": "'revoked'", "refund_id": "NULL"},
			reserved, over(reserved, row{"state": "'pending'"}), over(reserved,
				row{"state": "'needs_attention'", "failure_code": "'over_refund'"}),
			over(reserved, row{"state": "'needs_attention'", "doubted_decline": "'already_refunded'"}),
			over(reserved, row{"doubted_decline": "'already_refunded'", "attempts": "2", "not_sent": "2"}),
			over(reserved, row{"state": "'failed'", "failure_code": "'late_failure'", "settled_at": "now()"}),
			over(reserved, row{"state": "'succeeded'", "settled_at": "now()", "provider_refund_id": "'re_1'"})},
		"ledger_transfers": {{}, {"kind": "'hold'", "credit_account": "'in_transit'"},
			{"seq": "2", "kind": "'settle'", "debit_account": "'in_transit'"},
			{"seq": "2", "kind": "'release'", "debit_account": "'in_transit'", "credit_account": "'merchant'"},
			{"seq": "3", "kind": "'reversal'", "debit_account": "'customer'", "credit_account": "'merchant'"},
			{"seq": "3", "kind": "'hold'", "credit_account": "'in_transit'"}},
		"operation_events":    {{}},
		"reconciliation_runs": {{}},
		"restores":            {{}, {"look_until": "'infinity'"}},
	}
	for table, variants := range rows {
		for _, variant := range variants {
			sql := insert(table, over(legal[table], variant))
			if state, constraint := attempt(t, db.Owner, sql); state != "" {
				t.Errorf("%s: SQLSTATE %s, constraint %s", sql, state, constraint)
			}
		}
	}
}

func TestIllegalRows_AreRefused(t *testing.T) {
	t.Parallel()
	db := withBooks(t)
	for _, c := range []struct {
		table, constraint string
		overrides         []row
	}{
		{"tenants", "tenants_tenant_id_check",
			[]row{{"tenant_id": "''"}, {"tenant_id": "'Acme'"}, {"tenant_id": "'a b'"},
				{"tenant_id": `E'a\n'`}, {"tenant_id": "'é'"}, {"tenant_id": "repeat('a', 64)"}}},
		{"tenants", "tenants_pkey", []row{{"tenant_id": "'acme'"}}},

		{"api_keys", "api_keys_secret_hash_check",
			[]row{{"secret_hash": "''"}, {"secret_hash": "decode(repeat('cd', 31), 'hex')"}}},
		{"api_keys", "api_keys_secret_hash_key", []row{{"secret_hash": "decode(repeat('ab', 32), 'hex')"}}},
		{"api_keys", "api_keys_scopes_check",
			[]row{{"scopes": "'{}'"}, {"scopes": "'{admin}'"}, {"scopes": "'{read,Read}'"},
				{"scopes": "'{read,NULL}'"}}},
		{"api_keys", "api_keys_tenant_id_fkey", []row{{"tenant_id": "'nobody'"}}},

		{"orders", "orders_pkey", []row{{"order_id": "'A-1'"}}},
		{"orders", "orders_tenant_id_fkey", []row{{"tenant_id": "'nobody'"}}},
		{"orders", "order_id_check",
			[]row{{"order_id": "''"}, {"order_id": "'a b'"}, {"order_id": "'é'"}, {"order_id": `E'a\n'`},
				{"order_id": `E'\x7f'`}, {"order_id": "repeat('x', 256)"}}},
		{"orders", "currency_check",
			[]row{{"currency": "'usd'"}, {"currency": "'US'"}, {"currency": "'USDX'"}, {"currency": "''"}}},
		{"orders", "capture_minor_units_check", []row{{"captured_cents": "-1"}}},
		{"orders", "moment_check",
			[]row{{"created_at": "'infinity'"}, {"created_at": "'-infinity'"}, {"created_at": "'0044-03-15 BC'"},
				{"created_at": "'10000-01-01Z'"}}},
		{"orders", "orders_refunded_within_captured", []row{{"refunded_cents": "101"}, {"refunded_cents": "-1"}}},
		{"orders", "provider_name_check",
			[]row{{"provider": "'ledger'", "provider_payment_ref": "'x'"},
				{"provider": "''", "provider_payment_ref": "'x'"}}},
		{"orders", "orders_provider_has_payment", []row{{"provider": "'stripe'"}, {"provider_payment_ref": "'x'"}}},
		{"orders", "orders_provider_account_check", []row{{"provider_account": "'acct_1'"},
			{"provider": "'simulator'", "provider_payment_ref": "'x'", "provider_account": "'acct_1'"},
			{"provider": "'stripe'", "provider_payment_ref": "'x'", "provider_account": "'acct_'"}}},
		// One payment belongs to one order of one tenant.
		{"orders", "orders_provider_payment_key", []row{{"provider": "'simulator'", "provider_payment_ref": "'pay_1'"},
			{"tenant_id": "'other'", "provider": "'simulator'", "provider_payment_ref": "'pay_1'"}}},

		{"refund_authorizations", "refund_authorizations_pkey", []row{{"operation_id": "'op-1'"}}},
		{"refund_authorizations", "refund_authorizations_order_fkey",
			[]row{{"order_id": "'none'"}, {"tenant_id": "'other'", "order_id": "'P-1'"}}},
		{"refund_authorizations", "operation_id_check", []row{{"operation_id": "''"}, {"operation_id": "'.'"},
			{"operation_id": "'..'"}, {"operation_id": "'a b'"}, {"operation_id": "'a/b'"}, {"operation_id": `E'a\n'`},
			{"operation_id": "repeat('x', 256)"}}},
		{"refund_authorizations", "refund_authorizations_amount_check", []row{{"amount_cents": "0"}}},
		{"refund_authorizations", "minor_units_check",
			[]row{{"amount_cents": "-1"}, {"amount_cents": "9007199254740992"}}},
		{"refund_authorizations", "currency_check", []row{{"currency": "'usd'"}}},
		{"refund_authorizations", "metadata_check",
			[]row{{"metadata": "'[]'"}, {"metadata": "'null'"}, {"metadata": "'5'"}, {"metadata": `'{"a": 5}'`},
				{"metadata": `'{"a": "x", "b": null}'`}, {"metadata": `'{"a": {"b": "x"}}'`}, {"metadata": `'{"a": ["x"]}'`}, {"metadata": `'[{"a": "x"}]'`}}},
		{"refund_authorizations", "moment_check", []row{{"created_at": "'infinity'"}}},
		{"refund_authorizations", "moment_or_infinity_check",
			[]row{{"expires_at": "'0044-03-15 BC'"}, {"expires_at": "'10000-01-01Z'"}}},

		// One debit per operation.
		{"refund_operations", "refund_operations_pkey", []row{{"operation_id": "'op-1'"}, {"operation_id": "'op-2'"}}},
		{"refund_operations", "refund_operations_refund_id_key",
			[]row{{"refund_id": "(SELECT refund_id FROM refund_operations WHERE operation_id = 'op-1')"}}},
		{"refund_operations", "refund_operations_order_fkey",
			[]row{{"order_id": "'none'"}, {"tenant_id": "'other'", "order_id": "'P-1'"}}},
		{"refund_operations", "operation_id_check", []row{{"operation_id": "''"}, {"operation_id": "'.'"},
			{"operation_id": "'..'"}, {"operation_id": "'a b'"}, {"operation_id": "repeat('x', 256)"}}},
		{"refund_operations", "fingerprint_check",
			[]row{{"fingerprint": "repeat('A', 64)"}, {"fingerprint": "repeat('a', 63)"}, {"fingerprint": "''"}}},
		{"refund_operations", "refund_operations_amount_check", []row{{"amount_cents": "0"}}},
		{"refund_operations", "minor_units_check", []row{{"amount_cents": "-1"}, {"amount_cents": "9007199254740992"}}},
		{"refund_operations", "metadata_check", []row{{"metadata": "'\"x\"'"}}},
		{"refund_operations", "moment_check", []row{{"settled_at": "'infinity'"}}},
		{"refund_operations", "refund_operations_state_check",
			[]row{over(reserved, row{"state": "'done'"}), over(reserved, row{"state": "'Reserved'"})}},
		{"refund_operations", "refund_operations_revoked_is_no_refund",
			[]row{{"state": "'revoked'"}, {"refund_id": "NULL"}, over(reserved, row{"refund_id": "NULL"})}},
		{"refund_operations", "refund_operations_settled_at_check",
			[]row{{"settled_at": "NULL"}, over(reserved, row{"settled_at": "now()"}),
				over(reserved, row{"state": "'pending'", "settled_at": "now()"}), over(reserved,
					row{"state": "'needs_attention'", "settled_at": "now()"}),
				over(reserved, row{"state": "'failed'", "failure_code": "'x'"}), {"state": "'revoked'", "refund_id": "NULL",
					"settled_at": "NULL"}}},
		{"refund_operations", "refund_operations_failure_code_check",
			[]row{{"failure_code": "'x'"}, over(reserved, row{"failure_code": "'x'"}),
				over(reserved, row{"state": "'failed'", "settled_at": "now()"})}},
		{"refund_operations", "refund_operations_ledger_only_check",
			[]row{{"state": "'reserved'", "settled_at": "NULL"}, {"state": "'pending'", "settled_at": "NULL"},
				{"state": "'needs_attention'", "settled_at": "NULL"}, {"state": "'failed'",
					"failure_code": "'x'"}, {"attempts": "1"},
				{"provider_key": "'x'"}, {"provider_refund_id": "'x'"}}},
		{"refund_operations", "refund_operations_provider_check",
			[]row{over(reserved, row{"provider": "'ledger'"}), over(reserved, row{"attempts": "0"}),
				over(reserved, row{"provider_key": "NULL"}), over(reserved, row{"provider_key_expires_at": "NULL"}),
				over(reserved, row{"state": "'revoked'", "refund_id": "NULL", "settled_at": "now()"})}},
		{"refund_operations", "refund_operations_attempts_check",
			[]row{over(reserved, row{"not_sent": "2"}), over(reserved, row{"not_sent": "-1"})}},
		{"refund_operations", "refund_operations_doubt_check",
			[]row{over(reserved, row{"state": "'pending'", "doubted_decline": "'x'"}),
				over(reserved, row{"state": "'succeeded'", "settled_at": "now()", "doubted_decline": "'x'"})}},

		{"ledger_transfers", "ledger_transfers_pkey", []row{{"operation_id": "'op-1'"}}},
		{"ledger_transfers", "ledger_transfers_amount_check", []row{{"amount_cents": "0"}}},
		{"ledger_transfers", "minor_units_check", []row{{"amount_cents": "-1"}}},
		{"ledger_transfers", "ledger_transfers_seq_check",
			[]row{{"seq": "0"}, {"seq": "-1"}, {"seq": "2"}, {"kind": "'settle'", "debit_account": "'in_transit'"}}},
		{"ledger_transfers", "ledger_transfers_accounts_check",
			[]row{{"debit_account": "'customer'", "credit_account": "'merchant'"},
				{"credit_account": "'merchant'"}, {"credit_account": "'in_transit'"}, {"debit_account": "'acme'"}, {"kind": "'hold'"}}},

		{"operation_events", "operation_events_kind_check",
			[]row{{"kind": "''"}, {"kind": "'Reserved'"}, {"kind": "'a b'"}}},
	} {
		for _, o := range c.overrides {
			sql := insert(c.table, over(legal[c.table], o))
			if state, constraint := attempt(t, db.Owner, sql); constraint != c.constraint {
				t.Errorf("%s: SQLSTATE %q, constraint %q, want %s", sql, state, constraint, c.constraint)
			}
		}
	}
}

// A debit that a wrong program tries is refused by the order's own row.
func TestOrders_NeverExceedTheirCapture(t *testing.T) {
	t.Parallel()
	db := withBooks(t)
	for _, sql := range []string{
		`UPDATE orders SET refunded_cents = refunded_cents + 5002 WHERE order_id = 'A-1' AND tenant_id = 'acme'`,
		`UPDATE orders SET captured_cents = 4998 WHERE order_id = 'A-1' AND tenant_id = 'acme'`,
		`UPDATE orders SET over_refunded_cents = -1 WHERE order_id = 'A-1' AND tenant_id = 'acme'`,
		`UPDATE orders SET refunded_cents = 10001, over_refunded_cents = 0 WHERE order_id = 'A-1'
			AND tenant_id = 'acme'`,
		`UPDATE orders SET refunded_cents = refunded_cents - 5000 WHERE order_id = 'A-1' AND tenant_id = 'acme'`,
	} {
		if _, constraint := attempt(t, db.Pool, sql); constraint != "orders_refunded_within_captured" {
			t.Errorf("%s: constraint %q", sql, constraint)
		}
	}
}
