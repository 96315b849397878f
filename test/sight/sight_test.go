// Package sight holds what an operator sees of refundd against what refundd does: alerts, the dashboard, the runbook.
// The part that needs a real Prometheus has the build tag sight and is run by .ci/alerts.
package sight

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

// read is a file of the repository.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{harness.Root()}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alert is a rule as its file says it.
type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal([]byte(read(t, "deploy", "prometheus", "alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Errorf("only %d alerts", len(all))
	}
	return all
}

// TestRunbook_HasASectionForEachAlert, which says what it means, what to look at, what to decide and what not to do.
func TestRunbook_HasASectionForEachAlert(t *testing.T) {
	t.Parallel()
	sections := map[string]string{}
	for part := range strings.SplitSeq(read(t, "docs", "runbook.md"), "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}
	for _, a := range alerts(t) {
		text, found := sections[a.Alert]
		if !found {
			t.Errorf("alert %s has no section", a.Alert)
		}
		delete(sections, a.Alert)
		for _, part := range []string{"**Means**:", "**Look**", "**Decide**", "**Do not**"} {
			if found && !strings.Contains(text, part) {
				t.Errorf("the section of %s has no %s", a.Alert, part)
			}
		}
		if want := "docs/runbook.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s points to %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.Annotations["summary"] == "" || !slices.Contains([]string{"page", "ticket"}, a.Labels["severity"]) {
			t.Errorf("%s has severity %q and summary %q", a.Alert, a.Labels["severity"], a.Annotations["summary"])
		}
	}
	for title := range sections {
		if strings.HasPrefix(title, "Refundd") {
			t.Errorf("section %s is of no alert", title)
		}
	}
}

var metricName = regexp.MustCompile(`\brefundd_[a-z_]+\b`)

// TestAlertsAndDashboard_NameMetricsThatThereAre: those of docs/reference.md, which is held against the service.
func TestAlertsAndDashboard_NameMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	told := metricName.FindAllString(read(t, "docs", "reference.md"), -1)
	for _, file := range []string{"prometheus/alerts.yaml", "prometheus/alerts_test.yaml", "grafana/refundd.json"} {
		for _, name := range metricName.FindAllString(read(t, "deploy", file), -1) {
			plain := name
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				plain = strings.TrimSuffix(plain, part)
			}
			if !slices.Contains(told, name) && !slices.Contains(told, plain) {
				t.Errorf("%s names %s, which there is not", file, name)
			}
		}
	}
}

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// TestRunbook_ItsQueriesRun as an operator's login, on any database.
func TestRunbook_ItsQueriesRun(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t, testdb.New(t).OperatorURL)
	blocks := sqlBlock.FindAllStringSubmatch(read(t, "docs", "runbook.md"), -1)
	if len(blocks) < 5 {
		t.Errorf("only %d queries", len(blocks))
	}
	for _, b := range blocks {
		for query := range strings.SplitSeq(strings.TrimSpace(b[1]), ";\n") {
			rows, err := pool.Query(t.Context(), query)
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			if err != nil {
				t.Errorf("%v:\n%s", err, query)
			}
		}
	}
}
