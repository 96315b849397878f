package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
	"refundd/migrations"
)

const (
	connectTimeout = 5 * time.Second // for one connection, where the URL names no connect_timeout
	startTimeout   = 8 * time.Second // for the first one, all addresses of a host name together
	toolPoolSize   = 2               // connections of a command that does one thing
	servePoolSize  = 16              // of serve, where neither a flag nor the URL says
)

// database is the flag of every command that works on Postgres.
type database struct {
	DatabaseURL string `placeholder:"URL" help:"Postgres to work on (DATABASE_URL)."`
}

// url answers what was given, or says how to give it.
func (d database) url() (string, error) {
	if d.DatabaseURL == "" {
		return "", usage("DATABASE_URL is not set: set it or pass --database-url, such as postgres://user:password@127.0.0.1:5432/refundd")
	}
	return d.DatabaseURL, nil
}

// open connects to a database whose schema this program can work with; the caller closes the pool.
func (d database) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := d.config(toolPoolSize)
	if err != nil {
		return nil, err
	}
	return connect(ctx, config)
}

// config is the pool's configuration. Nothing is added to what a session starts with, since PgBouncer refuses it: timeouts
// belong on the login role.
func (d database) config(size int32) (*pgxpool.Config, error) {
	url, err := d.url()
	if err != nil {
		return nil, err
	}
	config, err := pgtx.Config(url)
	if err != nil {
		return nil, connectFault(err)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	config.MaxConns = size
	return config, nil
}

// serveConfig is a service's: as many connections as the flag says, else the URL's own pool_max_conns, else servePoolSize.
func (d database) serveConfig(size int32) (*pgxpool.Config, error) {
	config, err := d.config(servePoolSize)
	if err != nil {
		return nil, err
	}
	plain, err := pgx.ParseConfig(d.DatabaseURL) // which leaves the pool's own settings in place
	if err != nil {
		return nil, connectFault(err)
	}
	if own, err := strconv.ParseInt(plain.RuntimeParams["pool_max_conns"], 10, 32); err == nil {
		config.MaxConns = int32(own)
	}
	if size > 0 {
		config.MaxConns = size
	}
	return config, nil
}

// connect answers a pool that reaches its database and found its schema new enough, within seconds or not at all.
func connect(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, connectFault(err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, connectFault(err)
	}
	if err := pgtx.Snapshot(ctx, pool, func(tx *pgtx.Tx) error { return migrations.Check(ctx, tx) }); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// conn is a single connection, whatever the schema; the caller closes it.
func (d database) conn(ctx context.Context) (*pgx.Conn, error) {
	config, err := d.config(1)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, connectFault(err)
	}
	if err := pgtx.Session(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}
