package embedpg_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"refundd/internal/embedpg"
)

// asOwnerOf runs a command as the account that owns path.
func asOwnerOf(t *testing.T, path string) *syscall.SysProcAttr {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if int(st.Uid) == os.Geteuid() {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
}

// closedFolder is a data folder below one that only its owner may pass.
func closedFolder(t *testing.T, base string) (closed, dir string) {
	t.Helper()
	closed, err := os.MkdirTemp(base, "embedpg-closed-") // mode 0700
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(closed) })
	return closed, filepath.Join(closed, "checkout", ".refundd")
}

// keptTwice starts the folder twice and finds in the second what the first wrote.
func keptTwice(t *testing.T, dir string) {
	t.Helper()
	s := startServer(t, embedpg.Options{Dir: dir})
	exec1(t, s.URL(), "CREATE TABLE kept AS SELECT 7 AS n")
	if _, err := embedpg.Start(t.Context(), embedpg.Options{Dir: dir}); !errors.Is(err, embedpg.ErrInUse) {
		t.Errorf("second start: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, embedpg.Options{Dir: dir})
	if got := query[int](t, again.URL(), "SELECT n FROM kept"); got != 7 {
		t.Errorf("n = %d", got)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestStart_BelowAFolderThatOnlyItsOwnerMayPass(t *testing.T) {
	t.Parallel()
	closed, dir := closedFolder(t, "/tmp")
	keptTwice(t, dir)
	place, err := filepath.EvalSymlinks(filepath.Join(dir, "pgdata"))
	if err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(filepath.Join(dir, "postgres.log")); !strings.HasPrefix(place, dir) &&
		!strings.Contains(string(log), filepath.Dir(place)) {
		t.Errorf("the log does not say where the cluster is: %s, %v", log, err)
	}
	// A temporary data folder that is gone takes a cluster kept elsewhere along.
	if err := os.RemoveAll(closed); err != nil {
		t.Fatal(err)
	}
	_, other := closedFolder(t, "/tmp")
	startServer(t, embedpg.Options{Dir: other})
	if _, err := os.Stat(place); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", place, err)
	}
}

func TestStart_BelowTheHomeFolder(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	_, dir := closedFolder(t, home)
	t.Cleanup(func() {
		place, err := filepath.EvalSymlinks(filepath.Join(dir, "pgdata"))
		if err == nil && !strings.HasPrefix(place, home) {
			_ = os.RemoveAll(filepath.Dir(place))
		}
	})
	keptTwice(t, dir)
}

func TestStart_ClusterElsewhereThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/pgdata", filepath.Join(dir, "pgdata")); err != nil {
		t.Fatal(err)
	}
	_, err := embedpg.Start(t.Context(), embedpg.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("err = %v", err)
	}
}

// An ordinary user is what most callers are; where the tests run as root, a
// child of theirs is one.
func TestStart_AsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(dir), "owner")
	copyProgram(t, program)
	var attr *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), ownerFolder + "=" + dir}
		cmd.Dir = "/"
		cmd.SysProcAttr = attr
		o := runOwner(t, cmd)
		query[int](t, o.url, "SELECT 1")
		o.kill9(t)
	}
	// What an ordinary user made, root runs as that user.
	s := startServer(t, embedpg.Options{Dir: dir})
	query[int](t, s.URL(), "SELECT 1")
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
