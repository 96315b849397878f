package testdb_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"refundd/internal/embedpg"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const insertTenant = `INSERT INTO tenants (tenant_id) VALUES ('acme')`

func TestNew_DatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			db := testdb.New(t)
			if _, err := db.Pool.Exec(t.Context(), insertTenant); err != nil {
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
	if err := db.Pool.QueryRow(t.Context(), `SHOW statement_timeout`).Scan(&timeout); err != nil || timeout != "30s" {
		t.Errorf("statement_timeout = %q, %v", timeout, err)
	}
}

func TestEmpty_HasNoSchema(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	var n int
	if err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d relations, %v", n, err)
	}
}

func TestNew_IsDroppedWhenItsTestEnds(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("its test", func(t *testing.T) { name = testdb.New(t).Name })
	var n int
	if err := testdb.Empty(t).Owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname = $1`, name).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d databases named %s, %v", n, name, err)
	}
}

func TestNewIn_SurvivesKillAndRestart(t *testing.T) {
	t.Parallel()
	s := testdb.Start(t, embedpg.Options{Durable: true})
	db := testdb.NewIn(t, s)
	if _, err := db.Pool.Exec(t.Context(), insertTenant); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := testdb.Pool(t, db.ServiceURL).QueryRow(t.Context(), `SELECT count(*) FROM tenants`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d tenants, %v", n, err)
	}
}
