package embedpg_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/embedpg"
)

// ownerFolder, when set, makes this test binary a process that owns that
// folder until it is killed; "throw-away" stands for a throw-away cluster.
const ownerFolder = "EMBEDPG_TEST_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerFolder); dir != "" {
		own(strings.TrimPrefix(dir, "throw-away"))
	}
	os.Exit(m.Run())
}

// own starts a cluster, prints its folder, postmaster and URL, and waits for the end of stdin.
func own(dir string) {
	s, err := embedpg.Start(context.Background(), embedpg.Options{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(s.Dir(), s.PID(), s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Stop(context.Background())
	os.Exit(0)
}

// owner is a child process that owns a cluster.
type owner struct {
	cmd *exec.Cmd
	dir string
	pid int
	url string
}

func startOwner(t *testing.T, dir string) *owner {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), ownerFolder+"="+dir)
	return runOwner(t, cmd)
}

func runOwner(t *testing.T, cmd *exec.Cmd) *owner {
	t.Helper()
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
	line, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 {
		t.Fatalf("owner said %q, %v", line, err)
	}
	pid, err := strconv.Atoi(words[1])
	if err != nil {
		t.Fatal(err)
	}
	return &owner{cmd: cmd, dir: words[0], pid: pid, url: words[2]}
}

// kill9 kills the owner, not its server.
func (o *owner) kill9(t *testing.T) {
	t.Helper()
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = o.cmd.Wait()
}

func startServer(t *testing.T, o embedpg.Options) *embedpg.Server {
	t.Helper()
	s, err := embedpg.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// folder is a data folder that the server's account can reach.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "embedpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}

func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var v T
	if err := conn.QueryRow(ctx, sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestStart_PersistentFolderIsDurableAndPrivate(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{Dir: folder(t)})
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "data_checksums"} {
		if got := query[string](t, s.URL(), "SELECT current_setting('"+name+"')"); got != "on" {
			t.Errorf("%s = %s", name, got)
		}
	}
	info, err := os.Stat(filepath.Join(s.Dir(), "password"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("password has mode %v", info.Mode())
	}
	if !query[bool](t, s.URL(), "SELECT rolcreatedb AND rolcreaterole FROM pg_roles WHERE rolname = current_user") {
		t.Error("the owner may not create databases and roles")
	}
	if got := query[bool](t, s.URL(), "SELECT lower('É') = 'é'"); !got {
		t.Error("letters outside ASCII do not fold")
	}
}

func TestStart_WrongPasswordIsRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{})
	config, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.Password = "guess"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password was let in")
	}
}

func TestStart_FolderThatIsServedAnswersErrInUse(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := startServer(t, embedpg.Options{Dir: dir})
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	if _, err := embedpg.Start(t.Context(), embedpg.Options{Dir: dir}); !errors.Is(err, embedpg.ErrInUse) {
		t.Fatalf("second start in the same process: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), ownerFolder+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "in use") {
		t.Fatalf("second start in another process: %s, %v", out, err)
	}
	if got := query[int](t, s.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
}

func TestStart_AtOnceOnOneFolderHasOneWinner(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	var wg sync.WaitGroup
	servers := make([]*embedpg.Server, 8)
	for i := range servers {
		wg.Go(func() {
			s, err := embedpg.Start(t.Context(), embedpg.Options{Dir: dir})
			if err != nil && !errors.Is(err, embedpg.ErrInUse) {
				t.Errorf("start: %v", err)
			}
			servers[i] = s
		})
	}
	wg.Wait()
	won := 0
	for _, s := range servers {
		if s != nil {
			won++
			query[int](t, s.URL(), "SELECT 1")
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	if won != 1 {
		t.Errorf("%d servers own one folder", won)
	}
}

func TestStart_AfterTheOwnerWasKilledRecovers(t *testing.T) {
	t.Parallel()
	o := startOwner(t, folder(t))
	exec1(t, o.url, "CREATE TABLE kept AS SELECT 7 AS n")
	o.kill9(t)
	s := startServer(t, embedpg.Options{Dir: o.dir})
	if got := query[int](t, s.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
	if running(o.pid) {
		t.Error("the dead owner's postmaster still runs")
	}
}

func TestStart_AfterTheOwnerAndItsPostmasterWereKilledRecovers(t *testing.T) {
	t.Parallel()
	o := startOwner(t, folder(t))
	exec1(t, o.url, "CREATE TABLE kept AS SELECT 7 AS n")
	busy := connect(t, o.url)
	go func() { _, _ = busy.Exec(context.Background(), "SELECT count(*) FROM generate_series(1, 3000000000)") }()
	eventually(t, "the backend is busy", func() bool {
		return query[int](t, o.url, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%3000000000%'") > 1
	})
	_ = syscall.Kill(o.pid, syscall.SIGKILL) // the busy backend does not notice
	o.kill9(t)
	s := startServer(t, embedpg.Options{Dir: o.dir})
	if got := query[int](t, s.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestStart_AfterTheOwnerWasKilledWithinInitdbBeginsAnew(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, after := range []time.Duration{20, 150, 400, 700, 1000} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), ownerFolder+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	s := startServer(t, embedpg.Options{Dir: dir})
	query[int](t, s.URL(), "SELECT 1")
	if left, _ := filepath.Glob(filepath.Join(dir, "pgdata.new*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOwnerKilled_EndsItsPostmasterByItself(t *testing.T) {
	t.Parallel()
	o := startOwner(t, folder(t))
	o.kill9(t)
	eventually(t, "the postmaster ends", func() bool { return !running(o.pid) })
}

func TestOwnerKilled_ThrowAwayFolderIsSweptByTheNextStart(t *testing.T) {
	t.Parallel()
	o := startOwner(t, "throw-away")
	o.kill9(t)
	s := startServer(t, embedpg.Options{})
	if _, err := os.Stat(o.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead owner's folder: %v", err)
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stopped cluster's folder: %v", err)
	}
}

func TestRestart_AfterKillKeepsCommittedDataAndThePort(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]embedpg.Options{
		"throw-away": {Durable: true},
		"persistent": {Dir: folder(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, o)
			url, pid := s.URL(), s.PID()
			exec1(t, url, "CREATE TABLE kept AS SELECT 7 AS n")
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if running(pid) || s.PID() != 0 {
				t.Error("the postmaster still runs")
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.URL() != url {
				t.Errorf("served at %s, before at %s", s.URL(), url)
			}
			if got := query[int](t, s.URL(), "SELECT n FROM kept"); got != 7 {
				t.Errorf("n = %d", got)
			}
		})
	}
}

func TestStart_AfterKillServesTheFolderAgain(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := startServer(t, embedpg.Options{Dir: dir})
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, embedpg.Options{Dir: dir})
	if got := query[int](t, again.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
}

func TestRestart_WithThePortTakenServesOnAnother(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{Durable: true})
	config, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(config.Port))))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	query[int](t, s.URL(), "SELECT 1")
}
