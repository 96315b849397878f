package containers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const (
	version  = "0.0.1-ci"
	revision = "abc123"
	busybox  = "/bin/busybox" // Debian: busybox-static
)

// images are made once, for all tests, and removed after the last one.
var images = imageSet{name: fmt.Sprintf("refundd-containers-%d", os.Getpid())}

type imageSet struct {
	name string
	made []string

	service, postgres lazy
}

type lazy struct {
	once sync.Once
	ref  string
	err  error
}

func (l *lazy) get(t testing.TB, build func(context.Context) (string, error)) string {
	t.Helper()
	l.once.Do(func() { l.ref, l.err = build(context.Background()) })
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.ref
}

// refunddImage is REFUNDD_IMAGE, or what the Dockerfile makes.
func refunddImage(t testing.TB) string {
	t.Helper()
	return images.service.get(t, func(ctx context.Context) (string, error) {
		if image := os.Getenv("REFUNDD_IMAGE"); image != "" {
			return image, nil
		}
		base, err := images.golang(ctx, root(t))
		if err != nil {
			return "", fmt.Errorf("make an image of Go: %w", err)
		}
		return images.build(ctx, root(t),
			map[string]string{"BUILD_IMAGE": base, "VERSION": version, "REVISION": revision})
	})
}

// postgresImage is POSTGRES_IMAGE, or made of this machine's Postgres, or the official image.
func postgresImage(t testing.TB) string {
	t.Helper()
	return images.postgres.get(t, func(ctx context.Context) (string, error) {
		home := postgresHome()
		if image := os.Getenv("POSTGRES_IMAGE"); image != "" || home == "" {
			return cmp.Or(image, "postgres:17"), nil
		}
		return images.postgresFrom(ctx, home)
	})
}

// build runs the Dockerfile by the classic builder, which needs no image of its own.
func (s *imageSet) build(ctx context.Context, folder string, values map[string]string) (string, error) {
	args := map[string]*string{}
	for name, value := range values {
		args[name] = &value
	}
	var said bytes.Buffer
	ref, err := engine.BuildImage(ctx, &testcontainers.ContainerRequest{FromDockerfile: testcontainers.FromDockerfile{
		Context: folder, BuildArgs: args, Repo: s.name, Tag: "refundd", BuildLogWriter: &said,
	}})
	if err != nil {
		return "", fmt.Errorf("build the Dockerfile: %w\n%s", err, said.String())
	}
	s.made = append(s.made, ref)
	return ref, nil
}

// importFiles makes an image of the files that fill writes.
func (s *imageSet) importFiles(ctx context.Context, tag string, fill func(*files) error,
	changes ...string) (string, error) {
	ref := s.name + ":" + tag
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(archive(w, fill)) }() // never fails
	defer r.Close()
	result, err := docker().ImageImport(ctx, client.ImageImportSource{Source: r, SourceName: "-"}, ref,
		client.ImageImportOptions{Changes: changes})
	if err != nil {
		return "", err
	}
	defer result.Close()
	said, err := io.ReadAll(result)
	if err != nil {
		return "", err
	}
	if bytes.Contains(said, []byte(`"error"`)) {
		return "", fmt.Errorf("import: %s", said)
	}
	s.made = append(s.made, ref)
	return ref, nil
}

