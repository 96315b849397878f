package embedpg_test

import (
	"context"
	"errors"
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

func TestStart_IgnoresThePostgresVariablesOfItsEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PGPORT": "1", "PGHOST": "/nowhere", "PGDATA": "/nowhere", "PGUSER": "nobody", "PGPASSWORD": "no",
		"PGDATABASE": "none", "PGSSLMODE": "verify-full", "LC_ALL": "xx_XX", "TZ": "Asia/Tokyo",
	} {
		t.Setenv(name, value)
	}
	s := startServer(t, embedpg.Options{})
	if got := query[string](t, s.URL(), "SHOW timezone"); got != "UTC" {
		t.Errorf("timezone = %s", got)
	}
}

func TestStart_SettingsAreTheCallers(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{Settings: map[string]string{"max_connections": "37", "cluster_name": "stolen"}})
	if got := query[string](t, s.URL(), "SHOW max_connections"); got != "37" {
		t.Errorf("max_connections = %s", got)
	}
	if got := query[string](t, s.URL(), "SHOW cluster_name"); got == "stolen" {
		t.Error("the mark that tells our servers apart was overwritten")
	}
}

func TestStart_BadSettingSaysWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	_, err := embedpg.Start(t.Context(), embedpg.Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("err = %v", err)
	}
}

func TestStart_ClusterOfAVersionThatIsNotInstalledIsNamed(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	data := filepath.Join(dir, "pgdata")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := embedpg.Start(t.Context(), embedpg.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "made by Postgres 9") {
		t.Errorf("err = %v", err)
	}
}

func TestStart_LostPasswordIsNamedAndNothingIsRemade(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := startServer(t, embedpg.Options{Dir: dir})
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(dir, "password")
	if err := os.Rename(password, password+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := embedpg.Start(t.Context(), embedpg.Options{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "password") {
		t.Errorf("err = %v", err)
	}
	if err := os.Rename(password+".away", password); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, embedpg.Options{Dir: dir})
	if got := query[int](t, again.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
}

func TestStart_FolderThatASomebodyElsesServerServesIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	s := startServer(t, embedpg.Options{Dir: dir})
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	url := s.URL()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	byHand := exec.CommandContext(t.Context(), "postgres", "-D", filepath.Join(dir, "pgdata"), "-p",
		strconv.Itoa(int(config.Port)),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	byHand.SysProcAttr = asOwnerOf(t, filepath.Join(dir, "pgdata"))
	byHand.Cancel = func() error { return byHand.Process.Signal(syscall.SIGINT) }
	if err := byHand.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = byHand.Process.Signal(syscall.SIGINT)
		_ = byHand.Wait()
	})
	eventually(t, "it serves", func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	})
	if _, err := embedpg.Start(t.Context(), embedpg.Options{Dir: dir}); !errors.Is(err, embedpg.ErrInUse) {
		t.Errorf("err = %v", err)
	}
	if got := query[int](t, url, "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
}

func TestStop_IsBoundedWhileClientsAreBusy(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{Dir: folder(t)})
	for range 5 {
		keepBusy(t, s.URL(), "SELECT pg_sleep(60)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestServer_IsOutOfReachOfTheTerminalsCtrlC(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{})
	group, err := syscall.Getpgid(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if group == syscall.Getpgrp() {
		t.Error("the server is in our process group")
	}
}

func TestDone_TellsThatTheServerEndedByItself(t *testing.T) {
	t.Parallel()
	s := startServer(t, embedpg.Options{})
	done := s.Done()
	if err := syscall.Kill(s.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("never told")
	}
}

func TestStart_WithoutAnyPostgresSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := embedpg.FindNothing(t.Context()); !errors.Is(err, embedpg.ErrNoPostgres) {
		t.Errorf("err = %v", err)
	}
}

// pretended is a folder of server binaries that call themselves the version.
func pretended(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind_PATHChoosesAmongVersionsAndElseTheNewestIsTaken(t *testing.T) {
	oldest, newest, tooOld := pretended(t, "14.23"), pretended(t, "18.4"), pretended(t, "13.23")
	packaged := []string{oldest, newest, tooOld}
	for _, c := range []struct {
		path string
		want int
		dir  string
	}{
		{oldest, 0, oldest}, {newest, 0, newest}, {tooOld, 0, newest}, {t.TempDir(), 0, newest},
		{oldest, 18, newest}, {newest, 14, oldest},
	} {
		t.Setenv("PATH", c.path+":/bin")
		if dir, err := embedpg.FindAmong(t.Context(), c.want, packaged); dir != c.dir || err != nil {
			t.Errorf("PATH %s, want %d: %s, %v, want %s", c.path, c.want, dir, err, c.dir)
		}
	}
}
