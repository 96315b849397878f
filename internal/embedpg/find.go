package embedpg

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	oldestMajor = 14 // of Postgres, by the schema's needs
	imageMajor  = 17 // of the image, for a new cluster
)

// packaged is where packages put the server's binaries; .ci/need looks there too.
var packaged = []string{
	"/usr/lib/postgresql/*/bin",          // Debian
	"/usr/pgsql-*/bin",                   // the rpms of postgresql.org
	"/usr/lib/postgresql*/bin",           // SUSE
	"/usr/libexec/postgresql*",           // Alpine
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew, Apple silicon
	"/usr/local/opt/postgresql@*/bin",    // Homebrew, Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/local/pgsql/bin", // from source
}

// install is a way to run Postgres: server binaries in a folder, or Docker.
type install struct {
	bin   string // folder of initdb and postgres; "" = Docker
	major int
}

func (i install) docker() bool { return i.bin == "" }

// findInstall returns the binaries that PATH leads to, else the newest, or for
// an existing cluster those of its major version: Postgres reads no other's
// data. want 0 = any.
func findInstall(ctx context.Context, want int, packaged []string) (install, error) {
	if want != 0 && want < oldestMajor {
		return install{}, fmt.Errorf("the data folder was made by Postgres %d, and refundd needs %d or newer: name another folder", want, oldestMajor)
	}
	found := installed(ctx, packaged)
	for _, i := range found {
		if want == 0 || i.major == want {
			return i, nil
		}
	}
	if dockerRuns(ctx) {
		return install{major: cmp.Or(want, imageMajor)}, nil
	}
	if len(found) > 0 {
		return install{}, fmt.Errorf("the data folder was made by Postgres %d, whose server is not installed (found: %d)",
			want, found[0].major)
	}
	return install{}, ErrNoPostgres
}

// installed lists server binaries of a usable version: PATH's, then the
// packaged ones, newest first.
func installed(ctx context.Context, packaged []string) []install {
	var found []install
	for _, pattern := range packaged {
		dirs, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, dir := range dirs {
			if i, ok := inspect(ctx, dir); ok {
				found = append(found, i)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b install) int { return b.major - a.major })
	if i, ok := inspectPath(ctx); ok {
		found = slices.Insert(found, 0, i)
	}
	return found
}

// inspectPath asks the server that PATH leads to.
func inspectPath(ctx context.Context) (install, bool) {
	program, err := exec.LookPath("postgres")
	if err != nil {
		return install{}, false
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return install{}, false
	}
	return inspect(ctx, filepath.Dir(program))
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect asks the binaries of a folder for their version.
func inspect(ctx context.Context, dir string) (install, bool) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return install{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return install{}, false
	}
	m := versionPattern.FindStringSubmatch(string(out))
	if m == nil {
		return install{}, false
	}
	major, err := strconv.Atoi(m[1])
	return install{bin: dir, major: major}, err == nil && major >= oldestMajor
}

// dockerRuns tells whether a Docker engine answers.
func dockerRuns(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}").Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}
