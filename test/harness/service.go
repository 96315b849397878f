package harness

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"

	"refundd/test/testdb"
)

// Service is a database and the servers on it.
type Service struct {
	DB        *testdb.DB
	Servers   []*Server
	Simulator *Simulator // nil without it
	Stripe    *Stripe    // nil without it
	Flags     []string   // of every process that refunds or reconciles
}

// Shared is the service that tests share, two servers on one database; each test uses tenants of its own. Its books are
// audited after the last test.
func Shared(t testing.TB) *Service {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("no shared service: %v", err)
	}
	return s
}

var shared = sync.OnceValues(func() (s *Service, err error) {
	err = caught(func() {
		s = &Service{DB: testdb.New(&suite, testdb.MaxConns(16))}
		s.AddServer(&suite)
		s.AddServer(&suite)
	})
	if err == nil {
		suite.atEnd(func() error { return audit(s.DB.ServiceURL) })
	}
	return s, err
})

// New is a service of the test's own, with one server.
func New(t testing.TB, flags ...string) *Service {
	t.Helper()
	s := &Service{DB: testdb.New(t)}
	s.AddServer(t, flags...)
	return s
}

// AddServer starts one more server on the service's database, as the restricted role, with a canary in what the
// database is told of it.
func (s *Service) AddServer(t testing.TB, flags ...string) *Server {
	t.Helper()
	server := Serve(t, withCanary(s.DB.ServiceURL), append(slices.Clone(s.Flags), flags...)...)
	s.Servers = append(s.Servers, server)
	return server
}

// Audit proves the books.
func (s *Service) Audit(t testing.TB) {
	t.Helper()
	if err := audit(s.DB.ServiceURL); err != nil {
		t.Error(err)
	}
}

func audit(databaseURL string) error {
	r, err := run(databaseURL, "audit")
	if err != nil {
		return err
	}
	if r.ExitCode != 0 {
		return fmt.Errorf("refundd audit exits %d:\n%s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	return nil
}

// withCanary names the session after the canary.
func withCanary(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		panic(err) // testdb made it
	}
	q := u.Query()
	q.Set("application_name", Canary+"-application")
	u.RawQuery = q.Encode()
	return u.String()
}

// CanaryURL is the service's database through a login whose password, and whose session's name, are canaries. The login
// is the database's name with _canary; it is gone when the test ends.
func (s *Service) CanaryURL(t testing.TB) string {
	t.Helper()
	role, password := s.DB.Name+"_canary", Canary+"-password"
	exec := func(format string, args ...any) {
		if _, err := s.DB.Owner.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf(format, args...)); err != nil {
			t.Errorf("login %s: %v", role, err)
		}
	}
	exec(`CREATE ROLE %s LOGIN IN ROLE refundd_service PASSWORD '%s'`, role, password)
	exec(`GRANT CONNECT ON DATABASE %s TO %s`, s.DB.Name, role)
	t.Cleanup(func() {
		exec(`REVOKE CONNECT ON DATABASE %s FROM %s`, s.DB.Name, role)
		exec(`DROP ROLE %s`, role)
	})
	u, err := url.Parse(withCanary(s.DB.ServiceURL))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return u.String()
}
