package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	versionTable   = "schema_migrations"
	undefinedTable = "42P01" // SQLSTATE
)

var (
	// ErrSchemaOlder reports a database whose schema lacks migrations that this program needs, or has none.
	ErrSchemaOlder = errors.New("the database schema is older than this program")
	// ErrSchemaDirty reports a migration that was interrupted or failed.
	ErrSchemaDirty = errors.New("the database schema is marked dirty")
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Version reads the schema's version, 0 where no migration was applied. dirty tells that the last one did not end well. The
// service's role may ask it as well as the owner. Inside a transaction, a database without any migration aborts it.
func Version(ctx context.Context, conn Querier) (version uint, dirty bool, err error) {
	var stored int64 // -1: the first migration, taken back, did not end well
	err = conn.QueryRow(ctx, `SELECT version, dirty FROM schema_migrations LIMIT 1`).Scan(&stored, &dirty)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == undefinedTable {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read schema version: %w", terse(err))
	}
	return uint(max(stored, 0)), dirty, nil
}

// Check tells whether this program may serve on the database: ErrSchemaOlder and ErrSchemaDirty say what to do first. A newer
// schema is accepted, because migrations keep the programs of the version before working.
func Check(ctx context.Context, conn Querier) error {
	version, dirty, err := Version(ctx, conn)
	switch {
	case err != nil:
		return err
	case dirty:
		return dirtyError(version)
	case version < Latest():
		return fmt.Errorf("%w: it is at version %d and %d is needed; run: refundd migrate up", ErrSchemaOlder, version, Latest())
	}
	return nil
}

// dirtyError explains a version that golang-migrate left dirty. A file runs as one transaction, so the failed one changed
// nothing: going up, the schema is still that of the version before; going down, that of the version after.
func dirtyError(version uint) error {
	force := "DELETE FROM schema_migrations"
	if version > 1 {
		force = fmt.Sprintf("UPDATE schema_migrations SET version = %d, dirty = false", version-1)
	}
	down := ""
	if version < Latest() {
		down = fmt.Sprintf(" (if it was going down: set version %d)", version+1)
	}
	return fmt.Errorf("%w: the migration to version %d failed and was rolled back. Repair its cause; then run, as the owner, "+
		"%q%s, and refundd migrate again", ErrSchemaDirty, version, force, down)
}