func (s *imageSet) remove() error {
	var faults []error
	for _, ref := range slices.Backward(s.made) {
		_, err := docker().ImageRemove(context.Background(), ref,
			client.ImageRemoveOptions{Force: true, PruneChildren: true})
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// golang is BUILD_IMAGE, or made of this machine's Go and the modules that go.sum names, so that nothing is downloaded
// while the Dockerfile is built, or the official image.
func (s *imageSet) golang(ctx context.Context, folder string) (string, error) {
	_, err := os.Stat(busybox)
	if image := os.Getenv("BUILD_IMAGE"); image != "" || err != nil {
		return cmp.Or(image, "golang:1.26-bookworm"), nil
	}
	modules, err := os.MkdirTemp("", "refundd-modules-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(modules)
	goroot, cache := goEnv(ctx, "GOROOT"), goEnv(ctx, "GOMODCACHE")
	if err := download(ctx, folder, modules, cache); err != nil {
		return "", err
	}
	fill := func(f *files) error {
		f.shell()
		f.copy("/etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/ca-certificates.crt")
		for _, part := range []string{"bin", "src", "pkg", "go.env", "VERSION"} {
			f.copy(filepath.Join(goroot, part), "usr/local/go/"+part)
		}
		f.copy(filepath.Join(modules, "cache", "download"), "modules")
		return f.err
	}
	return s.importFiles(ctx, "go", fill,
		"ENV PATH=/usr/local/go/bin:/bin HOME=/tmp GOTOOLCHAIN=local GOPROXY=file:///modules GONOSUMDB=*")
}

// download brings what go.sum names, and no more, into a module cache, from the machine's own where it is there.
func download(ctx context.Context, folder, modules, cache string) error {
	for _, env := range [][]string{nil, {
		"GOMODCACHE=" + modules, "GOPROXY=file://" +
			filepath.Join(cache, "cache", "download"), "GONOSUMDB=*", "GOFLAGS=-modcacherw",
	}} {
		cmd := exec.CommandContext(ctx, "go", "mod", "download")
		cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go mod download: %w\n%s", err, out)
		}
	}
	return nil
}

func goEnv(ctx context.Context, name string) string {
	out, _ := exec.CommandContext(ctx, "go", "env", name).Output() // "" leads nowhere, and is told of there
	return strings.TrimSpace(string(out))
}

// postgresHome is where Debian's newest Postgres is, "" where none is or there is no shell to put beside it.
func postgresHome() string {
	if _, err := os.Stat(busybox); err != nil {
		return ""
	}
	homes, _ := filepath.Glob("/usr/lib/postgresql/[0-9][0-9]") // the pattern is well-formed
	return cmp.Or(homes[max(0, len(homes)-1):]...)
}

// startPostgres does what the official image's entry point does for us.
const startPostgres = `#!/bin/sh
set -e
data=${PGDATA:-/var/lib/postgresql/data}
if [ ! -s "$data/PG_VERSION" ]; then
	printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
	initdb -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --locale=C --lc-ctype=C.UTF-8 -E UTF8
	rm /tmp/password
	echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
	[ "$POSTGRES_DB" = postgres ] || echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$data" postgres
fi
exec "$@" -D "$data" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
`

// postgresFrom makes an image that stands in for the official one.
func (s *imageSet) postgresFrom(ctx context.Context, home string) (string, error) {
	const account = 70
	libraries, err := librariesOf(ctx, filepath.Join(home, "bin", "postgres"), filepath.Join(home, "bin", "initdb"),
		filepath.Join(home, "bin", "pg_isready"))
	if err != nil {
		return "", err
	}
	fill := func(f *files) error {
		f.shell()
		f.copy(filepath.Join(home, "bin"), home+"/bin")
		// no compiler of plans: its libraries are large
		f.copy(filepath.Join(home, "lib"), home+"/lib", "bitcode", "pgxs", "llvmjit.so")
		f.copy("/usr/share/postgresql/"+filepath.Base(home), "usr/share/postgresql/"+filepath.Base(home))
		f.copy("/usr/share/zoneinfo", "usr/share/zoneinfo")
		f.copy("/usr/lib/locale/C.utf8", "usr/lib/locale/C.utf8")
		for _, library := range libraries {
			f.copy(library, library)
		}
		f.text("etc/passwd", 0o644, "root:x:0:0::/:/bin/sh\npostgres:x:70:70::/var/lib/postgresql:/bin/sh\n")
		f.text("etc/group", 0o644, "root:x:0:\npostgres:x:70:\n")
		f.text("bin/start", 0o755, startPostgres)
		f.folder("var/run/postgresql", 0o755, account)
		f.folder("var/lib/postgresql", 0o755, account)
		f.folder("var/lib/postgresql/data", 0o700, account)
		return f.err
	}
	return s.importFiles(ctx, "postgres", fill, "ENV PATH="+home+"/bin:/bin", "USER 70:70",
		`ENTRYPOINT ["/bin/start"]`, `CMD ["postgres"]`)
}

// librariesOf are the shared libraries of programs, by the names they are loaded by.
func librariesOf(ctx context.Context, programs ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", programs...).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
				found = append(found, word)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
