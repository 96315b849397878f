// Package testdb gives each test a real Postgres database of its own.
//
// Its promise: a database that New returns is migrated, empty and nobody
// else's, cloned from a template that the process migrates once; it is dropped
// when its test ends. Tests exercise the service through Pool, as the
// restricted role that production gives it, and use Owner to prepare rows and
// to move time. No test is skipped for lack of a database: the cluster is the
// one that TEST_DATABASE_URL names (a postgres:// URL of a role with CREATEDB
// and CREATEROLE), else a throw-away one that starts with the first test that
// asks. What a killed test process leaves behind is removed by the next one.
package testdb

import (
	"context"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/embedpg"
)

// DB is one test's database. Its pools are closed and it is dropped when the
// test and its subtests have ended.
type DB struct {
	Name        string
	URL         string        // of the owner
	ServiceURL  string        // of a LOGIN role in refundd_service
	OperatorURL string        // of a LOGIN role in refundd_operator
	Owner       *pgxpool.Pool // for set-up, for checks, and to move time
	Pool        *pgxpool.Pool // as the service's role: what the tested code gets
}

type options struct{ maxConns int32 }

// Option changes what New returns.
type Option func(*options)

// MaxConns sets the size of each of the two pools; 8 unless told. A cluster
// serves 300 connections to all tests that run at once.
func MaxConns(n int32) Option { return func(o *options) { o.maxConns = n } }

// Main runs a package's tests and then ends the process and its cluster:
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
//
// m is a *testing.M, or what wraps one and needs the cluster to the last.
// A package without it works too; its cluster dies with the process, and its
// folder is swept by the next start.
func Main(m interface{ Run() int }) {
	code := m.Run()
	shared.stop()
	os.Exit(code)
}

// New returns a migrated database.
func New(t testing.TB, opts ...Option) *DB {
	t.Helper()
	c := theCluster(t)
	db := c.clone(t, c.template)
	t.Cleanup(func() { c.drop(t, db.Name) })
	db.open(t, opts)
	return db
}

// Empty returns a database without a schema. Its service role may use it only
// once migrations have run.
func Empty(t testing.TB, opts ...Option) *DB {
	t.Helper()
	c := theCluster(t)
	db := c.clone(t, "template0")
	t.Cleanup(func() { c.drop(t, db.Name) })
	db.open(t, opts)
	return db
}

// Start returns a private cluster, which the test may kill and restart. It is
// stopped when the test ends.
func Start(t testing.TB, o embedpg.Options) *embedpg.Server {
	t.Helper()
	s, err := embedpg.Start(t.Context(), o)
	if err != nil {
		t.Fatalf("start a private Postgres: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop the private Postgres: %v", err)
		}
	})
	return s
}

// NewIn returns a migrated database in a private cluster.
func NewIn(t testing.TB, s *embedpg.Server, opts ...Option) *DB {
	t.Helper()
	c, err := prepare(t.Context(), s.URL())
	if err != nil {
		t.Fatalf("prepare the private Postgres: %v", err)
	}
	t.Cleanup(c.close)
	db := c.clone(t, c.template)
	db.open(t, opts)
	return db
}

// open makes the pools; they connect with their first use.
func (db *DB) open(t testing.TB, opts []Option) {
	t.Helper()
	db.Owner = Pool(t, db.URL, opts...)
	db.Pool = Pool(t, db.ServiceURL, opts...)
}

// Pool returns a pool on a database URL, closed when the test ends. It
// connects with its first use.
func Pool(t testing.TB, databaseURL string, opts ...Option) *pgxpool.Pool {
	t.Helper()
	o := options{maxConns: 8}
	for _, set := range opts {
		set(&o)
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		t.Fatalf("parse database URL: %v", err)
	}
	config.MaxConns = o.maxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool waits for connections that are in use, but not for ever: one that
// was never released fails its test instead of hanging all of them.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Errorf("%d connections of %s were not released", pool.Stat().AcquiredConns(),
			pool.Config().ConnConfig.Database)
	}
}

// withDatabase is base with another database, and another user where one is given.
func withDatabase(base *url.URL, name string, user *url.Userinfo) string {
	u := *base
	u.Path = "/" + name
	if user != nil {
		u.User = user
	}
	return u.String()
}
