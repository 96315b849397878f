// Package postgres connects the commands to their Postgres: by what DATABASE_URL says and nothing else, within seconds
// or not at all, and into no database that was not meant.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/access"
	"refundd/cmd/refundd/internal/fault"
	"refundd/internal/pgtx"
	"refundd/migrations"
)

const (
	connectTimeout = 5 * time.Second // for one connection, where the URL names no connect_timeout
	startTimeout   = 8 * time.Second // for the first one, all addresses of a host name together
	toolPoolSize   = 2               // connections of a command that does one thing
	servePoolSize  = 16              // of serve, where neither a flag nor the URL says
)

// Database is the flag of every command that works on Postgres.
type Database struct {
	DatabaseURL string `placeholder:"URL" help:"Postgres to work on (DATABASE_URL)."`
}

// url returns what was given, or says how to give it.
func (d Database) url() (string, error) {
	if d.DatabaseURL == "" {
		return "", fault.Usage("DATABASE_URL is not set: set it or pass --database-url, " +
			"such as postgres://user:password@127.0.0.1:5432/refundd")
	}
	return d.DatabaseURL, nil
}

// Open connects to a database whose schema this program can work with; the caller closes the pool.
func (d Database) Open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := d.config(toolPoolSize)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, config)
}

// config is the pool's configuration. Nothing is added to what a session starts with, since PgBouncer refuses it:
// timeouts belong on the login role.
func (d Database) config(size int32) (*pgxpool.Config, error) {
	url, err := d.url()
	if err != nil {
		return nil, err
	}
	config, err := pgtx.Config(url)
	if err != nil {
		return nil, fault.Connect(err)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	config.MaxConns = size
	return config, nil
}

// ServeConfig is a service's: as many connections as the flag says, else the URL's own pool_max_conns, else
// servePoolSize.
func (d Database) ServeConfig(size int32) (*pgxpool.Config, error) {
	config, err := d.config(servePoolSize)
	if err != nil {
		return nil, err
	}
	plain, err := pgx.ParseConfig(d.DatabaseURL) // which leaves the pool's own settings in place
	if err != nil {
		return nil, fault.Connect(err)
	}
	if own, err := strconv.ParseInt(plain.RuntimeParams["pool_max_conns"], 10, 32); err == nil {
		config.MaxConns = int32(own)
	}
	if size > 0 {
		config.MaxConns = size
	}
	return config, nil
}

// Connect returns a pool that reaches its database and found its schema new enough, within seconds or not at all.
func Connect(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fault.Connect(err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fault.Connect(err)
	}
	if err := pgtx.Snapshot(ctx, pool, func(tx *pgtx.Tx) error { return migrations.Check(ctx, tx) }); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// Conn is a single connection, whatever the schema; the caller closes it.
func (d Database) Conn(ctx context.Context) (*pgx.Conn, error) {
	config, err := d.config(1)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, fault.Connect(err)
	}
	if err := pgtx.Session(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// WithKeys opens the room of tenants and keys for one act.
func (d Database) WithKeys(ctx context.Context, act func(*access.Keys) error) error {
	pool, err := d.Open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	keys, err := access.New(access.Config{Pool: pool})
	if err != nil {
		return err
	}
	return act(keys)
}

// Create makes a database in the cluster, if none of that name is there. The name is one of ours, which needs no
// quotes.
func (d Database) Create(ctx context.Context, name string) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// MakeLogin makes the login that a service works as: with no more rights, and the time limits, that one in production
// has.
func (d Database) MakeLogin(ctx context.Context, name, password string) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	login := migrations.Login{Name: name, Role: migrations.Service, Password: password}
	return LoginFault(migrations.MakeLogin(ctx, conn, login))
}

// LoginFault says what an administrator has to do where a login could not be made.
func LoginFault(err error) error {
	switch {
	case errors.Is(err, migrations.ErrRolesMissing):
		return fault.New(err, "the roles of refundd do not exist yet; run: refundd migrate up")
	case errors.Is(err, migrations.ErrMayNotCreateLogin):
		return fault.New(err, "the login in DATABASE_URL may not create logins, or not give them refundd's roles: "+
			"use one of an administrator, who has CREATEROLE and made these roles")
	case errors.Is(err, migrations.ErrLoginTaken):
		return fault.New(err, "%s", err)
	}
	return err
}
