package embedpg

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// home is a data folder that this process holds the lock of.
//
//	lock          flock; holds the owner's process id, for the message of ErrInUse
//	password      of the superuser, mode 0600
//	port          the last one served
//	postgres.log  of the last start
//	container     the Docker container's name, beside pgdata, where Docker runs it
//	pgdata        the cluster, or a link to it where the server's account
//	              cannot reach this folder
type home struct {
	dir     string
	place   string // the folder that holds pgdata: dir, or one elsewhere
	account account
	locks   []*flock.Flock
}

// openHome locks dir, or a fresh throw-away folder for "", and finds its cluster.
func openHome(dir string, durable bool) (*home, error) {
	if dir == "" {
		return openThrowAway(durable)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve data folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("resolve data folder: %w", err)
	}
	h := &home{dir: dir}
	if err := h.relock(); err != nil {
		return nil, err
	}
	if err := h.findPlace(); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// relock takes the folder's lock unless it is held already.
func (h *home) relock() error {
	if len(h.locks) > 0 {
		return nil
	}
	f, err := lockFolder(h.dir)
	if err != nil {
		return err
	}
	h.locks = []*flock.Flock{f}
	if h.place != "" && h.place != h.dir {
		return h.lockPlace()
	}
	return nil
}

// lockPlace keeps a sweep of another process away from a cluster elsewhere.
func (h *home) lockPlace() error {
	f, err := lockFolder(h.place)
	if err != nil {
		return err
	}
	h.locks = append(h.locks, f)
	return nil
}

// close gives the folder up.
func (h *home) close() {
	for _, f := range h.locks {
		_ = f.Close() // the kernel drops the lock with the descriptor
	}
	h.locks = nil
}

// lockFolder takes the flock of a folder, which dies with the process.
func lockFolder(dir string) (*flock.Flock, error) {
	path := filepath.Join(dir, "lock")
	lock := flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if !locked {
		owner, _ := os.ReadFile(path) // only words for the message
		return nil, fmt.Errorf("%w: another refundd (process %s) serves %s", ErrInUse, bytes.TrimSpace(owner), dir)
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("lock data folder: %w", err), lock.Close())
	}
	return lock, nil
}

// findPlace decides where the cluster is, or will be made.
func (h *home) findPlace() error {
	link := filepath.Join(h.dir, "pgdata")
	info, err := os.Lstat(link)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h.choosePlace()
	case err != nil:
		return fmt.Errorf("read data folder: %w", err)
	case info.Mode()&fs.ModeSymlink == 0:
		h.place = h.dir
	default:
		target, err := os.Readlink(link)
		if err != nil {
			return fmt.Errorf("read data folder: %w", err)
		}
		if _, err := os.Stat(target); err != nil {
			return fmt.Errorf("the cluster that %s links to is gone: put it back, or remove the link to begin anew: %w",
				link,
				err)
		}
		h.place = filepath.Dir(target)
		if err := h.lockPlace(); err != nil {
			return err
		}
	}
	if h.account, err = serverAccount(h.data()); err != nil {
		return err
	}
	if !h.account.canReach(h.place) {
		return fmt.Errorf("the account that owns %s (uid %d) cannot pass through the folders above it", h.data(),
			h.account.uid)
	}
	return nil
}

// choosePlace finds room for a new cluster: in the folder itself, or where the
// server's account can reach.
func (h *home) choosePlace() error {
	var err error
	if h.account, err = serverAccount(h.data()); err != nil {
		return err
	}
	if h.account.canReach(h.dir) {
		h.place = h.dir
		return nil
	}
	if h.place, err = makeElsewhere(h.account, h.dir); err != nil {
		return err
	}
	return h.lockPlace()
}

// data is the cluster's own folder.
func (h *home) data() string { return filepath.Join(h.place, "pgdata") }

// version is the major version that made the cluster, 0 where there is none.
func (h *home) version() int {
	b, err := os.ReadFile(filepath.Join(h.data(), "PG_VERSION"))
	if err != nil {
		return 0
	}
	v, _ := strconv.Atoi(string(bytes.TrimSpace(b))) // 0 = unreadable: any version will tell why
	return v
}

// readPort is the port served last, 0 where none is known.
func (h *home) readPort() int {
	b, err := os.ReadFile(filepath.Join(h.dir, "port"))
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(string(bytes.TrimSpace(b))) // a damaged note only costs the same port
	return port
}

// readOrMakePassword returns the superuser's password. It is made before the
// cluster is, so that a cluster always finds its own.
func (h *home) readOrMakePassword() (string, error) {
	b, err := os.ReadFile(filepath.Join(h.dir, "password"))
	if errors.Is(err, fs.ErrNotExist) && h.version() == 0 {
		password := rand.Text()
		return password, h.writeFile("password", password+"\n")
	}
	if err != nil {
		return "", fmt.Errorf("read the cluster's password: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// writeFile replaces a note of the folder at once, readable by its owner alone.
func (h *home) writeFile(name, content string) error {
	if err := renameio.WriteFile(filepath.Join(h.dir, name), []byte(content), 0o600); err != nil {
		return fmt.Errorf("write data folder: %w", err)
	}
	return nil
}

// logTail is the end of the server's log, for an error's message.
func (h *home) logTail() string {
	b, err := os.ReadFile(filepath.Join(h.dir, "postgres.log"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return ": " + strings.Join(lines[max(0, len(lines)-4):], "; ")
}
