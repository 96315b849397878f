package growth

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"refundd/test/testdb"
)

// What is unique, and what refers to another table, is so within a tenant: tables may be spread by tenant. The
// exceptions are unique across tenants because they must be.
func TestKeys_BeginWithTheTenant(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	rows, err := db.Owner.Query(t.Context(), `
		WITH tables AS (
			SELECT c.oid, c.relname, a.attnum FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
				AND attname = 'tenant_id'
			WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace)
		SELECT i.relname::text FROM tables t JOIN pg_index x ON x.indrelid = t.oid
			JOIN pg_class i ON i.oid = x.indexrelid
		WHERE x.indisunique AND x.indkey[0] <> t.attnum
		UNION ALL SELECT conname::text FROM tables t JOIN pg_constraint c ON c.conrelid = t.oid
		WHERE contype = 'f' AND conkey[1] <> t.attnum
		UNION ALL SELECT 'no key: ' || relname FROM tables t
		WHERE NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = t.oid AND x.indisprimary)
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"api_keys_pkey", "api_keys_secret_hash_key", // the key says which tenant calls
		"orders_provider_payment_key",           // one payment belongs to one order of one tenant
		"refund_operations_provider_refund_key", // one refund of a provider's settles one operation
		"refund_operations_refund_id_key",       // minted for each claim
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("keys that do not begin with the tenant (-want +found):\n%s", diff)
	}
}
