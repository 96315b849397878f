package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"refundd/cmd/refundd/internal/fault"
	"refundd/migrations"
)

// Intent is what a command is about to write into a database that somebody named.
type Intent struct {
	Command string // its name
	Writes  string // what it writes, in words
	Tenants string // a pattern (LIKE) of the tenants that it makes
	Key     string // an API key that it made there earlier, if it did
	Really  string // the name of a database that is meant, whatever it holds
}

// Meant refuses a database that holds what is not the command's own: DATABASE_URL may be left from another program.
func Meant(ctx context.Context, conn *pgx.Conn, i Intent) error {
	h, err := look(ctx, conn, i)
	if err != nil {
		return err
	}
	return h.refusal(i)
}

// holdings are what a database holds.
type holdings struct {
	name    string   // of the database
	tenants []string // other than those of the command's own; the first few
	tables  []string // of others, where refundd has none; the first few
	known   bool     // a key of ours opens it: it was written into before
}

func look(ctx context.Context, conn *pgx.Conn, i Intent) (h holdings, err error) {
	version, _, err := migrations.Version(ctx, conn)
	if err != nil {
		return h, err
	}
	if err := conn.QueryRow(ctx, `SELECT current_database()`).Scan(&h.name); err != nil {
		return h, fmt.Errorf("look into the database: %w", err)
	}
	if version == 0 {
		err = conn.QueryRow(ctx, `
			SELECT ARRAY(SELECT relname::text FROM pg_class
			             WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
			               AND relname <> 'schema_migrations'
			             ORDER BY 1 LIMIT 3)`).Scan(&h.tables)
	} else {
		hash := sha256.Sum256([]byte(i.Key))
		err = conn.QueryRow(ctx, `
			SELECT ARRAY(SELECT tenant_id FROM public.tenants WHERE tenant_id NOT LIKE $1 ORDER BY 1 LIMIT 3),
			       EXISTS (SELECT FROM public.api_keys WHERE secret_hash = $2)`, i.Tenants, hash[:]).Scan(&h.tenants,
			&h.known)
	}
	if err != nil {
		return h, fmt.Errorf("look into the database: %w", err)
	}
	return h, nil
}

// refusal says that the database was not meant for what the command would write, unless its name was given to mean it.
func (h holdings) refusal(i Intent) error {
	holds := "tables of another program: " + strings.Join(h.tables, ", ")
	if len(h.tenants) > 0 {
		holds = "tenants of others: " + strings.Join(h.tenants, ", ")
	}
	if h.known || i.Really == h.name || len(h.tenants)+len(h.tables) == 0 {
		return nil
	}
	return fault.New(nil, "the database %s, which DATABASE_URL names, holds %s; %s would write %s into it. "+
		"Name another database, or to mean this one add: --really %[1]s", h.name, holds, i.Command, i.Writes)
}
