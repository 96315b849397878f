package operations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// statement is one that the service sent, with what its transaction had been told before: BEGIN and its settings.
type statement struct {
	sql      string
	args     []any
	preamble []string
}

// recorder keeps every statement of a pool, each text once.
type recorder struct {
	mu       sync.Mutex
	preamble map[*pgx.Conn][]string
	seen     map[string]statement
}

// recording is a pool like another one whose statements are recorded.
func recording(t *testing.T, pool *pgxpool.Pool) (*pgxpool.Pool, *recorder) {
	t.Helper()
	r := &recorder{preamble: map[*pgx.Conn][]string{}, seen: map[string]statement{}}
	config := pool.Config()
	config.ConnConfig.Tracer = r
	recorded, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(recorded.Close)
	return recorded, r
}

func (r *recorder) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.add(conn, data.SQL, data.Args)
	return ctx
}

func (r *recorder) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		r.add(conn, q.SQL, q.Arguments)
	}
	return ctx
}

func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends the transaction of a batch that began none.
func (r *recorder) TraceBatchEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if told := r.preamble[conn]; len(told) > 0 && !strings.HasPrefix(told[0], "BEGIN") {
		delete(r.preamble, conn)
	}
}

func (r *recorder) add(conn *pgx.Conn, sql string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(sql)), " "); {
	case verb == "BEGIN":
		r.preamble[conn] = []string{sql}
	case verb == "SET", strings.Contains(sql, "set_config("):
		r.preamble[conn] = append(r.preamble[conn], sql)
	case verb == "COMMIT", verb == "ROLLBACK":
		delete(r.preamble, conn)
	case verb == "DISCARD": // plans of before
	default:
		s := statement{sql, args, slices.Clone(r.preamble[conn])}
		r.seen[strings.Join(append(s.preamble, sql), ";")] = s
	}
}

// take answers what was recorded since it was last called.
func (r *recorder) take() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := slices.Collect(maps.Values(r.seen))
	clear(r.seen)
	slices.SortFunc(found, func(a, b statement) int { return strings.Compare(a.sql, b.sql) })
	return found
}

// modes are the ways in which a statement's plan may be made: for its arguments, or kept for all. Where its transaction
// says which, it is that one.
func (s statement) modes(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	var mode string
	if err := s.within(t.Context(), pool, func(conn *pgx.Conn) error {
		return conn.QueryRow(t.Context(), `SHOW plan_cache_mode`).Scan(&mode)
	}); err != nil {
		t.Fatal(err)
	}
	if mode == "auto" {
		return []string{"force_custom_plan", "force_generic_plan"}
	}
	return []string{mode}
}

// within does act in a transaction such as the statement was sent in, and rolls it back.
func (s statement) within(ctx context.Context, pool *pgxpool.Pool, act func(*pgx.Conn) error) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		begin := strings.Join(s.preamble, "; ")
		if !strings.HasPrefix(begin, "BEGIN") {
			begin = "BEGIN; " + begin
		}
		defer func() { _, _ = conn.Exec(context.Background(), "ROLLBACK") }()
		if _, err := conn.Exec(ctx, begin, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		return act(conn.Conn())
	})
}

// explain runs a statement once more, in a transaction such as it was sent in, and answers its plan with the rows that
// each node looked at. What can not be run twice is planned alone.
func (s statement) explain(t *testing.T, pool *pgxpool.Pool, mode string) plan {
	t.Helper()
	answer, err := s.run(t, pool, mode, "ANALYZE, TIMING OFF, ")
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23505" {
		answer, err = s.run(t, pool, mode, "")
	}
	if err != nil {
		t.Fatalf("explain: %v\n%s", err, s)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal(answer, &plans); err != nil || len(plans) != 1 {
		t.Fatalf("read plan: %v\n%s", err, answer)
	}
	return plans[0].Plan
}

// nested runs a statement that calls a function once more, in a transaction such as it was sent in, and answers the
// plans of the statements within. What it had claimed is unclaimed before.
func (s statement) nested(t *testing.T, ownerURL string) []plan {
	t.Helper()
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		t.Fatal(err)
	}
	var found []plan
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		_, text, isPlan := strings.Cut(n.Message, "plan:\n")
		var said struct{ Plan plan }
		if isPlan && json.Unmarshal([]byte(text), &said) == nil {
			found = append(found, said.Plan)
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range append(slices.Clone(s.preamble), `SET LOCAL session_replication_role = replica`,
		`DELETE FROM refund_operations WHERE operation_id LIKE 'new-%' OR operation_id LIKE 'many-%'`,
		`DELETE FROM ledger_transfers WHERE operation_id LIKE 'new-%' OR operation_id LIKE 'many-%'`,
		`SET LOCAL session_replication_role = origin`,
		`LOAD 'auto_explain'`, `SET auto_explain.log_min_duration = 0`, `SET auto_explain.log_analyze = on`,
		`SET auto_explain.log_timing = off`, `SET auto_explain.log_nested_statements = on`,
		`SET auto_explain.log_format = json`, `SET client_min_messages = log`) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	found = nil
	if _, err := conn.Exec(t.Context(), s.sql, s.args...); err != nil {
		t.Fatalf("explain: %v\n%s", err, s)
	}
	return found
}

