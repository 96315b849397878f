//go:build examples

// Package examples runs the handlers of examples/ against a real refundd whose answers are lost on purpose. They need
// Python 3 and Node.js, so they stand behind a tag; .ci/examples runs them.
package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

// handlers are the commands that carry out a case.
func handlers(t *testing.T) map[string][]string {
	t.Helper()
	root := filepath.Join(harness.Root(), "examples")
	built := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(built, "go"), "./examples/go")
	build.Dir = harness.Root()
	script := os.Getenv("REFUNDD_TEST_TYPESCRIPT") // compiled by .ci/examples
	if out, err := build.CombinedOutput(); err != nil || script == "" {
		t.Fatalf("build: %v %s; REFUNDD_TEST_TYPESCRIPT=%q", err, out, script)
	}
	return map[string][]string{
		"go": {filepath.Join(built, "go")}, "python": {"python3",
			filepath.Join(root, "python", "refund.py")}, "typescript": {"node", script},
	}
}

func TestExamples_AnswersAreLost_EachRefundIsExecutedOnce(t *testing.T) {
	s := harness.New(t)
	tenant := s.Tenant(t)
	key := tenant.NewKey("refunds:write,read")
	var connections atomic.Int64
	network := harness.NewLossy(t, s.Servers[0].URL, func() (bool, bool) {
		n := connections.Add(1)
		return n%7 == 6, n%3 == 2 // a request that is lost, an answer that is lost
	})
	tell := func(name string, command []string, caseID string) map[string]any {
		t.Helper()
		cmd := exec.Command(command[0], append(command[1:], caseID)...)
		cmd.Env = append(os.Environ(), "REFUNDD_URL="+network.URL, "REFUNDD_API_KEY="+key)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var said map[string]any
		if err != nil || json.Unmarshal(out, &said) != nil {
			t.Fatalf("%s: %v: %s%s", name, err, out, &stderr)
		}
		return said
	}
	for name, command := range handlers(t) {
		order := "A-" + name
		tenant.Order(order, 10000)
		tenant.Exec(`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents,
			currency, approved_by)
			VALUES ($1, $2, $3, $4, 4000, 'EUR', 'ada')`, tenant.ID, "op-"+name, "case "+name, order)
		yes := 0
		for range 4 {
			said := tell(name, command, "case "+name)
			switch fmt.Sprint(said["status"], " ", said["money_moved"]) {
			case "processed yes", "already_processed yes":
				yes++
			case "refused unknown": // all answers of the call were lost
			default:
				t.Errorf("%s: %v", name, said)
			}
		}
		if moved := tenant.Moved(order); moved != 4000 || yes < 2 {
			t.Errorf("%s: %d moved, %d of 4 calls were told of it", name, moved, yes)
		}
		if said := tell(name, command, "case of nobody"); said["code"] != "ambiguous_case" &&
			said["code"] != "service_unavailable" {
			t.Errorf("%s: a case without approval: %v", name, said)
		}
	}
	if network.Losses() < 6 {
		t.Errorf("%d losses", network.Losses())
	}
	s.Audit(t)
}
