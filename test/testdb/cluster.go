package testdb

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/embedpg"
	"refundd/migrations"
)

const (
	prefix       = "refundd_test_" // of every database that this package makes
	serviceUser  = "refundd_test_service"
	operatorUser = "refundd_test_operator"
	lockClass    = 0x7e57db // of our advisory locks; 0 = preparing, else a living process's run
	prepareWait  = 6 * time.Minute
	cleanWait    = time.Minute
)

// shared is the cluster of all tests of this process.
var shared sharedCluster

type sharedCluster struct {
	once    sync.Once
	server  *embedpg.Server // nil with TEST_DATABASE_URL
	cluster *cluster
	err     error
}

func theCluster(t testing.TB) *cluster {
	t.Helper()
	shared.once.Do(shared.start)
	if shared.err != nil {
		t.Fatalf("no test database: %v", shared.err)
	}
	return shared.cluster
}

// start is bounded by itself and not by the test that happens to come first.
func (s *sharedCluster) start() {
	ctx, cancel := context.WithTimeout(context.Background(), prepareWait)
	defer cancel()
	databaseURL := os.Getenv("TEST_DATABASE_URL")
	if databaseURL == "" {
		if s.server, s.err = embedpg.Start(ctx, embedpg.Options{}); s.err != nil {
			return
		}
		databaseURL = s.server.URL()
	}
	s.cluster, s.err = prepare(ctx, databaseURL)
}

// stop ends what start started; the process exits right after.
func (s *sharedCluster) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanWait)
	defer cancel()
	var err error
	if s.cluster != nil && s.server == nil {
		err = s.cluster.dropDatabase(ctx, s.cluster.template)
	}
	if s.cluster != nil {
		s.cluster.close()
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Stop(ctx))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "testdb: clean up: %v\n", err)
	}
}

// cluster is a prepared Postgres: it has the template and the logins.
type cluster struct {
	base     *url.URL
	admin    *pgxpool.Pool
	alive    *pgx.Conn // holds the run's lock: the sweep of another process sees that we live
	run      uint32
	last     atomic.Int64
	template string
	service  *url.Userinfo
	operator *url.Userinfo
}

// prepare migrates a template and makes the logins. Processes that
// share a cluster take turns, since roles are cluster-wide.
func prepare(ctx context.Context, databaseURL string) (*cluster, error) {
	base, err := url.Parse(databaseURL)
	if err != nil || !strings.HasPrefix(base.Scheme, "postgres") {
		return nil, errors.New("the URL of the test database is not of the form postgres://user:password@host:port/name")
	}
	c := &cluster{base: base, run: newRun()}
	c.template = c.nextName()
	c.service = url.UserPassword(serviceUser, loginPassword(base))
	c.operator = url.UserPassword(operatorUser, loginPassword(base))
	if c.admin, err = pgxpool.New(ctx, databaseURL); err != nil {
		return nil, fmt.Errorf("open test cluster: %w", err)
	}
	if err := c.prepareOn(ctx, databaseURL); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) prepareOn(ctx context.Context, databaseURL string) error {
	var err error
	if c.alive, err = pgx.Connect(ctx, databaseURL); err != nil {
		return fmt.Errorf("connect to the test cluster: %w", err)
	}
	for _, key := range []uint32{c.run, 0} {
		if _, err := c.alive.Exec(ctx, `SELECT pg_advisory_lock($1, $2)`, lockClass, int32(key)); err != nil {
			return fmt.Errorf("lock the test cluster: %w", err)
		}
	}
	if err := c.rightVersion(ctx); err != nil {
		return err
	}
	if err := c.sweep(ctx); err != nil {
		return err
	}
	if err := c.create(ctx, c.template, "template0"); err != nil {
		return err
	}
	if err := migrations.Up(ctx, withDatabase(c.base, c.template, nil)); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	if err := c.makeLogins(ctx); err != nil {
		return err
	}
	if _, err := c.alive.Exec(ctx, `SELECT pg_advisory_unlock($1, 0)`, lockClass); err != nil {
		return fmt.Errorf("unlock the test cluster: %w", err)
	}
	return nil
}

