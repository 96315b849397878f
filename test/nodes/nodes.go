// Package nodes runs further Postgres servers beside one: streaming standbys that tests promote and kill. It wants an
// account named postgres to run them as.
package nodes

import (
	"bytes"
	"context"
	"fmt"
	"net"
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
)

// Node is a server that began as a standby.
type Node struct {
	URL string // of its owner; the database is that of the primary's URL

	server *exec.Cmd
	ended  chan struct{}
	log    bytes.Buffer
}

// Standby starts a streaming standby of the primary at a URL of its superuser, on a free port, or the port if one is
// given, and waits until it answers. It is stopped when the test ends.
func Standby(t testing.TB, primaryURL string, port int) *Node {
	t.Helper()
	u, err := url.Parse(primaryURL)
	if err != nil {
		t.Fatal(err)
	}
	var hba, bin string
	conn := Connect(t, primaryURL)
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('hba_file'), (SELECT setting FROM pg_config
		WHERE name = 'BINDIR')`).
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
	if out, err := program("pg_basebackup", "-h", u.Hostname(), "-p", u.Port(), "-U", u.User.Username(), "-D", data,
		"-R", "-X", "stream",
		"-c", "fast").CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	if port == 0 {
		port = freePort(t)
	}
	n := &Node{URL: AtPort(t, primaryURL, port), ended: make(chan struct{})}
	n.server = program("postgres", "-D", data, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "port="+strconv.Itoa(port), "-c", "max_connections=300", "-c", "wal_level=replica", "-c",
		"max_wal_senders=4")
	n.server.Stderr = &n.log
	if err := n.server.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(n.ended)
		_ = n.server.Wait() // its log says why
	}()
	t.Cleanup(func() {
		_ = n.server.Process.Signal(syscall.SIGQUIT) // it may have ended
		<-n.ended
		if t.Failed() {
			t.Log(n.log.String())
		}
	})
	n.await(t)
	return n
}

func (n *Node) await(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), n.URL)
		if err == nil {
			_ = c.Close(t.Context())
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the standby does not start: %v", err)
		}
	}
}

// Port is where it listens.
func (n *Node) Port() int {
	u, err := url.Parse(n.URL)
	if err != nil {
		panic(err) // it was made of one
	}
	port, _ := strconv.Atoi(u.Port())
	return port
}

// Promote makes it a primary.
func (n *Node) Promote(t testing.TB) { Run(t, n.URL, `SELECT pg_promote()`) }

// Cut takes it off its primary's stream: what is committed there from now on never arrives.
func (n *Node) Cut(t testing.TB) {
	t.Helper()
	Run(t, n.URL, `ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'`)
	Run(t, n.URL, `SELECT pg_reload_conf()`)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var streams int
		if err := Connect(t, n.URL).QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_wal_receiver
			WHERE status = 'streaming'`).Scan(&streams); err != nil {
			t.Fatal(err)
		}
		if streams == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby still streams")
		}
	}
}

// Kill ends all of its processes at once, as a machine that loses its power.
func (n *Node) Kill() {
	Freeze(n.server.Process.Pid) // no more children
	signalAll(n.server.Process.Pid, syscall.SIGKILL)
	<-n.ended
}

// Freeze stops a server and all of its processes where they stand: to everybody else, a machine behind a network that
// is gone.
func Freeze(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	signalAll(pid, syscall.SIGSTOP)
}

// signalAll reaches the server and its children, each of which leads a group of its own.
func signalAll(pid int, sig syscall.Signal) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for child := range strings.FieldsSeq(string(children)) {
		if id, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(id, sig)
		}
	}
	_ = syscall.Kill(pid, sig)
}

// AtPort is a database URL on another port of this machine.
func AtPort(t testing.TB, databaseURL string, port int) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	return u.String()
}

// Connect is a connection that is closed when the test ends.
func Connect(t testing.TB, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Run runs a statement.
func Run(t testing.TB, databaseURL, sql string) {
	t.Helper()
	if _, err := Connect(t, databaseURL).Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func credential(t testing.TB) *syscall.Credential {
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

func appendTo(t testing.TB, path, line string) {
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

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it takes no time
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
