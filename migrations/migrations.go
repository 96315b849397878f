// Package migrations carries the schema: numbered pairs of SQL files, embedded in the program.
//
// Its promises: any number of processes may call Up at the same moment, on one database or on several of one cluster,
// and each version is applied once; a version is applied entirely or not at all, its number with it, whatever becomes
// of the process, the connection or the server meanwhile; a program accepts a newer schema than its own and refuses an
// older one; no error tells a database URL.
//
// Rules for the files. One file runs in one transaction, with the number that it leads to. So a file neither commits
// nor uses what a transaction refuses, such as CREATE INDEX CONCURRENTLY. Released programs of the version before keep
// working with every new schema.
//
// Migrating needs a direct connection: it holds an advisory lock for as long as its session lives, which a pooler in
// transaction mode cannot give. The tables are in the schema public, wherever search_path leads others.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

//go:embed *.sql
var files embed.FS

// Latest is the version of the newest embedded migration. Versions are numbered without gaps.
func Latest() uint {
	latest := uint(0)
	names, _ := fs.Glob(files, "*.up.sql") // the pattern is constant and well-formed
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if v, err := strconv.ParseUint(number, 10, 32); err == nil {
			latest = max(latest, uint(v))
		}
	}
	return latest
}

// ErrConnectionLost reports that the database was lost while a version was being applied, and again each time it was
// asked what became of it: it was applied entirely, or not at all.
var ErrConnectionLost = errors.New("the connection to the database was lost")

// Up applies every migration the database lacks. A schema newer than Latest is left as it is.
//
// databaseURL is a postgres:// URL or a key=value string, of the schema's owner. Where another process migrates, Up
// waits its turn for up to lockWait (ErrLockTimeout). A cancelled ctx ends the wait and stops before the next file; a
// file that has begun is finished. Where the connection breaks, Up goes on from where the database then is. Other
// errors: ErrDatabaseURL, ErrPostgresTooOld, ErrEncoding, ErrSchemaDirty, ErrConnectionLost; and before anything was
// changed ErrForeignSchema and ErrOwnerLacksRights.
func Up(ctx context.Context, databaseURL string) error {
	return move(ctx, databaseURL, beforeUp, func(version uint) *step {
		if version >= Latest() {
			return nil
		}
		return &step{from: version, to: version + 1, file: fmt.Sprintf("%04d_*.up.sql", version+1)}
	})
}

// Down takes every migration back. Waits and errors are those of Up; it refuses a database with rows (ErrBooks).
func Down(ctx context.Context, databaseURL string) error { return DownWithBooks(ctx, databaseURL, "") }

// DownWithBooks is Down, and destroys the rows of the database that is named.
func DownWithBooks(ctx context.Context, databaseURL, named string) error {
	unlessBooks := func(ctx context.Context, conn *pgx.Conn, _ uint) error { return beforeDown(ctx, conn, named) }
	return move(ctx, databaseURL, unlessBooks, func(version uint) *step {
		if version == 0 {
			return nil
		}
		return &step{from: version, to: version - 1, file: fmt.Sprintf("%04d_*.down.sql", version)}
	})
}

const (
	connections = 8                      // that one move may try, one after another
	restWait    = 300 * time.Millisecond // until the next one is tried
)

// check looks at a database of some version before it is migrated.
type check func(ctx context.Context, conn *pgx.Conn, version uint) error

// move takes one step after another until none is left, where check finds nothing against it. A connection that breaks
// is replaced: the version, which is stored with what it numbers, tells where to go on.
func move(ctx context.Context, databaseURL string, first check, next func(version uint) *step) error {
	config, err := parseURL(databaseURL)
	if err != nil {
		return err
	}
	lost := false
	for n := 1; ; n++ {
		conn, err := pgx.ConnectConfig(ctx, config)
		broke := lost // a database that was there does not answer
		if err == nil {
			broke, err = moveOn(ctx, conn, first, next)
			hangUp(ctx, conn)
		} else {
			err = fmt.Errorf("connect to the database: %w", terse(err))
		}
		switch {
		case err == nil, !broke:
			return err
		case n == connections, ctx.Err() != nil:
			return fmt.Errorf("%w; what was under way was applied entirely or not at all, and a further try goes on from there: %w",
				ErrConnectionLost, err)
		}
		lost = true
		select {
		case <-ctx.Done():
		case <-time.After(restWait):
		}
	}
}

// moveOn steps on one connection, alone among all processes that migrate this database, and tells whether that broke.
func moveOn(ctx context.Context, conn *pgx.Conn, first check, next func(version uint) *step) (broke bool, err error) {
	if err := pgtx.Session(ctx, conn); err != nil {
		return conn.IsClosed(), terse(err)
	}
	if err := lock(ctx, conn); err != nil {
		return conn.IsClosed() && !errors.Is(err, ErrLockTimeout) && ctx.Err() == nil,
			fmt.Errorf("lock migrations: %w", err)
	}
	for checked := false; ; checked = true {
		version, dirty, err := Version(ctx, conn)
		switch {
		case err != nil:
			return conn.IsClosed(), err
		case dirty:
			return false, dirtyError(version)
		}
		if !checked {
			if err := first(ctx, conn, version); err != nil {
				return conn.IsClosed(), err
			}
		}
		s := next(version)
		if s == nil {
			return false, nil
		}
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("migrate from version %d: %w", version, err)
		}
		err = s.apply(context.WithoutCancel(ctx), conn)
		switch {
		case err != nil && conn.IsClosed():
			return true, fmt.Errorf("migrate from version %d to %d: %w", s.from, s.to, terse(err))
		case err != nil:
			return false, fmt.Errorf("migrate from version %d to %d, which was rolled back: %w", s.from, s.to, err)
		}
	}
}

// step is one version up or down.
type step struct {
	from, to uint
	file     string // its pattern; one file has it
}

// begin lets the transaction take as long as the tables are large, but not queue in front of everybody else for as long
// as somebody holds one of them.
const begin = `
	BEGIN ISOLATION LEVEL READ COMMITTED;
	SET LOCAL lock_timeout = '10s';
	SET LOCAL idle_in_transaction_session_timeout = '1min';
	CREATE TABLE IF NOT EXISTS schema_migrations (version bigint PRIMARY KEY, dirty boolean NOT NULL);`

// apply runs the step's file and stores the version that it leads to, in one transaction. After an error the session's
// end rolls back what was not committed.
func (s step) apply(ctx context.Context, conn *pgx.Conn) error {
	names, err := fs.Glob(files, s.file)
	if err != nil || len(names) != 1 {
		return fmt.Errorf("find migration %s: %d files, %w", s.file, len(names), err)
	}
	body, err := files.ReadFile(names[0])
	if err != nil {
		return fmt.Errorf("read migration: %w", err)
	}
	store := "DELETE FROM schema_migrations;"
	if s.to > 0 {
		store += fmt.Sprintf("INSERT INTO schema_migrations (version, dirty) VALUES (%d, false);", s.to)
	}
	for _, script := range []string{begin, string(body), store, "COMMIT"} {
		if _, err := conn.PgConn().Exec(ctx, script).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}
