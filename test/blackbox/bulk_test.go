package blackbox

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

// bulk is a file of refunds, and the runs of it.
type bulk struct {
	*paying
	file, results string
}

func (b bulk) spawn(flags ...string) *harness.Process {
	b.t.Helper()
	env := []string{"REFUNDD_API_KEY=" + b.Tenant.Key, "REFUNDD_SERVER_URL=" + b.Client.URL}
	return harness.Spawn(b.t, "", env, append([]string{"bulk", b.file, "--concurrency", "4"}, flags...)...)
}

// killed kills a run once it has written so many results.
func (b bulk) killed(after int) {
	b.t.Helper()
	p := b.spawn()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		written, _ := os.ReadFile(b.results) // it may not be there yet
		if bytes.Count(written, []byte("\n")) > after {
			p.Kill()
			return
		}
		if p.Ended() || time.Since(began) > 30*time.Second {
			b.t.Fatalf("no %d results:\n%s", after, p.Logs.Text())
		}
	}
}

// last is what the results say of each line: its last row.
func (b bulk) last() map[string]string {
	b.t.Helper()
	return lastOf(b.t, contents(b.t, b.results))
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func lastOf(t *testing.T, results []byte) map[string]string {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(results)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for _, row := range rows[1:] {
		last[row[0]] = strings.Trim(row[4]+" "+row[5], " ")
	}
	return last
}

// A cancelled event: answers get lost, the run is killed twice, lines are wrong. Each line's refund is executed once,
// and the same command ends with what only people can mend.
func TestBulk_KilledTwice_RefundsEachLineOnce(t *testing.T) {
	t.Parallel()
	const n = 90
	p := newPaying(t, "--provider-timeout", "1s")
	dir := t.TempDir()
	b := bulk{p, filepath.Join(dir, "event.csv"), filepath.Join(dir, "event.csv.results.csv")}
	text, want := "\xef\xbb\xbforder_id;amount_cents;operation_id\r\n", map[string]string{}
	for i := range n {
		p.Pay(harness.Payment{OrderID: fmt.Sprint("E", i), Cents: 500})
		text += fmt.Sprintf(" E%d ; 500;bulk-%d\r\n", i, i)
	}
	text += "E0;500;bulk-0\r\n\r\nE0;1;bulk-1\r\nE0;4.99;decimal\r\nE0;1;exceeds\r\nnone;1;no-order\r\n"
	for line, says := range map[int]string{
		n + 4: "refused operation_id_conflict", n + 5: "refused malformed_line", n +
			6: "refused amount_exceeds_refundable", n + 7: "refused order_not_found",
	} {
		want[fmt.Sprint(line)] = says
	}
	if err := os.WriteFile(b.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	dry := b.spawn("--dry-run")
	if code := dry.End(t); code != 3 || len(p.provider.Refunds()) != 0 {
		t.Errorf("a dry run exits %d and %d refunds are executed\n%s", code, len(p.provider.Refunds()), dry.Logs.Text())
	}
	for _, mode := range []string{"drop_after", "error_after", "error_before", "drop_before"} {
		p.provider.Fault(mode, harness.Times(4))
	}
	b.killed(n / 4)
	b.killed(n / 2)
	code := 1
	for began := time.Now(); code == 1 && time.Since(began) < time.Minute; time.Sleep(time.Second) {
		code = b.spawn().End(t) // what is pending is looked up by who asks again
	}
	if code != 3 {
		t.Errorf("in the end it exits %d", code)
	}

	got := b.last()
	for line, says := range got {
		if says == "processed" || says == "already_processed" {
			delete(got, line)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines that are not refunded (-want +got):\n%s", diff)
	}
	executed := map[string]int{}
	for _, r := range p.provider.Refunds() {
		executed[r.Key]++
	}
	for i := range n {
		if key := p.ProviderKey(fmt.Sprint("bulk-", i)); executed[key] != 1 {
			t.Errorf("%s is executed %d times", key, executed[key])
		}
		p.balance(fmt.Sprint("E", i), 500, 0)
	}
	if len(executed) != n {
		t.Errorf("%d refunds are executed, want %d", len(executed), n)
	}
	before := p.provider.Requests()
	if code := b.spawn().End(t); code != 3 || !cmp.Equal(before, p.provider.Requests()) {
		t.Errorf("once more: exit code %d, and the provider is asked again", code)
	}
}

// A line that names a case is of that case: an operation that was approved for another one is not refunded by it.
func TestBulk_ALineOfAnotherCase_IsRefused_AsTheDryRunSays(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	tenant.Order("A", 10_000)
	for _, operation := range []string{"ours", "theirs", "uncased", "twice"} {
		tenant.Approve(operation, "A", 500) // for case-7
	}
	file := filepath.Join(t.TempDir(), "event.csv")
	text := "operation_id,order_id,amount_cents,case_id\nours,A,500,case-7\ntheirs,A,500,case-8\nuncased,A,500,\ntwice,A,500,case-7\n" +
		"twice,A,501,case-7\nunapproved,A,500,case-7\nmalformed,A,\"5,00\",case-7\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"bulk", file, "--api-key", tenant.Key, "--server-url", tenant.Client().URL, "--concurrency", "1"}
	dry := harness.Command(t, "", append(args, "--dry-run")...)
	says := map[string]string{
		"2": "would_process", "3": "refused authorization_mismatch", "4": "would_process", "5": "would_process",
		"6": "refused authorization_mismatch", "7": "would_process", "8": "refused malformed_line",
	}
	if diff := cmp.Diff(says, lastOf(t, []byte(dry.Stdout))); diff != "" || dry.ExitCode != 3 {
		t.Errorf("the dry run exits %d and says (-want +got):\n%s", dry.ExitCode, diff)
	}
	if !strings.Contains(dry.Stdout, "operation theirs is approved for case case-7") ||
		!strings.Contains(dry.Stdout, "nobody approved it") {
		t.Errorf("it does not explain:\n%s", dry.Stdout)
	}
	if r := harness.Command(t, "", args...); r.ExitCode != 3 {
		t.Errorf("it exits %d\n%s", r.ExitCode, r.Stderr)
	}
	says["2"], says["4"], says["5"] = "processed", "processed", "processed"
	says["6"], says["7"] = "refused operation_id_conflict", "refused authorization_not_found"
	if diff := cmp.Diff(says, lastOf(t, contents(t, file+".results.csv"))); diff != "" {
		t.Errorf("the run says (-want +got):\n%s", diff)
	}
	want(t, tenant.Client().Get(harness.RefundPath("theirs")), "refund_not_found")
	if got := tenant.Client().Get(harness.RefundPath("ours")); !strings.Contains(string(got.Body),
		`"metadata":{"case_id":"case-7"}`) {
		t.Errorf("the refund does not know its case: %s", got.Body)
	}
	tenant.Exec(`UPDATE refund_authorizations SET case_id = 'case-9' WHERE tenant_id = $1
		AND operation_id = 'ours'`, tenant.ID)
	if r := harness.Command(t, "", append(args, "--dry-run")...); !strings.Contains(r.Stdout,
		"2,ours,A,500,refused,authorization_mismatch,yes,") {
		t.Errorf("of a refund that moved its money, under another case, it says\n%s", r.Stdout)
	}
}
