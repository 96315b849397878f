package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	startWait = 60 * time.Second // a loaded machine and the race detector
	stopWait  = 40 * time.Second
)

// Process is one process of refundd.
type Process struct {
	Logs *Logs

	cmd  *exec.Cmd
	done chan struct{}
}

// Spawn starts refundd with a database, with what the environment shall have besides. It is killed when the test ends.
func Spawn(t testing.TB, databaseURL string, env []string, args ...string) *Process {
	t.Helper()
	return SpawnProgram(t, Binary(t), databaseURL, env, args...)
}

// SpawnProgram is Spawn of another build of refundd.
func SpawnProgram(t testing.TB, program, databaseURL string, env []string, args ...string) *Process {
	t.Helper()
	p, err := spawn(program, append(env, "DATABASE_URL="+databaseURL), args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func spawn(path string, env, args []string) (*Process, error) {
	p := &Process{Logs: newLogs(), done: make(chan struct{}),
		cmd: exec.CommandContext(context.Background(), path, args...)}
	p.cmd.Env = environment(env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("open the log of refundd %s: %w", args[0], err)
	}
	err = launch(p.cmd, func() {
		p.Logs.read(stderr)
		_ = p.cmd.Wait() // its end is seen by done, its reason by the log
		close(p.done)
	})
	if err != nil {
		return nil, fmt.Errorf("start refundd %s: %w", args[0], err)
	}
	return p, nil
}

// launch starts a child that dies with this process; attend must last as long as the child.
func launch(child *exec.Cmd, attend func()) error {
	child.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends: this one stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := child.Start()
		started <- err
		if err == nil {
			attend()
		}
	}()
	return <-started
}

// Server is one process of `refundd serve`.
type Server struct {
	*Process
	URL      string // of the API
	AdminURL string
}

// Serve starts a server on free ports and waits until it serves. It is killed when the test ends.
func Serve(t testing.TB, databaseURL string, flags ...string) *Server {
	t.Helper()
	return ServeIn(t, databaseURL, nil, flags...)
}

// ServeIn is Serve with what the environment shall have besides.
func ServeIn(t testing.TB, databaseURL string, env []string, flags ...string) *Server {
	t.Helper()
	s, err := TryServe(t, databaseURL, env, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TryServe is ServeIn where the server may fail to come up, for the lack of a database; from any goroutine.
func TryServe(t testing.TB, databaseURL string, env []string, flags ...string) (*Server, error) {
	t.Helper()
	return TryServeProgram(t, Binary(t), databaseURL, env, flags...)
}

// TryServeProgram is TryServe of another build of refundd.
func TryServeProgram(t testing.TB, program, databaseURL string, env []string, flags ...string) (*Server, error) {
	t.Helper()
	args := append([]string{"serve", "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--drain-delay", "0s"},
		flags...)
	s := &Server{Process: SpawnProgram(t, program, databaseURL, env, args...)}
	err := s.await()
	return s, err
}

// await reads the address from the line "serving".
func (s *Server) await() error {
	line, err := s.Logs.Await(startWait, s.done, `"msg":"serving"`)
	if err != nil {
		return fmt.Errorf("refundd serve does not serve: %w\n%s", err, s.Logs.Text())
	}
	var serving struct {
		Addr      string `json:"addr"`
		AdminAddr string `json:"admin_addr"`
	}
	if err := json.Unmarshal([]byte(line), &serving); err != nil {
		return fmt.Errorf("read the address of refundd serve: %w", err)
	}
	s.URL, s.AdminURL = "http://"+serving.Addr, "http://"+serving.AdminAddr
	return nil
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Ended tells whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// End waits for the end of the process and answers the exit code, -1 where a signal ended it.
func (p *Process) End(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(stopWait):
		t.Errorf("refundd does not end by itself within %v:\n%s", stopWait, p.Logs.Text())
		p.Kill()
	}
	return p.cmd.ProcessState.ExitCode()
}

// Pause stops the process where it stands; Resume lets it go on.
func (p *Process) Pause(t testing.TB) { p.signal(t, syscall.SIGSTOP) }

// Resume ends a pause.
func (p *Process) Resume(t testing.TB) { p.signal(t, syscall.SIGCONT) }

// Terminate asks the process to stop (SIGTERM), waits for its end and answers the exit code.
func (p *Process) Terminate(t testing.TB) int {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	return p.End(t)
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Hangup sends SIGHUP: read anew what is configured in files.
func (p *Process) Hangup(t testing.TB) { p.signal(t, syscall.SIGHUP) }

func (p *Process) signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("signal refundd: %v", err)
	}
}

// Logs are the lines that a process wrote to stderr.
type Logs struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced with every line
}

func newLogs() *Logs { return &Logs{more: make(chan struct{})} }

func (l *Logs) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			l.add(strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

func (l *Logs) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	close(l.more)
	l.more = make(chan struct{})
}

// Text is all that was logged.
func (l *Logs) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// Await answers the first line that has every part, waiting for it for up to wait or until done.
func (l *Logs) Await(wait time.Duration, done <-chan struct{}, parts ...string) (string, error) {
	deadline := time.After(wait)
	for from := 0; ; {
		line, next, more := l.find(from, parts)
		if line != "" {
			return line, nil
		}
		from = next
		select {
		case <-more:
		case <-done:
			if line, _, _ = l.find(from, parts); line != "" {
				return line, nil
			}
			return "", errors.New("the process ended")
		case <-deadline:
			return "", fmt.Errorf("no line with %q within %v", parts, wait)
		}
	}
}

func (l *Logs) find(from int, parts []string) (line string, next int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines[from:] {
		if containsAll(line, parts) {
			return line, len(l.lines), l.more
		}
	}
	return "", len(l.lines), l.more
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// Result is what a command did.
type Result struct {
	ExitCode       int
	Stdout, Stderr string
}

// Command runs refundd to its end; databaseURL may be empty.
func Command(t testing.TB, databaseURL string, args ...string) Result {
	t.Helper()
	r, err := run(databaseURL, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func run(databaseURL string, args ...string) (Result, error) {
	path, err := command()
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = environment()
	if databaseURL != "" {
		cmd.Env = environment("DATABASE_URL=" + databaseURL)
	}
	err = cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return Result{}, fmt.Errorf("run refundd %s: %w", args[0], err)
	}
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}, nil
}
