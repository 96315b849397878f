package main

import (
	"context"
	"fmt"

	"refundd/cmd/refundd/internal/postgres"
	"refundd/migrations"
)

type migrateCmd struct {
	Up      migrateUpCmd      `cmd:"" help:"Apply what the database lacks."`
	Down    migrateDownCmd    `cmd:"" help:"Take every migration back, and all data with it."`
	Version migrateVersionCmd `cmd:"" help:"Print the schema's version."`
}

type migrateUpCmd struct{ postgres.Database }

// Run brings the schema to this program's version.
func (m migrateUpCmd) Run(ctx context.Context, c console) error {
	return migrate(ctx, c, m.Database, migrations.Up)
}

type migrateDownCmd struct {
	postgres.Database
	Really string `placeholder:"DATABASE" help:"The database's name, to destroy the books that it holds."`
}

// Run removes every table of refundd's; one with rows only where its database is named.
func (m migrateDownCmd) Run(ctx context.Context, c console) error {
	return migrate(ctx, c, m.Database, func(ctx context.Context, url string) error {
		return migrations.DownWithBooks(ctx, url, m.Really)
	})
}

type migrateVersionCmd struct{ postgres.Database }

// Run prints the schema's version.
func (m migrateVersionCmd) Run(ctx context.Context, c console) error {
	return migrate(ctx, c, m.Database, func(context.Context, string) error { return nil })
}

// migrate moves the schema and prints the version it is at then, 0 where there is none.
func migrate(ctx context.Context, c console, d postgres.Database,
	move func(ctx context.Context, url string) error) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := move(ctx, d.DatabaseURL); err != nil {
		return err
	}
	version, dirty, err := migrations.Version(ctx, conn)
	if err != nil {
		return err
	}
	c.printf("%d\n", version)
	_, _ = fmt.Fprintf(c.stderr, "the schema is at version %d; this program brings version %d\n", version,
		migrations.Latest())
	if dirty {
		return migrations.Check(ctx, conn) // words what a human has to do
	}
	return nil
}
