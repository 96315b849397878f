package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/test/testdb"
)

// asProgram makes this test binary behave as refundd itself, for tests that need a process.
const asProgram = "REFUNDD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "yes" {
		main()
		return
	}
	testdb.Main(m)
}

// ran is what a command that ended left behind.
type ran struct {
	code           int
	stdout, stderr string
}

// command runs one command line within this process; env holds NAME=value.
func command(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	getenv := func(name string) string {
		for _, pair := range env {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value
			}
		}
		return ""
	}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, getenv, &stdout, &stderr)
	return ran{code, stdout.String(), stderr.String()}
}

// succeed is command for what has to work; it answers stdout without the line's end.
func succeed(t *testing.T, url string, args ...string) string {
	t.Helper()
	r := command(t, []string{"DATABASE_URL=" + url}, args...)
	if r.code != 0 {
		t.Fatalf("refundd %v exits %d: %s", args, r.code, r.stderr)
	}
	return strings.TrimSuffix(r.stdout, "\n")
}

// program is a running refundd process.
type program struct {
	cmd            *exec.Cmd
	stdout, stderr *output
	done           chan struct{} // closed once it has ended
}

// start runs refundd as a process of its own. It is killed when the test ends, if it still runs.
func start(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	return startWith(t, nil, env, args...)
}

// startWith is start with streams of the test's own, where there are some.
func startWith(t testing.TB, streams *os.File, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{stdout: &output{}, stderr: &output{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), self, args...)
	p.cmd.Env = append([]string{asProgram + "=yes", "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "HOME=" +
		os.Getenv("HOME")}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if streams != nil {
		p.cmd.Stdout, p.cmd.Stderr = streams, streams
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its state says all
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("stderr of refundd %v:\n%s", args, p.stderr)
		}
	})
	return p
}

func (p *program) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait answers the exit code, or fails the test when the process outlasts the limit.
func (p *program) wait(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("it still runs after %v", limit)
		return -1
	}
}

// logged waits for a log line with that message and answers it.
func (p *program) logged(t testing.TB, message string) string {
	t.Helper()
	var found string
	eventually(t, "a log line "+message, func() bool {
		for line := range strings.Lines(p.stderr.String()) {
			if strings.Contains(line, `"msg":"`+message+`"`) {
				found = line
				return true
			}
		}
		return p.ended()
	})
	if found == "" {
		t.Fatalf("it ended without logging %q", message)
	}
	return found
}

func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// eventually waits for what another process or a server does.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// output collects what a process writes while others read it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// postmaster is the process id of the server behind the URL.
func postmaster(t *testing.T, url string) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var file string
	if err := conn.QueryRow(t.Context(), `SELECT pg_read_file('postmaster.pid')`).Scan(&file); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(file, "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
