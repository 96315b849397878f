//go:build drill

package growth

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
	"refundd/test/harness"
)

// The tables that grow with every refund are replaced by partitioned ones while the service refunds. Nobody notices,
// nothing is refunded twice, and all that the schema promises is promised still.
func TestPartitions_TakeThePlaceOfTablesInUse(t *testing.T) {
	p := newPlans(t)
	s := start(t, p)
	u := newTourist(t, s)
	u.Load([]string{u.busy}, 1_000_000)
	small := s.OpenTenant(t)
	small.Load([]string{"P", u.busy}, 1_000_000)
	u.goRound()
	grow(t, p, 3000, u.ID, small.ID)
	promised := promises(t, p)
	l := startLoad(t, small)

	p.lockAndRun(t, "1-prepare.sql")
	l.until(20)
	for sql := range strings.SplitSeq(p.file(t, "2-copy.sql"), ";") {
		p.run(t, sql)
	}
	l.until(40)
	for _, table := range []string{"refund_authorizations", "refund_operations", "ledger_transfers",
		"operation_events"} {
		var different int
		err := p.Owner.QueryRow(t.Context(), `SELECT partitioned.differences($1)`, table).Scan(&different)
		if err != nil || different != 0 {
			t.Errorf("%d rows of %s are not in its partitions: %v", different, table, err)
		}
	}
	held := p.lockAndRun(t, "3-switch.sql")
	l.until(l.refunds() + 40)
	t.Logf("the tables were held for %v; %d refunds meanwhile", held, l.stop())

	if diff := cmp.Diff(promised, promises(t, p)); diff != "" {
		t.Errorf("the schema promises something else (-before +after):\n%s", diff)
	}
	l.replayAll()
	u.goRound()
	p.executions(t, false)
	u.goRound()
	b := p.books(t)
	for _, e := range p.executions(t, true) {
		if !e.ofService {
			continue
		}
		if sumsOnce(e) {
			continue
		}
		for _, why := range append(b.faults(e), tooMany(e.Plan)...) {
			t.Errorf("%s\n%s", why, e)
		}
	}
	p.refusals(t, u.ID)
	p.runFile(t, "4-drop.sql")
	u.goRound()
	s.Audit(t)
}

