package harness

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Outage ends every session of the service's database and lets nobody in until the answered function is called, or the
// test ends.
func (s *Service) Outage(t testing.TB) (end func()) {
	t.Helper()
	allow := func(allowed bool) {
		s.elsewhere(t, fmt.Sprintf(`ALTER DATABASE %s ALLOW_CONNECTIONS %t`, s.DB.Name, allowed))
	}
	allow(false)
	s.elsewhere(t, fmt.Sprintf(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = '%s'`, s.DB.Name))
	over := false
	end = func() {
		if !over {
			over = true
			allow(true)
			s.DB.Owner.Reset()
			s.DB.Pool.Reset()
		}
	}
	t.Cleanup(end)
	return end
}

// elsewhere runs a statement from another database of the cluster.
func (s *Service) elsewhere(t testing.TB, sql string) {
	t.Helper()
	u, err := url.Parse(s.DB.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/postgres"
	conn, err := pgx.Connect(context.Background(), u.String())
	if err != nil {
		t.Fatalf("connect beside the service's database: %v", err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Hold runs statements in a transaction of the owner's that stays open until the answered function is called, or the
// test ends.
func (s *Service) Hold(t testing.TB, statements ...string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), s.DB.URL)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, sql := range append([]string{"BEGIN"}, statements...) {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return func() { _ = conn.Close(context.Background()) }
}
