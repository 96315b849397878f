package containers

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"refundd/test/harness"
)

// installed is where Debian keeps the server; the tests hide it from the process that shall find Docker alone.
const installed = "/usr/lib/postgresql"

// dev is a process of `refundd dev`, as `make run` starts it, on a machine without a Postgres of its own.
type dev struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed once it is reaped
	client harness.Client
}

func startDev(t *testing.T, data string) dev {
	t.Helper()
	args := []string{harness.Binary(t), "dev", "--addr", "127.0.0.1:0", "--simulator=false", "--data", data}
	if _, err := os.Stat(installed); err == nil {
		hide := "mount -t tmpfs none " + installed + ` && exec "$@"` // in a mount namespace of its own: root alone may
		args = append([]string{"unshare", "--mount", "sh", "-c", hide, "sh"}, args...)
	}
	_ = os.Remove(filepath.Join(data, "dev.json")) // the former process's
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "DATABASE_URL=") })
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := dev{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is told by ProcessState
		close(d.ended)
	}()
	t.Cleanup(func() { d.end(t, syscall.SIGKILL) }) // it has ended, unless the test failed
	d.client = d.awaitServing(t, data)
	if t.Failed() {
		said, _ := os.ReadFile(log.Name()) // for the reader's help
		t.Fatalf("refundd dev does not serve:\n%s", said)
	}
	return d
}

// awaitServing returns a client as dev.json tells of it.
func (d dev) awaitServing(t *testing.T, data string) harness.Client {
	t.Helper()
	for deadline := time.After(startWait); ; {
		if told, err := os.ReadFile(filepath.Join(data, "dev.json")); err == nil {
			var at struct {
				URL string `json:"url"`
				Key string `json:"api_key"`
			}
			if err := json.Unmarshal(told, &at); err != nil {
				t.Error(err)
			}
			return harness.Client{URL: at.URL, Key: at.Key, T: t}
		}
		select {
		case <-d.ended:
			t.Errorf("refundd dev ends: %v", d.cmd.ProcessState)
			return harness.Client{}
		case <-deadline:
			t.Error("no dev.json in time")
			return harness.Client{}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// end sends a signal and returns how the process ended.
func (d dev) end(t *testing.T, sig syscall.Signal) *os.ProcessState {
	t.Helper()
	_ = d.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-d.ended:
	case <-time.After(30 * time.Second):
		t.Errorf("refundd dev does not end after %v", sig)
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
	return d.cmd.ProcessState
}

// Where Docker is all there is, dev keeps its cluster in its data folder as ever: stopped, killed, it goes on from
// there.
func TestDev_WithDockerAlone_KeepsItsDataThroughStopAndKill(t *testing.T) {
	lendOfficialNames(t)
	data := filepath.Join(t.TempDir(), "data")
	d := startDev(t, data)
	before := developmentContainers(t)
	if len(before) != 1 {
		t.Fatalf("%d containers of Postgres run, want 1: this process found itself another server", len(before))
	}
	register(t, d.client, "A-1", "op-1")
	want(t, d.client.Refund("op-1", "A-1", 4999), http.StatusCreated)
	if how := d.end(t, syscall.SIGTERM); !how.Success() {
		t.Errorf("refundd dev ends with %v after SIGTERM", how)
	}
	if left := developmentContainers(t); len(left) != 0 {
		t.Errorf("containers run on after SIGTERM: %q", left)
	}

	d = startDev(t, data)
	want(t, d.client.Refund("op-1", "A-1", 4999), http.StatusOK)
	d.end(t, syscall.SIGKILL)

	d = startDev(t, data)
	want(t, d.client.Refund("op-1", "A-1", 4999), http.StatusOK)
	d.end(t, syscall.SIGTERM)
	if left := developmentContainers(t); len(left) != 0 {
		t.Errorf("containers run on after all: %q", left)
	}
}

// developmentContainers are those that run a Postgres by its official name.
func developmentContainers(t *testing.T) []string {
	t.Helper()
	result, err := docker().ContainerList(t.Context(), client.ContainerListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range result.Items {
		if strings.HasPrefix(c.Image, "postgres:") {
			found = append(found, c.Names...)
		}
	}
	return found
}

// lendOfficialNames lets our image stand in for the official ones that dev asks for, where they are not there: of its
// default version first, of the cluster's own from then on.
func lendOfficialNames(t *testing.T) {
	t.Helper()
	image := postgresImage(t)
	for _, name := range []string{"postgres:17", "postgres:" + filepath.Base(postgresHome())} {
		if _, err := docker().ImageInspect(t.Context(), name); err == nil {
			continue
		}
		if _, err := docker().ImageTag(t.Context(), client.ImageTagOptions{Source: image, Target: name}); err != nil {
			t.Fatal(err)
		}
		images.made = append(images.made, name)
	}
}
