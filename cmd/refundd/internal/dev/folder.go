// Package dev makes what refundd dev shows: a Postgres, a tenant with orders and approvals, a policy and a simulated
// provider of its own, in one folder.
//
// Its promises: whatever a start finds in its folder, after a stop or a kill, it takes up again; two never share a
// folder; nothing is written into a database or a folder of others.
package dev

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"

	"refundd/cmd/refundd/internal/fault"
)

// Folder is where dev keeps what a second start needs. One process at a time holds it, by a lock that dies with it.
type Folder struct {
	path string
	lock *flock.Flock
}

// Secrets are what a second start takes up again.
type Secrets struct {
	Role     string `json:"role"`     // whom the service logs in as
	Password string `json:"password"` // its password
	APIKey   string `json:"api_key"`  // "" until it was made
}

// Record is dev.json: where everything is, for scripts.
type Record struct {
	URL          string  `json:"url"`
	AdminURL     string  `json:"admin_url"`
	DatabaseURL  string  `json:"database_url"`
	SimulatorURL *string `json:"simulator_url"`
	TenantID     string  `json:"tenant_id"`
	APIKey       string  `json:"api_key"`
}

// OpenFolder makes the folder where it is absent and locks it.
func OpenFolder(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find --data: %w", err)
	}
	// not 0700: as root, Postgres runs as another account and has to pass
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fault.New(err, "--data %s cannot be made: %s", path, cause(err))
	}
	if err := refuseOthersFolder(path); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(path, "dev.lock"), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fault.New(err, "--data %s cannot be written: %s", path, cause(err))
	}
	if !locked {
		return nil, fault.New(nil, "another refundd dev is running on %s: stop it, or choose another --data", path)
	}
	f := &Folder{path: path, lock: lock}
	if err := f.Forget(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// refuseOthersFolder refuses a folder that holds anything and was not made by dev.
func refuseOthersFolder(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fault.New(err, "--data %s cannot be read: %s", path, cause(err))
	}
	ours := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "dev.lock" })
	if len(entries) == 0 || ours {
		return nil
	}
	return fault.New(nil, "--data %s holds other files (%s) and is not a folder of dev's: name a new or an empty one",
		path, entries[0].Name())
}

// cause is what the system said, without the path that the sentence has already named.
func cause(err error) string {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err.Error()
	}
	return err.Error()
}

// Close leaves the folder to the next one.
func (f *Folder) Close() { _ = f.lock.Close() }

// Secrets reads what an earlier start kept, or makes new ones.
func (f *Folder) Secrets() (Secrets, error) {
	var s Secrets
	raw, err := os.ReadFile(filepath.Join(f.path, "secrets.json"))
	if errors.Is(err, fs.ErrNotExist) {
		// Roles are the whole cluster's, which another folder may share: each has a role of its own.
		s = Secrets{Role: "refundd_dev_" + strings.ToLower(rand.Text()[:10]), Password: rand.Text()}
		return s, f.Keep(s)
	}
	if err != nil {
		return s, fmt.Errorf("read secrets.json: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil || s.Role == "" {
		return s, fault.New(err, "%s/secrets.json is damaged: remove it", f.path)
	}
	return s, nil
}

// Keep writes secrets for the next start.
func (f *Folder) Keep(s Secrets) error { return f.write("secrets.json", s) }

// Announce writes dev.json: from now on it is true.
func (f *Folder) Announce(r Record) error { return f.write("dev.json", r) }

// Forget removes dev.json, which tells of a server that does not serve any more.
func (f *Folder) Forget() error {
	err := os.Remove(filepath.Join(f.path, "dev.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove dev.json: %w", err)
	}
	return nil
}

// write replaces a file as one step; only this account may read it.
func (f *Folder) write(name string, v any) error {
	raw, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := renameio.WriteFile(filepath.Join(f.path, name), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