// rightVersion refuses a server of another major version than REFUNDD_TEST_POSTGRES, where that is set.
func (c *cluster) rightVersion(ctx context.Context) error {
	want := os.Getenv("REFUNDD_TEST_POSTGRES")
	var version string
	err := c.alive.QueryRow(ctx, `SELECT (current_setting('server_version_num')::int / 10000)::text`).Scan(&version)
	if err != nil {
		return fmt.Errorf("read the server's version: %w", err)
	}
	if want != "" && want != version {
		return fmt.Errorf("the server is Postgres %s, and REFUNDD_TEST_POSTGRES wants %s", version, want)
	}
	return nil
}

// makeLogins makes the logins that tests use the two roles through, with the
// time limits that production puts on them.
func (c *cluster) makeLogins(ctx context.Context) error {
	for role, user := range map[migrations.Role]*url.Userinfo{migrations.Service: c.service,
		migrations.Operator: c.operator} {
		password, _ := user.Password()
		err := migrations.MakeLogin(ctx, c.alive,
			migrations.Login{Name: user.Username(), Role: role, Password: password})
		if err != nil {
			return fmt.Errorf("make a login for tests: %w", err)
		}
		// DROP DATABASE ends a forgotten session of it.
		if _, err := c.alive.Exec(ctx, `GRANT `+user.Username()+` TO CURRENT_USER`); err != nil {
			return fmt.Errorf("make a login for tests: %w", err)
		}
	}
	return nil
}

// clone makes a database from a template.
func (c *cluster) clone(t testing.TB, template string) *DB {
	t.Helper()
	name := c.nextName()
	ctx, cancel := context.WithTimeout(context.Background(), cleanWait)
	defer cancel()
	if err := c.create(ctx, name, template); err != nil {
		t.Fatal(err)
	}
	return &DB{
		Name:        name,
		URL:         withDatabase(c.base, name, nil),
		ServiceURL:  withDatabase(c.base, name, c.service),
		OperatorURL: withDatabase(c.base, name, c.operator),
	}
}

// create waits for sessions on the template to end (55006, object in use):
// autovacuum visits it.
func (c *cluster) create(ctx context.Context, name, template string) error {
	for {
		_, err := c.admin.Exec(ctx, `CREATE DATABASE `+name+` TEMPLATE `+template)
		var pgErr *pgconn.PgError
		if err == nil {
			return nil
		}
		if !errors.As(err, &pgErr) || pgErr.Code != "55006" {
			return fmt.Errorf("create test database: %w", err)
		}
	}
}

func (c *cluster) drop(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cleanWait)
	defer cancel()
	if err := c.dropDatabase(ctx, name); err != nil {
		t.Error(err)
	}
}

func (c *cluster) dropDatabase(ctx context.Context, name string) error {
	if _, err := c.admin.Exec(ctx, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("drop test database: %w", err)
	}
	return nil
}

// sweep drops the databases of test processes that died: those whose run's
// lock nobody holds.
func (c *cluster) sweep(ctx context.Context) error {
	rows, err := c.admin.Query(ctx, `SELECT datname FROM pg_database WHERE datname ~ $1`,
		`^`+prefix+`[0-9a-f]{8}_[0-9]+$`)
	if err != nil {
		return fmt.Errorf("list test databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list test databases: %w", err)
	}
	for _, name := range names {
		if err := c.sweepOne(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) sweepOne(ctx context.Context, name string) error {
	run, err := strconv.ParseUint(name[len(prefix):len(prefix)+8], 16, 32)
	if err != nil || run == uint64(c.run) {
		return nil // not a name of ours after all, or our own
	}
	var dead bool
	err = c.admin.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory'
		AND classid = $1::int8::oid AND objid = $2::int8::oid)`,
		int64(lockClass), int64(run)).Scan(&dead)
	if err != nil {
		return fmt.Errorf("look for a living test process: %w", err)
	}
	if !dead {
		return nil
	}
	return c.dropDatabase(ctx, name)
}

func (c *cluster) nextName() string {
	return fmt.Sprintf("%s%08x_%d", prefix, c.run, c.last.Add(1))
}

// close ends the cluster's own connections.
func (c *cluster) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if c.alive != nil {
		_ = c.alive.Close(ctx) // the server ends it otherwise
	}
	if c.admin != nil {
		c.admin.Close()
	}
}

// newRun names this process among those that share a cluster; never 0.
func newRun() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint32(b[:]) | 1
}

// loginPassword is the same for every process that shares the cluster, and
// nobody knows it who does not know the owner's.
func loginPassword(base *url.URL) string {
	owner, _ := base.User.Password()
	return fmt.Sprintf("%x", sha256.Sum256([]byte("refundd test service "+base.User.Username()+" "+owner)))
}