// file reads a script that operators run.
func (p *plans) file(t *testing.T, name string) string {
	t.Helper()
	sql, err := os.ReadFile(filepath.Join(harness.Root(), "deploy", "partition", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(sql)
}

func (p *plans) run(t *testing.T, sql string) {
	t.Helper()
	if _, err := p.Owner.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

func (p *plans) runFile(t *testing.T, name string) {
	t.Helper()
	p.run(t, p.file(t, name))
}

// lockAndRun runs a script that locks tables, again where it met what is under way, and returns how long it took.
func (p *plans) lockAndRun(t *testing.T, name string) time.Duration {
	t.Helper()
	for range 10 {
		began := time.Now()
		err := p.Owner.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
			_, err := conn.Exec(t.Context(), p.file(t, name), pgx.QueryExecModeSimpleProtocol)
			_, _ = conn.Exec(context.WithoutCancel(t.Context()), "ROLLBACK") // of one that failed
			return err
		})
		if err == nil {
			return time.Since(began)
		}
		if !pgtx.StaysLocked(err) && pgtx.SQLState(err) != pgerrcode.DeadlockDetected {
			t.Fatal(err)
		}
	}
	t.Fatal("the tables are never free")
	return 0
}

// promises are what the schema says of the tables: rules, indexes, triggers, rights, numbers.
func promises(t *testing.T, p *plans) []string {
	t.Helper()
	rows, err := p.Owner.Query(t.Context(), `
		WITH ours AS (SELECT oid, relname::text AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace
			AND relname IN
			('refund_operations', 'refund_authorizations', 'ledger_transfers', 'operation_events')),
		parts AS (SELECT name, oid FROM ours
			UNION ALL SELECT name, inhrelid FROM pg_inherits JOIN ours ON inhparent = oid)
		SELECT DISTINCT * FROM (
			SELECT name || ' rule ' || conname || CASE WHEN pg_get_constraintdef(c.oid) LIKE '%.*%' THEN ''
				ELSE pg_get_constraintdef(c.oid) END
			FROM parts p JOIN pg_constraint c ON c.conrelid = p.oid WHERE contype IN ('c', 'f', 'p')
				AND conname NOT LIKE '%\_pkey'
			UNION ALL SELECT name || ' key ' || pg_get_constraintdef(c.oid) FROM ours p
				JOIN pg_constraint c ON conrelid = p.oid
			WHERE contype = 'p'
			UNION ALL SELECT name || ' index ' || replace(i.relname, 'refund_key', 'refund_idx') || ' '
				|| regexp_replace(pg_get_indexdef(i.oid), '^.* USING ', '')
			FROM ours p JOIN pg_index x ON x.indrelid = p.oid JOIN pg_class i ON i.oid = x.indexrelid
			WHERE i.relname <> 'refund_operations_refund_id_key'
			UNION ALL SELECT name || ' trigger ' || tgname FROM ours p JOIN pg_trigger g ON tgrelid = p.oid
			WHERE NOT tgisinternal AND tgname NOT LIKE '%provider_refund%'
			UNION ALL SELECT name || ' column ' || attname || ' ' || format_type(atttypid,
				atttypmod) || attnotnull || attidentity::text
				|| coalesce(attacl::text, '')
			FROM ours p JOIN pg_attribute a ON attrelid = p.oid WHERE attnum > 0 AND NOT attisdropped
			UNION ALL SELECT name || ' rights ' || c.relacl::text FROM ours p JOIN pg_class c ON c.oid = p.oid
			UNION ALL SELECT 'function ' || f.proname || ' ' || coalesce(f.proacl::text, '') || md5(f.prosrc)
			FROM pg_proc f WHERE pronamespace = 'public'::regnamespace
		) AS said (line) ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(lines) < 60 {
		t.Fatalf("%d promises: %v", len(lines), err)
	}
	return lines
}

// tooMany are the places of a plan that look for one operation in several partitions.
func tooMany(n node) []string {
	var found []string
	n.walk(func(n node) {
		if n.Kind != "Append" {
			return
		}
		used := 0
		for _, part := range n.Below {
			if strings.Contains(part.Condition, "operation_id = ") && part.Loops > 0 {
				used += int(part.Loops)
			}
		}
		if used > int(n.Loops) {
			found = append(found, fmt.Sprintf("looks into %d partitions for %d keys: %s", used, int(n.Loops),
				n.Below[0]))
		}
	})
	return found
}

// refusals are what no partition may take, of its owner either.
func (p *plans) refusals(t *testing.T, tenant string) {
	t.Helper()
	same := `INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
		currency, state,
		provider, provider_key, provider_refund_id, provider_key_expires_at, attempts, created_at, settled_at)
		SELECT tenant_id, %s, fingerprint, gen_random_uuid(), order_id, %s, currency, state,
		provider, provider_key, provider_refund_id, provider_key_expires_at, attempts, created_at, settled_at
		FROM refund_operations WHERE tenant_id = '` + tenant + `' AND operation_id = 'grown-7'`
	for sql, want := range map[string]string{
		fmt.Sprintf(same, `operation_id`, `amount_cents`):      "23505 _pkey",
		fmt.Sprintf(same, `'another'`, `amount_cents`):         "23505 refund_operations_provider_refund_key",
		fmt.Sprintf(same, `'another'`, `0`):                    "23514 refund_operations_amount_check",
		`DELETE FROM refund_operations`:                        "23001 ",
		`TRUNCATE refund_operations`:                           "23001 ",
		`DELETE FROM partitioned.refund_operations_3`:          "23001 ",
		`TRUNCATE partitioned.ledger_transfers_3`:              "23001 ",
		`UPDATE ledger_transfers SET amount_cents = 2`:         "23001 ",
		`UPDATE partitioned.operation_events_0 SET kind = 'x'`: "23001 ",
	} {
		_, err := p.Owner.Exec(t.Context(), sql)
		code, name, _ := strings.Cut(want, " ")
		if pgtx.SQLState(err) != code || !strings.HasSuffix(pgtx.Constraint(err), name) {
			t.Errorf("%.60s: %v, want %s", sql, err, want)
		}
	}
	if _, err := p.Pool.Exec(t.Context(),
		`SELECT FROM partitioned.refund_operations_3`); pgtx.SQLState(err) != "42501" {
		t.Errorf("the service reads a partition by itself: %v", err)
	}
}

// load refunds one cent after the other, and remembers the receipts.
type load struct {
	t        *testing.T
	tenant   *harness.Tenant
	done     atomic.Int64
	ended    chan struct{}
	end      chan struct{}
	receipts map[string]string
}

func startLoad(t *testing.T, tenant *harness.Tenant) *load {
	l := &load{t: t, tenant: tenant, ended: make(chan struct{}), end: make(chan struct{}),
		receipts: map[string]string{}}
	go l.refund()
	return l
}

func (l *load) refund() {
	defer close(l.ended)
	for i := 0; ; i++ {
		select {
		case <-l.end:
			return
		default:
		}
		id := fmt.Sprint("load-", i)
		a := l.tenant.Client().Refund(id, "P", 1)
		if a.Status != http.StatusCreated {
			l.t.Errorf("refund %s: %d %s", id, a.Status, a.Body)
			return
		}
		l.receipts[id] = refundID(a)
		l.done.Add(1)
	}
}

func refundID(a harness.Answer) string {
	_, after, _ := strings.Cut(string(a.Body), `"refund_id":"`)
	id, _, _ := strings.Cut(after, `"`)
	return id
}

func (l *load) refunds() int64 { return l.done.Load() }

// until waits for so many refunds.
func (l *load) until(n int64) {
	l.t.Helper()
	for began := time.Now(); l.refunds() < n; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			l.t.Fatalf("%d refunds, want %d", l.refunds(), n)
		}
	}
}

func (l *load) stop() int64 {
	close(l.end)
	<-l.ended
	return l.refunds()
}

// replayAll sends every refund again: each is told of the first one, and no cent moves.
func (l *load) replayAll() {
	l.t.Helper()
	moved := l.tenant.Moved("P")
	for id, first := range l.receipts {
		a := l.tenant.Client().Refund(id, "P", 1)
		if a.Status != http.StatusOK || refundID(a) != first || first == "" {
			l.t.Errorf("refund %s again: %d %s, want %s", id, a.Status, a.Body, first)
		}
	}
	if again := l.tenant.Moved("P"); again != moved || moved < int64(len(l.receipts)) {
		l.t.Errorf("%d cents moved, and then %d", moved, again)
	}
}
