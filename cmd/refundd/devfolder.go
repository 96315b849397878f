package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// devFolder is where dev keeps what a second start needs. One process at a time holds it, by a lock that dies with it.
type devFolder struct {
	path string
	lock *os.File
}

// devSecrets are what a second start takes up again.
type devSecrets struct {
	Role     string `json:"role"`     // whom the service logs in as
	Password string `json:"password"` // its password
	APIKey   string `json:"api_key"`  // "" until it was made
}

// devRecord is dev.json: where everything is, for scripts.
type devRecord struct {
	URL          string  `json:"url"`
	AdminURL     string  `json:"admin_url"`
	DatabaseURL  string  `json:"database_url"`
	SimulatorURL *string `json:"simulator_url"`
	TenantID     string  `json:"tenant_id"`
	APIKey       string  `json:"api_key"`
}

// openFolder makes the folder where it is absent and locks it.
func openFolder(path string) (*devFolder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find --data: %w", err)
	}
	if err := os.MkdirAll(path, 0o755); err != nil { // not 0700: as root, Postgres runs as another account and has to pass
		return nil, &fault{text: fmt.Sprintf("--data %s cannot be made: %s", path, cause(err)), cause: err}
	}
	if err := refuseOthersFolder(path); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "dev.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &fault{text: fmt.Sprintf("--data %s cannot be written: %s", path, cause(err)), cause: err}
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, &fault{text: fmt.Sprintf("another refundd dev is running on %s: stop it, or choose another --data", path), cause: err}
	}
	f := &devFolder{path: path, lock: lock}
	if err := f.forget(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// refuseOthersFolder refuses a folder that holds anything and was not made by dev.
func refuseOthersFolder(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return &fault{text: fmt.Sprintf("--data %s cannot be read: %s", path, cause(err)), cause: err}
	}
	ours := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "dev.lock" })
	if len(entries) == 0 || ours {
		return nil
	}
	return &fault{text: fmt.Sprintf("--data %s holds other files (%s) and is not a folder of dev's: name a new or an empty one", path, entries[0].Name())}
}

// cause is what the system said, without the path that the sentence has already named.
func cause(err error) string {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err.Error()
	}
	return err.Error()
}

func (f *devFolder) close() { _ = f.lock.Close() }

// secrets reads what an earlier start kept, or makes new ones.
func (f *devFolder) secrets() (devSecrets, error) {
	var s devSecrets
	raw, err := os.ReadFile(filepath.Join(f.path, "secrets.json"))
	if errors.Is(err, fs.ErrNotExist) {
		// Roles are the whole cluster's, which another folder may share: each has a role of its own.
		s = devSecrets{Role: "refundd_dev_" + strings.ToLower(rand.Text()[:10]), Password: rand.Text()}
		return s, f.keep(s)
	}
	if err != nil {
		return s, fmt.Errorf("read secrets.json: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil || s.Role == "" {
		return s, &fault{text: fmt.Sprintf("%s/secrets.json is damaged: remove it", f.path), cause: err}
	}
	return s, nil
}

func (f *devFolder) keep(s devSecrets) error { return f.write("secrets.json", s) }

// announce writes dev.json: from now on it is true.
func (f *devFolder) announce(r devRecord) error { return f.write("dev.json", r) }

// forget removes dev.json, which tells of a server that does not serve any more.
func (f *devFolder) forget() error {
	err := os.Remove(filepath.Join(f.path, "dev.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove dev.json: %w", err)
	}
	return nil
}

// write replaces a file as one step; only this account may read it.
func (f *devFolder) write(name string, v any) (err error) {
	raw, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	file, err := os.CreateTemp(f.path, name+".*.tmp") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = file.Write(append(raw, '\n'))
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(f.path, name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}
