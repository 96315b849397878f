package testdb_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"refundd/internal/embedpg"
	"refundd/test/testdb"
)

// keepDatabase, when set, makes this test binary a process that makes a test
// database, says its name, and lives until it is killed.
const keepDatabase = "TESTDB_TEST_KEEP"

func TestMain(m *testing.M) { testdb.Main(m) }

func keepUntilKilled(t *testing.T) {
	t.Helper()
	db := testdb.New(t)
	if _, err := db.Owner.Exec(t.Context(), insertTenant); err != nil {
		t.Fatal(err)
	}
	fmt.Println("database", db.Name)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// otherProcess runs a test process that keeps a database of the named cluster.
func otherProcess(t *testing.T, databaseURL string) (name string, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestSharedCluster_WithAnOrdinaryOwner$",
		"-test.v")
	cmd.Env = append(os.Environ(), keepDatabase+"=1", "TEST_DATABASE_URL="+databaseURL)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	said := bufio.NewScanner(stdout)
	for said.Scan() {
		if _, name, ok := strings.Cut(said.Text(), "database "); ok {
			return name, func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		}
		t.Log(said.Text())
	}
	t.Fatal("the other process made no database")
	return "", nil
}

func databases(t *testing.T, s *embedpg.Server) string {
	t.Helper()
	var names string
	err := testdb.Pool(t, s.URL()).QueryRow(t.Context(), `SELECT coalesce(string_agg(datname, ' '), '')
		FROM pg_database`).Scan(&names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSharedCluster_WithAnOrdinaryOwner(t *testing.T) {
	t.Parallel()
	if os.Getenv(keepDatabase) != "" {
		keepUntilKilled(t)
		return
	}
	s := testdb.Start(t, embedpg.Options{})
	for _, sql := range []string{
		`CREATE ROLE tester LOGIN CREATEDB CREATEROLE PASSWORD 'of the test'`,
		`CREATE DATABASE tester OWNER tester`,
	} {
		if _, err := testdb.Pool(t, s.URL()).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(s.DatabaseURL("tester"))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("tester", "of the test")

	killed, kill := otherProcess(t, u.String())
	living, _ := otherProcess(t, u.String())
	kill()
	otherProcess(t, u.String())
	names := databases(t, s)
	if strings.Contains(names, killed) || !strings.Contains(names, living) {
		t.Errorf("killed process's %s, living one's %s: there are %s", killed, living, names)
	}
}

const insertTenant = `INSERT INTO tenants (tenant_id) VALUES ('acme')`

func TestNew_DatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			db := testdb.New(t)
			if _, err := db.Owner.Exec(t.Context(), insertTenant); err != nil {
				t.Error(err)
			}
			var n int
			if err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM tenants`).Scan(&n); err != nil || n != 1 {
				t.Errorf("%d tenants, %v", n, err)
			}
		})
	}
	wg.Wait()
}

func TestNew_PoolIsTheRestrictedRole(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	_, err := db.Pool.Exec(t.Context(), `DELETE FROM tenants`)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
		t.Errorf("the service may delete: %v", err)
	}
	var timeout string
	if err := db.Pool.QueryRow(t.Context(), `SHOW statement_timeout`).Scan(&timeout); err != nil || timeout != "20s" {
		t.Errorf("statement_timeout = %q, %v", timeout, err)
	}
}

func TestEmpty_HasNoSchema(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	var n int
	if err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_class
		WHERE relnamespace = 'public'::regnamespace`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d relations, %v", n, err)
	}
}

func TestNew_IsDroppedWhenItsTestEnds(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("its test", func(t *testing.T) { name = testdb.New(t).Name })
	var n int
	if err := testdb.Empty(t).Owner.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_database WHERE datname = $1`, name).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d databases named %s, %v", n, name, err)
	}
}

func TestNewIn_SurvivesKillAndRestart(t *testing.T) {
	t.Parallel()
	s := testdb.Start(t, embedpg.Options{Durable: true})
	db := testdb.NewIn(t, s)
	if _, err := db.Owner.Exec(t.Context(), insertTenant); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := testdb.Pool(t, db.ServiceURL).QueryRow(t.Context(),
		`SELECT count(*) FROM tenants`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d tenants, %v", n, err)
	}
}
