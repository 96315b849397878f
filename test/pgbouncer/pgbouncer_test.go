//go:build pgbouncer

// Package pgbouncer runs the service behind a real PgBouncer in transaction mode, with fewer server connections than
// the service opens. .ci/pgbouncer installs PgBouncer and runs it; the build tag keeps it out of the suite that needs
// only Go.
package pgbouncer

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

func TestServe_BehindPgBouncerInTransactionMode(t *testing.T) {
	s := &harness.Service{DB: testdb.New(t)}
	owner, pooled := s.DB.ServiceURL, pool(t, s.DB.ServiceURL)
	for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s.DB.ServiceURL = pooled + "&default_query_exec_mode=" + mode
			defer func() { s.DB.ServiceURL = owner }()
			s.Servers = nil
			s.AddServer(t)
			s.AddServer(t)
			refundInEveryWay(t, s.Tenant(t))
			s.Audit(t)
		})
	}
}

// refundInEveryWay takes each of the engine's paths: new, replay, conflict, revoked, one hot order, one key at once.
func refundInEveryWay(t *testing.T, tenant *harness.Tenant) {
	t.Helper()
	tenant.Order("P", 10000)
	for i := range 60 {
		tenant.Approve(fmt.Sprintf("K%d", i), "P", 10)
	}
	tenant.Approve("same", "P", 100)
	tenant.Approve("withdrawn", "P", 100)
	if a := tenant.Client().Post(harness.AuthorizationPath("withdrawn")+"/revoke",
		map[string]string{}); a.Status != 200 {
		t.Errorf("revoke: %d %s", a.Status, a.Body)
	}
	var calls sync.WaitGroup
	for i := range 60 {
		calls.Go(func() {
			if a := tenant.At(i%2).Refund(fmt.Sprintf("K%d", i), "P", 10); a.Status != 201 {
				t.Errorf("refund %d: %d %s", i, a.Status, a.Body)
			}
			if a := tenant.At(i%2).Refund("same", "P", 100); a.Status != 201 && a.Status != 200 {
				t.Errorf("the same: %d %s", a.Status, a.Body)
			}
		})
	}
	calls.Wait()
	for operation, cents := range map[string]int64{"same": 101, "withdrawn": 100} {
		if a := tenant.Client().Refund(operation, "P", cents); a.Status != 422 {
			t.Errorf("%s: %d %s", operation, a.Status, a.Body)
		}
	}
	if got := tenant.Moved("P"); got != 60*10+100 {
		t.Errorf("moved %d, want 700", got)
	}
}

// pool starts PgBouncer in front of a database, with three server connections, and returns its URL.
func pool(t *testing.T, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	dir, err := os.MkdirTemp("", "refundd-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { // PgBouncer refuses to run as root
		t.Fatal(err)
	}
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
logfile = %s/log
`, u.Path[1:], u.Hostname(), u.Port(), u.User.Username(), password, address.Port, dir)
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(ini), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"pgbouncer", path}
	if os.Getuid() == 0 {
		args = append([]string{"pgbouncer", "-u", "postgres"}, path)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 100 {
		if c, err := net.Dial("tcp", address.String()); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Sprintf("postgres://%s@%s%s?sslmode=disable", u.User.Username(), address, u.Path)
}
