package containers

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"refundd/test/harness"
)

// project is docker-compose.yml under a name, ports and passwords of its own.
type project struct {
	t    *testing.T
	env  []string
	port string
}

func newProject(t *testing.T) project {
	t.Helper()
	p := project{t: t, port: freePort(t)}
	p.env = append(os.Environ(),
		"COMPOSE_PROJECT_NAME="+images.name, "POSTGRES_IMAGE="+postgresImage(t), "REFUNDD_IMAGE="+refunddImage(t),
		"POSTGRES_PORT="+freePort(t), "REFUNDD_PORT="+p.port, "REFUNDD_ADMIN_PORT="+freePort(t),
		"OWNER_PASSWORD="+ownerPassword, "SERVICE_PASSWORD="+servicePassword, "OPERATOR_PASSWORD="+operatorPassword)
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := p.try("logs", "--no-color", "--tail=40")
			t.Log(said)
		}
		if said, err := p.try("down", "--volumes", "--timeout", "5"); err != nil {
			t.Errorf("docker compose down: %v\n%s", err, said)
		}
	})
	return p
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// compose is the command, of either age.
func compose() []string {
	if exec.Command("docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}
	}
	return []string{"docker-compose"}
}

// try runs docker compose and returns what it wrote to stdout, or to both outputs where it fails.
func (p project) try(args ...string) (string, error) {
	line := append(compose(), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Env = root(p.t), p.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String() + stderr.String(), fmt.Errorf("%s: %w", strings.Join(line, " "), err)
	}
	return stdout.String(), nil
}

func (p project) do(args ...string) string {
	p.t.Helper()
	said, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, said)
	}
	return strings.TrimSpace(said)
}

func (p project) tool(command ...string) string {
	p.t.Helper()
	return p.do(append([]string{"run", "--rm", "--no-deps", "-T", "tools"}, command...)...)
}

func (p project) inspect(service string) container.InspectResponse {
	p.t.Helper()
	result, err := docker().ContainerInspect(p.t.Context(), p.do("ps", "-a", "-q", service),
		client.ContainerInspectOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return result.Container
}

// up starts all and waits until the service is healthy and the tools have their login.
func (p project) up() {
	p.t.Helper()
	p.do("up", "-d", "--no-build")
	deadline := time.Now().Add(startWait)
	for {
		state := p.inspect("serve").State
		healthy := state.Health != nil && state.Health.Status == container.Healthy
		if healthy && p.inspect("operator").State.Status == container.StateExited {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the service is not healthy: %+v", state)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// What README.md says of `docker compose up`: it serves, to this machine alone, and the data outlives its containers.
func TestCompose_ServesAndRefundsOnce_AlsoAfterItWasTakenDown(t *testing.T) {
	p := newProject(t)
	p.up()
	for _, service := range []string{"postgres", "serve"} {
		for port, bindings := range p.inspect(service).HostConfig.PortBindings {
			for _, b := range bindings {
				if !b.HostIP.IsLoopback() {
					t.Errorf("port %s of %s is published to %s", port, service, b.HostIP)
				}
			}
		}
	}
	key := p.do("run", "--rm", "-T", "first-key")
	for _, service := range []string{"serve", "reconcile", "migrate", "login", "operator"} {
		if host := p.inspect(service).HostConfig; !host.ReadonlyRootfs || fmt.Sprint(host.CapDrop) != "[ALL]" {
			t.Errorf("%s has a root to write to (%v), or rights beside %v", service, !host.ReadonlyRootfs, host.CapDrop)
		}
	}
	if said := p.do("logs", "--no-color", "reconcile"); !strings.Contains(said, `"claimed":0`) ||
		!p.inspect("reconcile").State.Running {
		t.Errorf("reconcile does not run: %s", said)
	}
	client := harness.Client{URL: "http://127.0.0.1:" + p.port, Key: key, T: t}
	register(t, client, "A-1", "op-1")
	want(t, client.Refund("op-1", "A-1", 4999), http.StatusCreated)

	p.do("stop", "serve")
	if code := p.inspect("serve").State.ExitCode; code != 0 {
		t.Errorf("the service exits %d when it is stopped", code)
	}
	p.do("down", "--timeout", "30")
	p.up()
	want(t, client.Refund("op-1", "A-1", 4999), http.StatusOK)
	p.tool("audit")
}
