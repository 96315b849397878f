//go:build ha

package ha

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"refundd/migrations"
	"refundd/test/harness"
)

// nextMigration is what a version to come may do while this one serves: it adds, and changes nothing that is read or
// written.
const nextMigration = `
	ALTER TABLE refund_operations ADD COLUMN note_of_next text, ADD COLUMN count_of_next bigint NOT NULL DEFAULT 0;
	CREATE INDEX refund_operations_next_idx ON refund_operations (tenant_id, note_of_next)
		WHERE note_of_next IS NOT NULL;
	CREATE TABLE rooms_of_next (tenant_id text NOT NULL REFERENCES tenants, room text NOT NULL,
		PRIMARY KEY (tenant_id, room));
	GRANT SELECT, INSERT ON rooms_of_next TO refundd_service;`

// buildNext builds the version to come: this one, with one migration more.
func buildNext(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	replaced := map[string]string{}
	for way, sql := range map[string]string{"up": nextMigration, "down": "DROP TABLE rooms_of_next;"} {
		file := filepath.Join(dir, way+".sql")
		if err := os.WriteFile(file, []byte(sql), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[filepath.Join(harness.Root(), "migrations",
			fmt.Sprintf("%04d_next.%s.sql", migrations.Latest()+1, way))] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "refundd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-ldflags",
		"-s -w",
		"-o", program, "./cmd/refundd")
	cmd.Dir = harness.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the next version: %v\n%s", err, out)
	}
	return program
}

// rollout replaces a proxy's servers one by one, each only when its successor serves.
type rollout struct {
	*pair
	proxy   *proxy
	callers *callers
}

func (r *rollout) start(program string) *harness.Server {
	r.t.Helper()
	server, err := harness.TryServeProgram(r.t, program, r.DB.ServiceURL, nil,
		append(r.Flags, "--drain-delay", "1s")...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.proxy.add(server)
	return server
}

// replace takes the servers out for others of a program, refunds going on between any two.
func (r *rollout) replace(servers []*harness.Server, program string) {
	r.t.Helper()
	for i, old := range servers {
		servers[i] = r.start(program)
		r.callers.await(50) // both versions serve
		if code := old.Terminate(r.t); code != 0 {
			r.t.Errorf("server %d ends with %d", i, code)
		}
		r.proxy.remove(old)
	}
	r.callers.await(50)
}

// TestUpgradeAndRollBack_OldAndNewSideBySide_NoRequestFails: the schema first, then replica by replica, and back again.
func TestUpgradeAndRollBack_OldAndNewSideBySide_NoRequestFails(t *testing.T) {
	now, next := harness.Binary(t), buildNext(t)
	s := harness.NewPaying(t)
	r := &rollout{pair: &pair{Service: s, t: t}, proxy: newProxy(t)}
	tenant := r.open()
	servers := []*harness.Server{r.start(now), r.start(now)}
	r.callers = call(t, 8, func(int) harness.Client { return harness.Client{URL: r.proxy.url, Key: tenant.Key, T: t} })
	r.callers.await(50)

	early := harness.SpawnProgram(t, next, s.DB.ServiceURL, nil, "serve", "--addr", "127.0.0.1:0")
	if code := early.End(t); code != 1 || !strings.Contains(early.Logs.Text(), "older than this program") {
		t.Errorf("before its migration the next version exits %d:\n%s", code, early.Logs.Text())
	}
	migrate := harness.SpawnProgram(t, next, s.DB.URL, nil, "migrate", "up")
	if code := migrate.End(t); code != 0 {
		t.Fatalf("migrate up exits %d:\n%s", code, migrate.Logs.Text())
	}
	time.Sleep(1100 * time.Millisecond) // readiness is asked once a second
	for _, old := range servers {
		if a := (harness.Client{URL: old.URL, T: t}).Get("/readyz"); a.Status != http.StatusOK {
			t.Errorf("on a newer schema /readyz of the version before is %d: %s", a.Status, a.Body)
		}
	}
	r.replace(servers, next)
	r.replace(servers, now) // the schema stays
	r.callers.end()

	n, _ := r.callers.acknowledged(time.Now())
	t.Logf("%d refunds over an upgrade and its roll-back, %d exchanges failed", n, r.callers.failed.Load())
	if failed := r.callers.failed.Load(); failed > 0 {
		t.Errorf("%d exchanges failed", failed)
	}
	if lost := r.missing(tenant, r.callers); len(lost) > 0 {
		t.Errorf("%d acknowledged refunds are lost", len(lost))
	}
	r.settled(tenant, r.callers)
}
