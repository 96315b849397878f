package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running postmaster, or the docker command in front of one.
type process struct {
	cmd       *exec.Cmd
	container string        // "" = server binaries
	done      chan struct{} // closed once it has ended and is reaped
}

// start runs cmd as the account (docker as ourselves: it is the engine that runs
// the server as another), in a session of its own (a Ctrl-C at the
// terminal is ours to handle), to be ended by the kernel with onDeath when we
// die. That signal is tied to the thread that started it, so the goroutine keeps
// its thread until the process has ended.
func start(cmd *exec.Cmd, a account, onDeath syscall.Signal) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: a.credential()}
	dieWithParent(cmd.SysProcAttr, onDeath)
	cmd.WaitDelay = time.Second // for a log pipe that a child still holds
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is told by the log and cmd.ProcessState
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", filepath.Base(cmd.Path), err)
	}
	return p, nil
}

// run runs cmd to its end and returns what it said where it failed.
func run(cmd *exec.Cmd, a account) error {
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := start(cmd, a, syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.done
	if cmd.ProcessState == nil || !cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %v: %s", filepath.Base(cmd.Path), cmd.ProcessState, strings.TrimSpace(said.String()))
	}
	return nil
}

// exited tells whether the process has ended.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// postmaster is the server's process id on this machine, 0 where Docker keeps
// it on another.
func (p *process) postmaster() int {
	if p.container == "" {
		return p.cmd.Process.Pid
	}
	out, err := exec.CommandContext(context.Background(), "docker", "inspect", "--format", "{{.State.Pid}}",
		p.container).Output()
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out))) // 0 = not running
	return pid
}

// kill ends the server and its children at one moment, as a power cut would:
// the postmaster is stopped first, so that it forks no child that is missed.
func (p *process) kill(wait time.Duration) error {
	if p.container != "" {
		if err := removeContainer(p.container); err != nil {
			return err
		}
		return p.await(wait)
	}
	if p.exited() {
		return nil
	}
	pid := p.cmd.Process.Pid
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // ErrProcessDone: it is gone already
	children := childrenOf(pid)
	_ = p.cmd.Process.Kill()
	killAll(children)
	if err := p.await(wait); err != nil {
		return err
	}
	return awaitGone(children, wait)
}

// stop asks for a fast shutdown and enforces an immediate one at ctx's end.
func (p *process) stop(ctx context.Context) error {
	_ = p.cmd.Process.Signal(syscall.SIGINT) // ErrProcessDone: it is gone already
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	if p.await(2*time.Second) == nil {
		return nil
	}
	return p.kill(killWait)
}

func (p *process) await(wait time.Duration) error {
	select {
	case <-p.done:
		return nil
	case <-time.After(wait):
		return fmt.Errorf("process %d does not end", p.cmd.Process.Pid)
	}
}

func killAll(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it is gone already
	}
}

func awaitGone(pids []int, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d does not end", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// endStale ends what a dead owner of the folder left running and removes its
// traces. The caller holds the folder's lock. A server that carries no mark of
// ours was started by somebody else: ErrInUse.
func (h *home) endStale() error {
	left, err := filepath.Glob(filepath.Join(h.place, "pgdata.new*"))
	if err != nil {
		return fmt.Errorf("read data folder: %w", err)
	}
	for _, path := range left {
		if err := awaitEndIn(path); err != nil {
			return err
		}
		_ = removeFolder(path) // best effort: the next start tries again
	}
	if name, err := os.ReadFile(filepath.Join(h.place, "container")); err == nil {
		if err := removeContainer(string(name)); err != nil {
			return err
		}
		return nil
	}
	if err := endServersOf(h.data()); err != nil {
		return err
	}
	dropSharedMemory(h.data())
	// Nothing serves the folder: a postmaster.pid that is still there names a
	// process id that may be anybody's by now.
	if err := os.Remove(filepath.Join(h.data(), "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a stale postmaster.pid: %w", err)
	}
	return nil
}

// awaitEndIn waits for the server programs of an initdb whose owner died: they
// end by themselves when their input does, and then leave no shared memory.
func awaitEndIn(unfinished string) error {
	pids, err := serversOf(unfinished)
	if err != nil {
		return err
	}
	if awaitGone(pids, 5*time.Second) == nil {
		return nil
	}
	killAll(pids)
	return awaitGone(pids, killWait)
}

// endServersOf ends the servers of a cluster that are ours.
func endServersOf(data string) error {
	pids, err := serversOf(data)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		// A process on its way out has no command any more.
		if command := commandOf(pid); command != "" && !strings.Contains(command, marker) {
			return fmt.Errorf("%w: process %d, not started by refundd, serves %s", ErrInUse, pid, data)
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGQUIT) // ESRCH: it is gone already
	}
	if awaitGone(pids, 5*time.Second) == nil {
		return nil
	}
	killAll(pids)
	return awaitGone(pids, killWait)
}

// serverLog opens the file that takes the server's log, and adds the caller's.
func (s *Server) serverLog() (*os.File, io.Writer, error) {
	f, err := os.OpenFile(filepath.Join(s.home.dir, "postgres.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open the server's log: %w", err)
	}
	if s.options.Log == nil {
		return f, f, nil
	}
	return f, io.MultiWriter(f, s.options.Log), nil
}