// run explains a statement that is planned in a mode.
func (s statement) run(t *testing.T, pool *pgxpool.Pool, mode, options string) (answer []byte, err error) {
	t.Helper()
	const name = "explained"
	err = s.within(t.Context(), pool, func(conn *pgx.Conn) error {
		prepared, err := conn.Prepare(t.Context(), name, s.sql)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Deallocate(context.Background(), name) }()
		if _, err := conn.Exec(t.Context(), "SET LOCAL plan_cache_mode = "+mode); err != nil {
			return err
		}
		return conn.QueryRow(t.Context(), "EXPLAIN ("+options+"FORMAT JSON) EXECUTE "+name+
			literals(t, conn, prepared.ParamOIDs, s.args), pgx.QueryExecModeSimpleProtocol).Scan(&answer)
	})
	return answer, err
}

func (s statement) String() string { return strings.Join(strings.Fields(s.sql), " ") }

// literals writes arguments as EXECUTE takes them.
func literals(t *testing.T, conn *pgx.Conn, types []uint32, args []any) string {
	t.Helper()
	if len(args) == 0 {
		return ""
	}
	texts := make([]string, len(args))
	for i, arg := range args {
		text, err := conn.TypeMap().Encode(types[i], pgx.TextFormatCode, arg, []byte{}) // nil is null
		if err != nil {
			t.Fatalf("argument %d: %v", i+1, err)
		}
		texts[i] = "NULL"
		if text != nil {
			texts[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
	}
	return "(" + strings.Join(texts, ", ") + ")"
}

// plan is a node of a plan that was run, with those below it.
type plan struct {
	Node      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	IndexCond string  `json:"Index Cond"`
	Filter    string  `json:"Filter"`
	Rows      float64 `json:"Actual Rows"` // per loop, as the others
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Loops     float64 `json:"Actual Loops"`
	Searches  float64 `json:"Index Searches"` // told since Postgres 18
	Plans     []plan  `json:"Plans"`
}

// read is how many rows the node looked at.
func (p plan) read() int { return int((p.Rows + p.Filtered + p.Rechecked) * p.Loops) }

func (p plan) String() string {
	text := p.Node
	for _, part := range [][2]string{{" on ", p.Relation}, {" by ", p.Index}, {", index condition ", p.IndexCond},
		{", filter ", p.Filter}} {
		if part[1] != "" {
			text += part[0] + part[1]
		}
	}
	return fmt.Sprintf("%s (%d rows looked at, %.0f searches)", text, p.read(), p.Searches)
}

// relations adds the tables of the plan to found.
func (p plan) relations(found map[string]bool) {
	if p.Relation != "" {
		found[p.Relation] = true
	}
	for _, below := range p.Plans {
		below.relations(found)
	}
}

// indexes are the columns of every index, by its name.
type indexes map[string][]string

func readIndexes(t *testing.T, pool *pgxpool.Pool) indexes {
	t.Helper()
	found := indexes{}
	var name string
	var columns []string
	rows, err := pool.Query(t.Context(), `SELECT i.indexrelid::regclass::text,
		array_agg(pg_get_indexdef(i.indexrelid, n, true) ORDER BY n)
		FROM pg_index i CROSS JOIN generate_series(1, i.indnkeyatts) AS n
		WHERE i.indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace) GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.ForEachRow(rows,
		[]any{&name, &columns}, func() error { found[name] = slices.Clone(columns); return nil }); err != nil {
		t.Fatal(err)
	}
	return found
}

// ofDomain is a column of a domain as a plan has it: as its base type.
var ofDomain = regexp.MustCompile(`\(([a-z_]+)\)::(?:timestamp with time zone|text|bigint)`)

// unbounded tells whether an index condition leaves out a column before one that it has: Postgres then reads every
// entry of the columns before it, and does not count what it passes over. Since 18 it may skip from one value of the
// column that is left out to the next, by a search for each: an index that is walked is searched once.
func (x indexes) unbounded(p plan) bool {
	if p.Searches > 1 {
		return false
	}
	left := false
	condition := ofDomain.ReplaceAllString(p.IndexCond, "$1")
	for _, column := range x[p.Index] {
		has := regexp.MustCompile(`\((ROW\(([a-z_]+, )*)?` + regexp.QuoteMeta(column) + `[ ,)]`).MatchString(condition)
		if has && left {
			return true
		}
		left = left || !has
	}
	return false
}

// faults answers what is wrong with a plan, node by node. Within limited, whoever is above takes no more rows than a
// page.
func (x indexes) faults(p plan, limited bool) []string {
	var found []string
	walk := p.IndexCond == "" && walked[p.Index] // which counts dead entries, too
	fault := func(why string) { found = append(found, why+": "+p.String()) }
	switch p.Node {
	case "Seq Scan":
		if !tiny[p.Relation] {
			fault("reads a table from end to end")
		}
	case "Index Scan", "Index Only Scan", "Bitmap Index Scan":
		if p.IndexCond == "" && !limited && !tiny[p.Relation] && !walk {
			fault("reads an index from end to end")
		}
		if x.unbounded(p) {
			fault("does not bound what it reads of an index")
		}
	}
	if p.Relation+p.Index != "" && p.read() > mostRows && !walk {
		fault(fmt.Sprintf("looks at more than %d rows", mostRows))
	}
	switch p.Node {
	case "Limit":
		limited = true
	case "Sort", "Aggregate", "Hash", "ModifyTable": // want all there is, whatever is wanted of them
		limited = false
	}
	for _, below := range p.Plans {
		found = append(found, x.faults(below, limited)...)
	}
	return found
}

// sorts answers the nodes that put rows in order.
func (p plan) sorts() []string {
	var found []string
	if strings.HasSuffix(p.Node, "Sort") {
		found = append(found, "does not come in the order of an index: "+p.String())
	}
	for _, below := range p.Plans {
		found = append(found, below.sorts()...)
	}
	return found
}
