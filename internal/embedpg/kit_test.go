package embedpg_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
	base := "/tmp"
	if memory, ok := embedpg.MemoryBase(); ok {
		base = memory
	}
	dir, err := os.MkdirTemp(base, "embedpg-test-")
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

// keepBusy runs a statement that does not end by itself, and returns its
// backend's process id.
func keepBusy(t *testing.T, url, sql string) int {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := pgx.Connect(ctx, url+"&statement_timeout=60000") // ms: nothing burns on after a failed test
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.Exec(ctx, sql)
		_ = conn.Close(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	pid := int(conn.PgConn().PID())
	eventually(t, "the backend is busy", func() bool {
		return query[bool](t, url, fmt.Sprintf("SELECT state = 'active' FROM pg_stat_activity WHERE pid = %d", pid))
	})
	return pid
}
