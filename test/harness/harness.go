// Package harness runs refundd as its operators do and talks to it as its callers do: real processes of cmd/refundd,
// real databases, real HTTP.
//
// Its promises: every exchange of a Client is held against api/openapi.yaml and against the table of problems, so that
// a suite fails on an undocumented answer even where it does not look at it; a server can be killed, paused and
// restarted; the shared service's books are audited after the last test.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Two binaries of cmd/refundd, each built once per test process if somebody asks for it: of those that stay, as servers
// do, and of the hundreds of commands that live for one act, for which the race detector costs more than they do.
var (
	binary  = sync.OnceValues(func() (string, error) { return build(Build.Race) })
	command = sync.OnceValues(func() (string, error) {
		if Build.Race {
			return build(false)
		}
		return binary()
	})
)

// Build says how the binaries are built; to be changed before a test runs.
var Build = struct {
	Tags string
	Race bool // servers have the race detector: where the tests have it, unless told
}{Race: raceEnabled}

// Binary is where the tests' binary of a server is.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build(race bool) (string, error) {
	dir, err := os.MkdirTemp("", "refundd-blackbox-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the binary: %w", err)
	}
	suite.atEnd(func() error { return os.RemoveAll(dir) })
	path := filepath.Join(dir, "refundd")
	args := []string{"build", "-o", path, "-tags", Build.Tags, "-ldflags", "-s -w"}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, "./cmd/refundd")...)
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/refundd: %w\n%s", err, out)
	}
	return path, nil
}

// Root is the module's folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// environment is what a process of ours gets: nothing of the caller's settings, and the canaries.
func environment(extra ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		"GORACE=halt_on_error=1 atexit_sleep_ms=0",
		"REFUNDD_TEST_SECRET=" + Canary + "-environment",
	}
	return append(env, extra...)
}

// Canary is planted wherever a secret could stand: it must never come out again.
const Canary = "canary-6f1d0c"

// LeakIn tells where the canary shows in a text, with a little around it, or answers "".
func LeakIn(text string) string {
	i := strings.Index(text, Canary)
	if i < 0 {
		return ""
	}
	return text[max(0, i-80):min(len(text), i+80)]
}
