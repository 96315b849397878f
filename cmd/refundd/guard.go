package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"refundd/migrations"
)

// target is a database that somebody named and that samples or loads are about to be written into.
type target struct {
	name    string   // of the database
	tenants []string // other than those of the command's own; the first few
	tables  []string // of others, where refundd has none; the first few
	known   bool     // a key of ours opens it: it was written into before
}

// look reads what a database holds. own is a pattern (LIKE) of the tenants that the command makes, key an API key that it made
// there earlier, if it did.
func look(ctx context.Context, conn *pgx.Conn, own, key string) (t target, err error) {
	version, _, err := migrations.Version(ctx, conn)
	if err != nil {
		return t, err
	}
	if err := conn.QueryRow(ctx, `SELECT current_database()`).Scan(&t.name); err != nil {
		return t, fmt.Errorf("look into the database: %w", err)
	}
	if version == 0 {
		err = conn.QueryRow(ctx, `
			SELECT ARRAY(SELECT relname::text FROM pg_class
			             WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
			               AND relname <> 'schema_migrations'
			             ORDER BY 1 LIMIT 3)`).Scan(&t.tables)
	} else {
		hash := sha256.Sum256([]byte(key))
		err = conn.QueryRow(ctx, `
			SELECT ARRAY(SELECT tenant_id FROM public.tenants WHERE tenant_id NOT LIKE $1 ORDER BY 1 LIMIT 3),
			       EXISTS (SELECT FROM public.api_keys WHERE secret_hash = $2)`, own, hash[:]).Scan(&t.tenants, &t.known)
	}
	if err != nil {
		return t, fmt.Errorf("look into the database: %w", err)
	}
	return t, nil
}

// refusal says that the database was not meant for what the command would write, unless its name was given to mean it.
func (t target) refusal(command, writes, really string) error {
	holds := "tables of another program: " + strings.Join(t.tables, ", ")
	if len(t.tenants) > 0 {
		holds = "tenants of others: " + strings.Join(t.tenants, ", ")
	}
	if t.known || really == t.name || len(t.tenants)+len(t.tables) == 0 {
		return nil
	}
	return &fault{text: fmt.Sprintf("the database %s, which DATABASE_URL names, holds %s; %s would write %s into it. "+
		"Name another database, or to mean this one add: --really %[1]s", t.name, holds, command, writes)}
}
