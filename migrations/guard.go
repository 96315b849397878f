package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

var (
	// ErrForeignSchema reports a database that another program's tables are in the way in.
	ErrForeignSchema = errors.New("the database belongs to another program")
	// ErrBooks reports a database whose books would be destroyed.
	ErrBooks = errors.New("the database holds books")
	// ErrOwnerLacksRights reports an owner that can not migrate before an administrator has helped.
	ErrOwnerLacksRights = errors.New("the owner lacks rights that migrating needs")
)

// tables are those that the schema cannot be without.
var tables = []string{
	"tenants", "api_keys", "orders", "refund_authorizations", "refund_operations", "ledger_transfers", "operation_events",
	"reconciliation_runs", "restores",
}

// present lists which of the tables there are.
func present(ctx context.Context, conn Querier) (found []string, err error) {
	err = conn.QueryRow(ctx, `
		SELECT ARRAY(SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass('public.' || name) IS NOT NULL)`,
		tables).Scan(&found)
	if err != nil {
		return nil, fmt.Errorf("look for tables: %w", terse(err))
	}
	return found, nil
}

// beforeUp refuses what would fail half-way, or meet another program's tables: nothing was written yet.
func beforeUp(ctx context.Context, conn *pgx.Conn, version uint) error {
	found, err := present(ctx, conn)
	switch {
	case err != nil:
		return err
	case version > 0:
		return requireOurs(found)
	case len(found) > 0:
		return fmt.Errorf("%w: it has tables of the same names (%s) that refundd did not make; "+
			"give refundd a database of its own: CREATE DATABASE refundd", ErrForeignSchema, strings.Join(found, ", "))
	}
	return requireRights(ctx, conn)
}

// requireOurs refuses a version that some other program keeps count of.
func requireOurs(found []string) error {
	if len(found) == len(tables) {
		return nil
	}
	return fmt.Errorf("%w: schema_migrations has a version, but refundd's tables are not there (%d of %d); "+
		"give refundd a database of its own", ErrForeignSchema, len(found), len(tables))
}

// requireRights asks for what the first migration needs.
func requireRights(ctx context.Context, conn *pgx.Conn) error {
	var owner string
	var mayCreate, haveRoles, mayCreateRoles bool
	err := conn.QueryRow(ctx, `
		SELECT quote_ident(current_user), has_schema_privilege('public', 'CREATE'),
		       to_regrole('refundd_service') IS NOT NULL AND to_regrole('refundd_operator') IS NOT NULL,
		       rolsuper OR rolcreaterole
		FROM pg_roles WHERE rolname = current_user`).Scan(&owner, &mayCreate, &haveRoles, &mayCreateRoles)
	if err != nil {
		return fmt.Errorf("look up the owner's rights: %w", terse(err))
	}
	var types []string // by an administrator
	if !haveRoles && !mayCreateRoles {
		for _, role := range []Role{Service, Operator} {
			types = append(types, fmt.Sprintf("CREATE ROLE %s NOLOGIN;", role))
		}
	}
	if !mayCreate {
		types = append(types, fmt.Sprintf("GRANT CREATE ON SCHEMA public TO %s;", owner))
	}
	if len(types) == 0 {
		return nil
	}
	return fmt.Errorf("%w: nothing was changed; an administrator has to type, in this database, %q (what exists already may be "+
		"left out); then run refundd migrate up again", ErrOwnerLacksRights, strings.Join(types, " "))
}

// beforeDown refuses to destroy rows unless the database was named.
func beforeDown(ctx context.Context, conn *pgx.Conn, named string) error {
	found, err := present(ctx, conn)
	if err != nil {
		return err
	}
	has := make([]string, len(found))
	for i, table := range found {
		has[i] = fmt.Sprintf("CASE WHEN EXISTS (SELECT FROM public.%s) THEN '%[1]s' END", table)
	}
	var holding []string
	var database string
	err = conn.QueryRow(ctx, `SELECT array_remove(ARRAY[`+strings.Join(has,
		", ")+`]::text[], NULL), current_database()`,
		pgx.QueryExecModeExec).Scan(&holding, &database)
	if err != nil {
		return fmt.Errorf("look for rows: %w", terse(err))
	}
	if len(holding) == 0 || named == database {
		return nil
	}
	return fmt.Errorf("%w: %s of %s have rows, and nothing brings them back; to destroy them, add --really %s",
		ErrBooks, strings.Join(holding, ", "), database, database)
}
