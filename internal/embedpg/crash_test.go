package embedpg_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/embedpg"
)

// endless keeps a backend too busy to notice that its postmaster died.
const endless = "DO $$ BEGIN LOOP END LOOP; END $$"

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
	keepBusy(t, o.url, endless)
	_ = syscall.Kill(o.pid, syscall.SIGKILL) // the busy backend does not notice
	o.kill9(t)
	s := startServer(t, embedpg.Options{Dir: o.dir})
	if got := query[int](t, s.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
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

func TestStart_StalePidFileThatNamesAnInnocentProcess(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := startServer(t, embedpg.Options{Dir: dir})
	data := filepath.Join(dir, "pgdata")
	pidFile, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	innocent := exec.CommandContext(t.Context(), "sleep", "60")
	innocent.SysProcAttr = asOwnerOf(t, data) // Postgres believes a pid file that names a process of its own account
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = innocent.Process.Kill()
		_ = innocent.Wait()
	})
	_, rest, _ := strings.Cut(string(pidFile), "\n")
	stale := strconv.Itoa(innocent.Process.Pid) + "\n" + rest
	if err := os.WriteFile(filepath.Join(data, "postmaster.pid"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, embedpg.Options{Dir: dir})
	query[int](t, again.URL(), "SELECT 1")
	if !running(innocent.Process.Pid) {
		t.Error("the innocent process was ended")
	}
}

func TestKill_TakesBusyChildrenAlong(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{Durable: true})
	backend := keepBusy(t, s.URL(), endless)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if running(backend) {
		t.Error("a backend outlived the power cut")
	}
	if err := s.Kill(); err != nil {
		t.Errorf("second kill: %v", err)
	}
}

func TestKill_UnderLoadLosesNoAcknowledgedCommit(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{Durable: true})
	exec1(t, s.URL(), "CREATE TABLE acked (n int PRIMARY KEY)")
	for round := range 3 {
		var last atomic.Int64
		conn, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			defer conn.Close(context.Background())
			for n := round * 1_000_000; ; n++ {
				if _, err := conn.Exec(context.Background(), "INSERT INTO acked VALUES ($1)", n); err != nil {
					return
				}
				last.Store(int64(n))
			}
		}()
		eventually(t, "some commits", func() bool { return last.Load() > int64(round*1_000_000+50) })
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		<-stopped
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		sql := fmt.Sprintf("SELECT count(*) FROM acked WHERE n BETWEEN %d AND %d", round*1_000_000, last.Load())
		if got, want := query[int64](t, s.URL(), sql), last.Load()-int64(round*1_000_000)+1; got != want {
			t.Errorf("%d of %d acknowledged commits are there", got, want)
		}
	}
}
