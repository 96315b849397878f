//go:build drill

package drill

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/testdb"
)

// A81: the primary is fenced off and goes on running, its standby is promoted. With both in the URL the service is on the new
// one within seconds, and says meanwhile that it is not ready. A standby is never asked for the truth of now.
func TestA81_TheStandbyTakesOver(t *testing.T) {
	for _, attrs := range []string{"", "&target_session_attrs=read-write"} {
		t.Run("With"+attrs, func(t *testing.T) {
			primary := testdb.Start(t, embedpg.Options{Settings: map[string]string{"wal_level": "replica", "max_wal_senders": "4"}})
			service := &harness.Service{DB: testdb.NewIn(t, primary)}
			standby := startStandby(t, primary)
			one, two := service.DB.ServiceURL, atPort(t, service.DB.ServiceURL, standby)
			database := "/" + service.DB.Name
			both := strings.Replace(one, database, fmt.Sprintf(",127.0.0.1:%d%s", standby, database), 1) + attrs
			service.Servers = []*harness.Server{harness.Serve(t, both)}
			alone := harness.Serve(t, two) // on the standby, and on nothing else
			tenant := service.OpenTenant(t)
			tenant.Order("P", 10000)
			says(t, tenant.Client().Refund("K", "P", 100), "processed")
			caughtUp(t, atPort(t, service.DB.URL, standby))

			says(t, tenant.ClientOf(alone).Get(harness.RefundPath("K")), "database_unavailable")
			says(t, tenant.ClientOf(alone).Get("/readyz"), "database_unavailable")

			run(t, service.DB.URL, `ALTER SYSTEM SET default_transaction_read_only = on`)
			run(t, service.DB.URL, `SELECT pg_reload_conf()`)
			await(t, tenant.Client(), http.StatusServiceUnavailable)
			says(t, tenant.Client().Refund("L", "P", 100), "database_unavailable")
			says(t, tenant.Client().Get(harness.RefundPath("K")), "database_unavailable")

			run(t, atPort(t, service.DB.URL, standby), `SELECT pg_promote()`)
			await(t, tenant.Client(), http.StatusOK)
			says(t, tenant.Client().Refund("K", "P", 100), "already_processed")
			says(t, tenant.Client().Refund("L", "P", 100), "processed")
			says(t, tenant.ClientOf(alone).Refund("L", "P", 100), "already_processed")
		})
	}
}

func says(t *testing.T, a harness.Answer, want string) {
	t.Helper()
	if got := a.Says(); got != want {
		t.Errorf("answer %s, want %s: %d %.300s", got, want, a.Status, a.Body)
	}
}

// await waits until /readyz answers status: within seconds.
func await(t *testing.T, c harness.Client, status int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if c.Get("/readyz").Status == status {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("readyz does not answer %d within 10 s", status)
		}
	}
}

// startStandby starts a streaming standby of a primary and answers its port.
func startStandby(t *testing.T, primary *embedpg.Server) int {
	t.Helper()
	u, err := url.Parse(primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	var hba, bin string
	conn := connect(t, primary.URL())
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('hba_file'), (SELECT setting FROM pg_config WHERE name = 'BINDIR')`).
		Scan(&hba, &bin); err != nil {
		t.Fatal(err)
	}
	appendTo(t, hba, "host replication all all scram-sha-256\n")
	if _, err := conn.Exec(t.Context(), `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "refundd-standby-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	account := credential(t)
	if err := os.Chown(dir, int(account.Uid), int(account.Gid)); err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	program := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.Background(), filepath.Join(bin, name), args...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "PGPASSWORD=" + password, "LC_ALL=C"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := program("pg_basebackup", "-h", u.Hostname(), "-p", u.Port(), "-U", u.User.Username(), "-D", data, "-R", "-X", "stream",
		"-c", "fast").CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	port := freePort(t)
	server := program("postgres", "-D", data, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "port="+strconv.Itoa(port), "-c", "max_connections=300")
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), atPort(t, primary.URL(), port))
		if err == nil {
			_ = c.Close(t.Context())
			return port
		}
		if time.Now().After(deadline) {
			t.Fatalf("the standby does not start: %v", err)
		}
	}
}

// caughtUp waits until a standby knows the refund.
func caughtUp(t *testing.T, databaseURL string) {
	t.Helper()
	conn := connect(t, databaseURL)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM refund_operations`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby does not catch up")
		}
	}
}

func credential(t *testing.T) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func appendTo(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// atPort is a database URL on another port.
func atPort(t *testing.T, databaseURL string, port int) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	return u.String()
}

func connect(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, databaseURL, sql string) {
	t.Helper()
	if _, err := connect(t, databaseURL).Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
