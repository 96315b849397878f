package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Child is a server in a process of its own on this machine, with its log in a file.
type Child struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
}

const (
	childStart = time.Minute
	childStop  = 30 * time.Second
)

// StartChild starts the command, whose stdout and stderr go to a file of the folder, and returns once address
// (host:port) takes connections. Where the command ends before that, the error is its last line.
func StartChild(ctx context.Context, folder, address string, cmd *exec.Cmd) (*Child, error) {
	// Appended to: it may be emptied while the child writes.
	log, err := os.OpenFile(filepath.Join(folder, filepath.Base(cmd.Path)+"-"+filepath.Base(address)+".log"),
		os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), errors.Join(err, log.Close()))
	}
	c := &Child{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(c.done)
	}()
	if err := c.await(ctx, address); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Child) await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, childStart)
	defer cancel()
	var dialer net.Dialer
	for {
		if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			return conn.Close()
		}
		select {
		case <-c.done:
			return fmt.Errorf("%s ended: %s", filepath.Base(c.cmd.Path), c.lastLine())
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w: %s", filepath.Base(c.cmd.Path), context.Cause(ctx), c.lastLine())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Child) lastLine() string {
	if _, err := c.log.Seek(0, io.SeekStart); err != nil {
		return err.Error()
	}
	last := []byte("it logged nothing")
	for lines := bufio.NewScanner(c.log); lines.Scan(); {
		last = bytes.Clone(lines.Bytes())
	}
	return string(last)
}

// Used is what the child used so far.
func (c *Child) Used(ctx context.Context) (Used, error) { return OfProcess(c.cmd.Process.Pid)(ctx) }

// PID is the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// EmptyLog forgets what was logged: a line for each request adds up.
func (c *Child) EmptyLog() error { return c.log.Truncate(0) }

// Stop asks the child to end (SIGTERM), and kills it where it does not.
func (c *Child) Stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.done:
	case <-time.After(childStop):
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.done
	}
	_ = c.log.Close() // nothing is written through it here
}

// FreeAddress is an address of the loopback that nothing listens on at the moment.
func FreeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
