package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrSchemaOlder reports a database whose schema lacks migrations that this program needs, or has none.
	ErrSchemaOlder = errors.New("the database schema is older than this program")
	// ErrPostgresTooOld reports a server that lacks what the schema and the statements need.
	ErrPostgresTooOld = errors.New("refundd needs Postgres 14 or newer")
	// ErrEncoding reports a database whose encoding is not UTF-8.
	ErrEncoding = errors.New("the database's encoding must be UTF8")
	// ErrSchemaDirty reports a version that is marked as not sound.
	ErrSchemaDirty = errors.New("the database schema is marked dirty")
)

const oldestPostgres = 14_00_00 // as server_version_num counts

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Version reads the schema's version, 0 where no migration was applied. dirty tells that somebody marked it as unsound,
// which this program never does. The service's role may ask it as well as the owner. Errors: ErrPostgresTooOld,
// ErrEncoding, ErrForeignSchema.
func Version(ctx context.Context, conn Querier) (version uint, dirty bool, err error) {
	if err := fit(ctx, conn); err != nil {
		return 0, false, err
	}
	var exists bool
	err = conn.QueryRow(ctx, `SELECT to_regclass('public.schema_migrations') IS NOT NULL`).Scan(&exists)
	if err == nil && !exists {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look for the schema's version: %w", terse(err))
	}
	var stored int64
	err = conn.QueryRow(ctx, `SELECT version, dirty FROM public.schema_migrations LIMIT 1`).Scan(&stored, &dirty)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == pgerrcode.UndefinedColumn {
		return 0, false, fmt.Errorf("%w: its schema_migrations is not refundd's; give refundd a database of its own",
			ErrForeignSchema)
	}
	if err != nil {
		return 0, false, fmt.Errorf("read schema version: %w", terse(err))
	}
	return uint(max(stored, 0)), dirty, nil
}

// fit refuses a server that is too old, and a database that can not store every text, or that counts characters as
// bytes.
func fit(ctx context.Context, conn Querier) error {
	var number int
	var version, encoding string
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'),
		current_setting('server_encoding')`).Scan(&number, &version, &encoding)
	switch {
	case err != nil:
		return fmt.Errorf("read the server's version and the database's encoding: %w", terse(err))
	case number < oldestPostgres:
		return fmt.Errorf("%w: the server is %s", ErrPostgresTooOld, version)
	case encoding != "UTF8":
		return fmt.Errorf("%w: it is %s; create another one with ENCODING 'UTF8' TEMPLATE template0", ErrEncoding,
			encoding)
	}
	return nil
}

// Check tells whether this program may serve on the database: ErrSchemaOlder, ErrSchemaDirty and ErrForeignSchema say
// what to do first. A newer schema is accepted, because migrations keep the programs of the version before working; so
// is one that a newer program is about to change or failed to, since it is ours or newer either way.
func Check(ctx context.Context, conn Querier) error {
	version, dirty, err := Version(ctx, conn)
	switch {
	case err != nil:
		return err
	case dirty && version <= Latest():
		return dirtyError(version)
	case version >= Latest():
		found, err := present(ctx, conn)
		if err != nil {
			return err
		}
		return requireOurs(found)
	}
	busy, err := migrating(ctx, conn)
	if err != nil {
		return err
	}
	what := "run: refundd migrate up"
	if busy {
		what = "another process is migrating it now: start again when that has ended, or run: refundd migrate up, which waits for it"
	}
	return fmt.Errorf("%w: it is at version %d and %d is needed; %s", ErrSchemaOlder, version, Latest(), what)
}

// migrating tells whether a process holds the right to migrate.
func migrating(ctx context.Context, conn Querier) (busy bool, err error) {
	const key = int64(lockKey)
	err = conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND classid::bigint = $1 AND objid::bigint = $2)`, key>>32, key&0xffff_ffff).Scan(&busy)
	if err != nil {
		return false, fmt.Errorf("look for a process that migrates: %w", terse(err))
	}
	return busy, nil
}

// dirtyError explains a version that is marked dirty, by another tool or by hand: a migration of ours stores its
// version in the transaction that applies it.
func dirtyError(version uint) error {
	if version > Latest() {
		return fmt.Errorf("%w: it is at version %d, newer than this program: use the refundd that brings that version",
			ErrSchemaDirty, version)
	}
	back := "DELETE FROM schema_migrations"
	if version > 1 {
		back = fmt.Sprintf("UPDATE schema_migrations SET version = %d, dirty = false", version-1)
	}
	return fmt.Errorf("%w: it is at version %d, and something other than refundd marked it. See, as the owner, whether the tables of "+
		"that version are there. If they are, run %q; if not, run %q, and then refundd migrate up",
		ErrSchemaDirty, version, "UPDATE schema_migrations SET dirty = false", back)
}
