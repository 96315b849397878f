package bench

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"refundd/bench"
)

// oneStatement is a whole refund as one prepared statement and so one transaction and one round trip: read the
// approval, debit the order, claim the key, post the transfer. A key that is claimed already fails it. Number :n is one
// of the refunds that were approved for this; each client takes every clients-th of them.
const oneStatement = `\set n :first + :done * :clients + :client_id
\set done :done + 1
WITH terms AS (
	SELECT a.tenant_id, a.operation_id, a.order_id, a.amount_cents, a.currency
	FROM (SELECT %s AS id FROM (SELECT :n::bigint AS n) AS number) AS this
	JOIN refund_authorizations a ON a.tenant_id = '%s' AND a.operation_id = this.id COLLATE "C"
	WHERE a.expires_at IS NULL OR a.expires_at > clock_timestamp()
), debited AS (
	UPDATE orders o SET refunded_cents = o.refunded_cents + t.amount_cents FROM terms t
	WHERE o.tenant_id = t.tenant_id AND o.order_id = t.order_id AND o.currency = t.currency
		AND o.refunded_cents + t.amount_cents <= o.captured_cents
	RETURNING t.tenant_id, t.operation_id, t.order_id, t.amount_cents, t.currency
), claimed AS (
	INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency, state, settled_at)
	SELECT tenant_id, operation_id,
		encode(sha256(convert_to('{"amount_cents": ' || amount_cents || ', "order_id": "' || order_id || '"}', 'UTF8')), 'hex'),
		gen_random_uuid(), order_id, amount_cents, currency, 'succeeded', now()
	FROM debited
	RETURNING tenant_id, operation_id, amount_cents, currency
)
INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents, currency)
SELECT tenant_id, operation_id, 1, 'refund', 'merchant', 'customer', amount_cents, currency FROM claimed;
`

// findPgbench looks on PATH and where Debian keeps each version's programs.
func findPgbench(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench") // the pattern is well-formed
	if len(found) == 0 {
		t.Fatal("no pgbench found: install it (Debian: apt-get install postgresql-contrib)")
	}
	return found[len(found)-1]
}

// pgbench runs oneStatement with so many clients and answers refunds per second, all of them counted among the rows.
func (c *comparison) pgbench(t testing.TB, clients int) float64 {
	t.Helper()
	ctx := t.Context()
	seconds := max(int64(c.duration/time.Second), 5) // which include the time to connect
	reserved := seconds * 8000
	first, err := c.runner.Reserve(ctx, bench.KindNew, reserved)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "refund.sql")
	text := fmt.Sprintf(oneStatement, c.runner.OperationSQL(bench.KindNew), c.tenant)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(c.db.ServiceURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	cmd := exec.CommandContext(ctx, findPgbench(t), "-n", "-M", "prepared", "-f", script, "-T",
		strconv.FormatInt(seconds, 10),
		"-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)), "-D", fmt.Sprintf("first=%d", first),
		"-D", fmt.Sprintf("clients=%d", clients), "-D", "done=0",
		"-h", u.Hostname(), "-p", u.Port(), "-U", u.User.Username(), u.Path[1:])
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pgbench: %v\n%s", err, out)
	}
	processed := number(t, out, `number of transactions actually processed: (\d+)`)
	var rows int64
	err = c.db.Owner.QueryRow(ctx, fmt.Sprintf(`
		SELECT count(*) FROM (SELECT %s AS id FROM generate_series($2::bigint, $3::bigint) AS n) AS reserved
		JOIN refund_operations o ON o.tenant_id = $1 AND o.operation_id = reserved.id COLLATE "C"`,
		c.runner.OperationSQL(bench.KindNew)), c.tenant, first, first+reserved-1).Scan(&rows)
	if err != nil {
		t.Fatal(err)
	}
	if float64(rows) != processed {
		t.Fatalf("pgbench processed %.0f transactions, %d rows were found (%d were approved)\n%s", processed, rows,
			reserved, out)
	}
	return number(t, out, `tps = ([\d.]+) \(without initial connection time\)`)
}

func number(t testing.TB, out []byte, pattern string) float64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindSubmatch(out)
	if found == nil {
		t.Fatalf("no %s in\n%s", pattern, out)
	}
	n, err := strconv.ParseFloat(string(bytes.TrimSpace(found[1])), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
