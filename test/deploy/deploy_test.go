// Package deploy tries what deploy/ offers to run refundd with. The part that needs Kubernetes' own schema has the
// build tag deploy and is run by .ci/deploy.
package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "deploy", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCron_ItsLinesWorkInAnEmptyEnvironment, as cron starts them: with settings from a file, and a word to syslog where
// a run fails.
func TestCron_ItsLinesWorkInAnEmptyEnvironment(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	said := filepath.Join(dir, "syslog")
	write("logger", fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\n", said))
	lines := regexp.MustCompile(`(?m)^[0-9*][^a-z]* refundd  (.*)$`).FindAllStringSubmatch(read(t, "cron/refundd"), -1)
	if len(lines) != 2 {
		t.Fatalf("%d lines of cron, want 2", len(lines))
	}
	tick := func(settings string) string {
		_ = os.Remove(said)
		for _, line := range lines {
			command := strings.NewReplacer("/etc/refundd/env", write("env", settings), "/etc/refundd/audit",
				write("audit", settings),
				"/usr/local/bin/refundd", harness.Binary(t)).Replace(line[1])
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
			cmd.Env, cmd.Dir = []string{"PATH=" + dir + ":/usr/bin:/bin"}, "/"
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v %s", command, err, out)
			}
		}
		text, _ := os.ReadFile(said)
		return string(text)
	}
	if text := tick("DATABASE_URL='" + db.ServiceURL + "'\n"); text != "" {
		t.Errorf("runs that went well say %q", text)
	}
	var runs, audits int
	if err := db.Owner.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM reconciliation_runs), (SELECT count(*)
		FROM audits)`).Scan(&runs, &audits); err != nil || runs != 1 || audits != 1 {
		t.Errorf("%d runs and %d audits are on record, want one each (%v)", runs, audits, err)
	}
	want := "-p user.err -t refundd reconcile exits 1\n-p user.err -t refundd audit exits 1\n"
	if text := tick("DATABASE_URL='postgres://nobody@127.0.0.1:1/none'\n"); text != want {
		t.Errorf("runs without a database say %q, want %q", text, want)
	}
	if _, err := db.Owner.Exec(t.Context(), `INSERT INTO tenants (tenant_id) VALUES ('t')`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Owner.Exec(t.Context(), `INSERT INTO orders (tenant_id, order_id, currency, captured_cents,
		refunded_cents) VALUES ('t', 'L', 'EUR', 9, 7)`); err != nil {
		t.Fatal(err)
	}
	if text := tick("DATABASE_URL='" + db.ServiceURL + "'\n"); text != "-p user.err -t refundd audit exits 3\n" {
		t.Errorf("books that lie make it say %q", text)
	}
}

var settings = regexp.MustCompile(`\bREFUNDD_[A-Z_]+\b`)

// TestSettings_AreThoseOfFlags: what deploy/ and docker-compose.yml set is read by a command.
func TestSettings_AreThoseOfFlags(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile(filepath.Join(harness.Root(), "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"kubernetes/config.yaml", "systemd/refundd.service", "kubernetes/serve.yaml",
		"kubernetes/jobs.yaml"} {
		for _, name := range settings.FindAllString(read(t, file), -1) {
			flag := "`--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "REFUNDD_"), "_", "-")) + "`"
			if name != "REFUNDD_SOME_FLAG" && !strings.Contains(string(reference), flag) {
				t.Errorf("%s sets %s: there is no flag %s", file, name, flag)
			}
		}
	}
}
