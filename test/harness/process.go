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

// Server is one process of `refundd serve`.
type Server struct {
	URL      string // of the API
	AdminURL string
	Logs     *Logs

	cmd  *exec.Cmd
	done chan struct{}
}

// Serve starts a server on free ports and waits until it serves. It is killed when the test ends.
func Serve(t testing.TB, databaseURL string, flags ...string) *Server {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(path, databaseURL, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	if err := s.await(); err != nil {
		t.Fatal(err)
	}
	return s
}

func start(path, databaseURL string, flags []string) (*Server, error) {
	args := append([]string{"serve", "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, flags...)
	s := &Server{Logs: newLogs(), done: make(chan struct{}), cmd: exec.CommandContext(context.Background(), path, args...)}
	s.cmd.Env = environment("DATABASE_URL=" + databaseURL)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	s.cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends: this one stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.Logs.read(stderr)
			_ = s.cmd.Wait() // its end is seen by done, its reason by the log
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start refundd serve: %w", err)
	}
	return s, nil
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
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.done
}

// Pause stops the process where it stands; Resume lets it go on.
func (s *Server) Pause(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Resume ends a pause.
func (s *Server) Resume(t testing.TB) { s.signal(t, syscall.SIGCONT) }

// Terminate asks the process to stop (SIGTERM), waits for its end and answers the exit code.
func (s *Server) Terminate(t testing.TB) int {
	t.Helper()
	s.signal(t, syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(stopWait):
		t.Errorf("refundd serve did not stop within %v of SIGTERM", stopWait)
		s.Kill()
	}
	return s.cmd.ProcessState.ExitCode()
}

func (s *Server) signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("signal refundd serve: %v", err)
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
	r, err := command(databaseURL, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func command(databaseURL string, args ...string) (Result, error) {
	path, err := binary()
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
