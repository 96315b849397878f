// Package containers runs refundd as its image and on a Postgres in a container, by testcontainers-go: what the
// Dockerfile and docker-compose.yml promise, and the suites of the module above against a server that somebody else
// packaged.
//
// It is a module of its own, since the service needs none of what these tests do. It needs a Docker engine and says so
// where none answers; .ci/docker starts one where it may. No image is pulled where this machine has Go, Postgres and a
// static busybox: the base images are made of these.
package containers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

const startWait = 2 * time.Minute // for a container, on a busy machine

// engine is the Docker engine that all tests use.
var engine *testcontainers.DockerProvider

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// The reaper is an image that would have to be pulled; every test ends what it started.
	for name, value := range map[string]string{"TESTCONTAINERS_RYUK_DISABLED": "true",
		"TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, value) // the names are well-formed
		}
	}
	log.SetDefault(silent{})
	var err error
	if engine, err = reach(); err != nil {
		fmt.Fprintf(os.Stderr, "containers: no Docker engine answers here, and these tests need one: %v\n", err)
		return 1
	}
	code := m.Run()
	if err := images.remove(); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: remove the images: %v\n", err)
		return max(code, 1)
	}
	return code
}

// silent drops what testcontainers tells of each container's life.
type silent struct{}

func (silent) Printf(string, ...any) {}

func reach() (*testcontainers.DockerProvider, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	return p, p.Health(ctx)
}

// root is the folder of the module above, where the Dockerfile is.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// start runs a container until its test ends.
func start(t testing.TB, image string, options ...testcontainers.ContainerCustomizer) testcontainers.Container {
	t.Helper()
	c, err := testcontainers.Run(t.Context(), image, options...)
	cleanUp(t, c)
	if err != nil {
		t.Fatalf("run %s: %v\n%s", image, err, logs(c))
	}
	return c
}

func cleanUp(t testing.TB, c testcontainers.Container) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the container's last words:\n%s", logs(c))
		}
		if err := testcontainers.TerminateContainer(c, testcontainers.StopTimeout(time.Second)); err != nil {
			t.Errorf("end a container: %v", err)
		}
	})
}

// untilEnd waits for a container that ends by itself.
var untilEnd = testcontainers.WithWaitStrategyAndDeadline(startWait, wait.ForExit())

// runToEnd runs a container until it ends by itself.
func runToEnd(t testing.TB, image string, options ...testcontainers.ContainerCustomizer) (exitCode int, said string) {
	t.Helper()
	c := start(t, image, append(options, untilEnd)...)
	return exitCodeOf(t, c), logs(c)
}

func exitCodeOf(t testing.TB, c testcontainers.Container) int {
	t.Helper()
	state, err := c.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Running {
		t.Fatal("the container runs on")
	}
	return state.ExitCode
}

// logs is the end of what a container wrote, to stdout and stderr.
func logs(c testcontainers.Container) string {
	if c == nil || c.GetContainerID() == "" {
		return ""
	}
	r, err := c.Logs(context.Background())
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	var text bytes.Buffer
	_, err = io.Copy(&text, r)
	if err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	said := text.String()
	return said[max(0, len(said)-4096):]
}

// docker is the engine's own API, for what testcontainers does not ask.
func docker() client.APIClient { return engine.Client() }
