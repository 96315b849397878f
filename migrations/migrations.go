// Package migrations carries the schema: numbered pairs of SQL files, embedded in the program.
//
// Its promises: any number of processes may call Up at the same moment, on one database or on several of one cluster, and
// each version is applied once; a program accepts a newer schema than its own and refuses an older one; no error tells
// a database URL.
//
// Rules for the files. One file is sent as one statement string, which Postgres runs as one transaction: a file that fails
// has changed nothing, yet its version stays marked dirty, and Check says how to go on. So a file neither commits nor
// uses what a transaction refuses (CREATE INDEX CONCURRENTLY belongs in a file of its own, as its only statement).
// Released programs of the version before keep working with every new schema.
//
// Migrating needs a direct connection: it holds an advisory lock for as long as its session lives, which a pooler in
// transaction mode cannot give. The schema is the one that search_path names first.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

//go:embed *.sql
var files embed.FS

// Latest is the version of the newest embedded migration.
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

// Up applies every migration the database lacks. A schema newer than Latest is left as it is.
//
// databaseURL is a postgres:// URL or a key=value string, of the schema's owner. Where another process migrates, Up waits
// its turn for up to lockWait (ErrLockTimeout). A cancelled ctx ends the wait and stops before the next file; a file that
// has begun is finished. Other errors: ErrDatabaseURL, ErrSchemaDirty.
func Up(ctx context.Context, databaseURL string) error {
	return locked(ctx, databaseURL, func(m *migrate.Migrate) error {
		return steps(ctx, m, 1, func(v uint) bool { return v >= Latest() })
	})
}

// Down takes every migration back, and with it all data. Waits and errors are those of Up.
func Down(ctx context.Context, databaseURL string) error {
	return locked(ctx, databaseURL, func(m *migrate.Migrate) error {
		return steps(ctx, m, -1, func(v uint) bool { return v == 0 })
	})
}

// steps moves one version at a time until done says so.
func steps(ctx context.Context, m *migrate.Migrate, by int, done func(version uint) bool) error {
	for {
		version, dirty, err := m.Version()
		if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
			return fmt.Errorf("read schema version: %w", terse(err))
		}
		if dirty {
			return dirtyError(version)
		}
		if done(version) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("migrate from version %d: %w", version, err)
		}
		if err := m.Steps(by); err != nil {
			return errors.Join(fmt.Errorf("migrate from version %d: %w", version, terse(err)), left(m))
		}
	}
}

// left tells what a failed step left behind: ErrSchemaDirty, or nil where the version is sound.
func left(m *migrate.Migrate) error {
	if version, dirty, err := m.Version(); err == nil && dirty {
		return dirtyError(version)
	}
	return nil
}

// locked runs move with a migrator, alone among all processes that migrate this database.
func locked(ctx context.Context, databaseURL string, move func(*migrate.Migrate) error) (err error) {
	config, err := parseURL(databaseURL)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, config)
	if err != nil {
		return err
	}
	defer unlock()

	m, err := newMigrator(config)
	if err != nil {
		return err
	}
	defer func() {
		sourceErr, databaseErr := m.Close()
		if closeErr := errors.Join(sourceErr, databaseErr); err == nil && closeErr != nil {
			err = fmt.Errorf("close migrator: %w", closeErr)
		}
	}()
	return move(m)
}

func newMigrator(config *pgx.ConnConfig) (*migrate.Migrate, error) {
	source, err := iofs.New(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	db := stdlib.OpenDB(*config)
	driver, err := migratepgx.WithInstance(db, &migratepgx.Config{MigrationsTable: versionTable})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", versionTable, terse(err)), db.Close())
	}
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", driver)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open migrator: %w", terse(err)), driver.Close())
	}
	return m, nil
}
