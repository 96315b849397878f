package embedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Folders outside a data folder: throw-away homes, and clusters whose data
// folder the server's account cannot reach. The latter hold a note, origin,
// that names the data folder.
const (
	throwAwayPattern = "refundd-pg-*"
	elsewherePattern = "refundd-data-*"
	elsewhere        = "/var/lib/refundd"
)

// openThrowAway makes and locks a temporary home, and sweeps those whose
// owners are dead. One that need not be durable is kept in memory where there
// is room: cloning a database is ten times as fast there.
func openThrowAway(durable bool) (*home, error) {
	a, err := serverAccount("")
	if err != nil {
		return nil, err
	}
	base, err := tempBase(a)
	if err != nil {
		return nil, err
	}
	sweep(base)
	if memory, ok := memoryBase(); ok {
		sweep(memory)
		if !durable {
			base = memory
		}
	}
	for range 10 {
		h, err := makeThrowAway(base, a)
		if err != nil || h != nil {
			return h, err
		}
	}
	return nil, fmt.Errorf("make a temporary data folder in %s: each one was swept at once", base)
}

// makeThrowAway returns nil where a sweep of another process came between
// making the folder and locking it.
func makeThrowAway(base string, a account) (*home, error) {
	dir, err := os.MkdirTemp(base, throwAwayPattern)
	if err != nil {
		return nil, fmt.Errorf("make a temporary data folder: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make a temporary data folder: %w", err)
	}
	lock, err := lockFolder(dir)
	if errors.Is(err, ErrInUse) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !stillAt(lock, filepath.Join(dir, "lock")) {
		_ = lock.Close()
		return nil, nil
	}
	return &home{dir: dir, place: dir, account: a, locks: []*flock.Flock{lock}}, nil
}

// stillAt tells whether path still names the locked file.
func stillAt(f *flock.Flock, path string) bool {
	open, err1 := f.Stat()
	named, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(open, named)
}

// tempBase is the first temporary folder that the account can reach.
func tempBase(a account) (string, error) {
	for _, base := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if dir, err := filepath.EvalSymlinks(base); err == nil && a.canReach(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no temporary folder is open to the account that Postgres would run as (uid %d)", a.uid)
}

// memoryBase is Linux's shared memory folder, where it is roomy: containers
// often get only 64 MB of it.
func memoryBase() (string, bool) {
	const dir, room = "/dev/shm", 4 << 30 // bytes
	return dir, freeSpace(dir) >= room
}

// makeElsewhere makes room for the cluster of a data folder that the account
// cannot reach: among the temporary folders if it is one itself, else where
// packages keep theirs. What an interrupted start left for it is removed.
func makeElsewhere(a account, origin string) (string, error) {
	base, err := elsewhereBase(a, origin)
	if err != nil {
		return "", err
	}
	sweep(base)
	place, err := os.MkdirTemp(base, elsewherePattern)
	if err != nil {
		return "", fmt.Errorf("make room for the cluster of %s: %w", origin, err)
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(place, "origin"), []byte(origin), 0o600),
		os.Chmod(place, 0o711),
	)
	if err != nil {
		return "", fmt.Errorf("make room for the cluster of %s: %w", origin, err)
	}
	return place, nil
}

func elsewhereBase(a account, origin string) (string, error) {
	if temp, err := filepath.EvalSymlinks(os.TempDir()); err == nil && strings.HasPrefix(origin, temp+"/") {
		return tempBase(a)
	}
	if err := os.MkdirAll(elsewhere, 0o755); err != nil {
		return "", fmt.Errorf("make room for the cluster of %s: %w", origin, err)
	}
	if !a.canReach(elsewhere) {
		return "", fmt.Errorf("the account that Postgres would run as (uid %d) can reach neither %s nor %s: name another data folder", a.uid, origin, elsewhere)
	}
	return elsewhere, nil
}

// sweep removes what dead owners left in base. It is best effort: a folder
// that cannot be locked or removed is somebody else's.
func sweep(base string) {
	for _, pattern := range []string{throwAwayPattern, elsewherePattern} {
		found, _ := filepath.Glob(filepath.Join(base, pattern)) // the patterns are well-formed
		for _, dir := range found {
			sweepOne(base, dir)
		}
	}
}

func sweepOne(base, dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return // another user's, who must not steer what we end and remove
	}
	lock := flock.New(filepath.Join(dir, "lock"), flock.SetFlag(os.O_RDWR)) // not made where it is absent
	locked, err := lock.TryLock()
	if errors.Is(err, fs.ErrNotExist) && time.Since(info.ModTime()) > time.Hour {
		_ = os.RemoveAll(dir) // made, and never locked: its owner is not about to any more
	}
	if err != nil || !locked {
		return
	}
	defer func() { _ = lock.Close() }()
	if abandoned(base, dir) {
		left := &home{dir: dir, place: dir}
		if left.endStale() == nil {
			_ = removeFolder(dir)
		}
	}
}

// removeFolder removes a folder in which a process that is on its way out may
// still make files.
func removeFolder(dir string) error {
	var err error
	for range 40 {
		err = os.RemoveAll(dir)
		if _, gone := os.Lstat(dir); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// abandoned tells whether nobody can come back for a folder: a throw-away one
// whose owner is dead, or a cluster that its data folder does not link to. In
// a place for lasting data only the latter's unfinished ones go, never one
// whose data folder may merely have been moved.
func abandoned(base, dir string) bool {
	origin, err := os.ReadFile(filepath.Join(dir, "origin"))
	if err != nil {
		return strings.HasPrefix(filepath.Base(dir), strings.TrimSuffix(throwAwayPattern, "*"))
	}
	if target, err := os.Readlink(filepath.Join(string(origin), "pgdata")); err == nil &&
		target == filepath.Join(dir, "pgdata") {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, "pgdata"))
	return base != elsewhere || errors.Is(err, fs.ErrNotExist)
}
