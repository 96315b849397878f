package growth

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/embedpg"
	"refundd/test/testdb"
)

// explained are a cluster's settings under which each statement tells how it went, those within functions and of
// foreign keys too. Autovacuum is off: no ANALYZE makes anybody plan anew.
var explained = map[string]string{
	"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
	"auto_explain.log_buffers": "on", "auto_explain.log_timing": "off", "auto_explain.log_nested_statements": "on",
	"auto_explain.log_format": "json", "logging_collector": "on", "log_destination": "csvlog", "log_directory": "plans",
	"log_rotation_size": "0", "autovacuum": "off", "shared_buffers": "128MB",
}

// execution is one run of a statement.
type execution struct {
	session   string // whose plans they are
	SQL       string `json:"Query Text"`
	Plan      node   `json:"Plan"`
	ofService bool
	kept      bool // the session had run it before the tables grew
}

func (e execution) String() string {
	return fmt.Sprintf("kept %v: %s", e.kept, strings.Join(strings.Fields(e.SQL), " "))
}

// node is a part of a plan, with what it did.
type node struct {
	Kind      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Condition string  `json:"Index Cond"`
	Filter    string  `json:"Filter"`
	Rows      float64 `json:"Actual Rows"` // per loop, as the two below
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Loops     float64 `json:"Actual Loops"`
	Hit       int     `json:"Shared Hit Blocks"` // of this node and those below
	Read      int     `json:"Shared Read Blocks"`
	Below     []node  `json:"Plans"`
}

func (n node) looked() int  { return int((n.Rows + n.Filtered + n.Rechecked) * n.Loops) }
func (n node) dropped() int { return int((n.Filtered + n.Rechecked) * n.Loops) }
func (n node) blocks() int  { return n.Hit + n.Read }

// own are the blocks that the node read itself.
func (n node) own() int {
	own := n.blocks()
	for _, below := range n.Below {
		own -= below.blocks()
	}
	return own
}
func (n node) scans() bool { return strings.Contains(n.Kind, "Scan") && n.Relation+n.Index != "" }
func (n node) String() string {
	return fmt.Sprintf("%s on %s by %q (%s; %s): %d rows looked at, %d dropped, %d blocks",
		n.Kind, n.Relation, n.Index, n.Condition, n.Filter, n.looked(), n.dropped(), n.blocks())
}

// walk shows every node to see.
func (n node) walk(see func(node)) {
	see(n)
	for _, below := range n.Below {
		below.walk(see)
	}
}

// plans is a database whose statements are read from the server's log.
type plans struct {
	*testdb.DB
	dir     string
	marks   int
	read    int64           // of the log
	planned map[string]bool // session and statement
}

func newPlans(t *testing.T) *plans {
	t.Helper()
	server := testdb.Start(t, embedpg.Options{Settings: explained})
	db := testdb.NewIn(t, server)
	p := &plans{DB: db, planned: map[string]bool{}}
	var data string
	if err := db.Owner.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	p.dir = filepath.Join(data, "plans")
	p.silently(t, `ANALYZE`)
	return p
}

// silently runs statements of the owner's, of which the log tells nothing.
func (p *plans) silently(t *testing.T, statements ...string) {
	t.Helper()
	err := p.Owner.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		for _, sql := range slices.Concat([]string{`SET auto_explain.log_min_duration = -1`}, statements,
			[]string{`RESET auto_explain.log_min_duration`}) {
			if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// executions are those since the last call. A plan is kept where its session had one when kept was last false.
func (p *plans) executions(t *testing.T, kept bool) []execution {
	t.Helper()
	p.marks++
	mark := fmt.Sprintf("SELECT 'mark %d'", p.marks)
	if _, err := p.Owner.Exec(t.Context(), mark, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		found, read, err := p.parse(mark)
		if err == nil {
			p.read = read
			return p.remember(found, kept)
		}
		if !errors.Is(err, errUnwritten) || time.Since(began) > 30*time.Second {
			t.Fatalf("read the log: %v", err)
		}
	}
}

func (p *plans) remember(found []execution, kept bool) []execution {
	for i, e := range found {
		of := e.session + e.SQL
		found[i].kept = kept && p.planned[of]
		if !kept {
			p.planned[of] = true
		}
	}
	return found
}

var errUnwritten = errors.New("the log's end is not written yet")

// parse reads the log up to the mark, and returns how far that is.
func (p *plans) parse(mark string) ([]execution, int64, error) {
	files, err := filepath.Glob(filepath.Join(p.dir, "*.csv"))
	if err != nil || len(files) != 1 {
		return nil, 0, fmt.Errorf("%d files in %s: %w", len(files), p.dir, errors.Join(err, errUnwritten))
	}
	file, err := os.Open(files[0])
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(p.read, io.SeekStart); err != nil {
		return nil, 0, err
	}
	var found []execution
	for lines := csv.NewReader(file); ; {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) || errors.Is(err, csv.ErrQuote) || errors.Is(err, csv.ErrFieldCount) {
			return nil, 0, errUnwritten
		}
		if err != nil {
			return nil, 0, err
		}
		e, told, err := executed(record)
		if err != nil {
			return nil, 0, err
		}
		switch {
		case !told:
		case e.SQL == mark:
			return found, p.read + lines.InputOffset(), nil
		default:
			found = append(found, e)
		}
	}
}

// The columns of a line of the log.
const (
	columnUser    = 1
	columnSession = 5
	columnMessage = 13
)

func executed(record []string) (execution, bool, error) {
	_, text, told := strings.Cut(record[columnMessage], "plan:\n")
	if !told {
		return execution{}, false, nil
	}
	e := execution{
		session: record[columnSession] + " ", ofService: strings.HasPrefix(record[columnUser], "refundd_test_service"),
	}
	err := json.Unmarshal([]byte(text), &e)
	return e, true, err
}

// books knows which tables and indexes there are.
type books struct {
	ofTenants map[string]bool   // tables with a tenant_id
	tables    map[string]string // of indexes
}

// ours are the schemas that our tables and their partitions are in.
const ours = `relnamespace = ANY (ARRAY[to_regnamespace('public'), to_regnamespace('partitioned')]::oid[])`

func (p *plans) books(t *testing.T) books {
	t.Helper()
	b := books{map[string]bool{}, map[string]string{}}
	var name, table string
	collect := func(sql string, do func()) {
		t.Helper()
		rows, err := p.Owner.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pgx.ForEachRow(rows, []any{&name, &table}, func() error { do(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	collect(`SELECT relname, '' FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
		WHERE attname = 'tenant_id' AND relkind IN ('r', 'p') AND `+ours, func() { b.ofTenants[name] = true })
	collect(`SELECT i.relname, c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid
		JOIN pg_class i ON i.oid = x.indexrelid WHERE c.`+ours, func() { b.tables[name] = table })
	return b
}

// faults are what is wrong with an execution.
func (b books) faults(e execution) []string {
	var found []string
	e.Plan.walk(func(n node) {
		fault := func(why string) { found = append(found, why+": "+n.String()) }
		if !n.scans() || tiny[n.Relation] || tiny[b.tables[n.Index]] {
			return
		}
		if n.Kind == "Seq Scan" {
			fault("reads a table from end to end")
		}
		if n.looked() > most {
			fault(fmt.Sprintf("looks at more than %d rows", most))
		}
		if n.dropped() > dropped {
			fault(fmt.Sprintf("looks at more than %d rows in vain", dropped))
		}
		// entries of an index that are passed over are not counted as rows
		if n.own() > 20+6*(n.looked()+int(n.Loops)) {
			fault(fmt.Sprintf("reads %d blocks", n.own()))
		}
	})
	return found
}

var ofTenant = regexp.MustCompile(`\btenant_id\)?(::text)? = `)

// strays are the scans of an execution that do not begin with one tenant, and need not be spread by it.
func (b books) strays(e execution) []string {
	var found []string
	e.Plan.walk(func(n node) {
		table := n.Relation
		if n.Index != "" {
			table = b.tables[n.Index]
		}
		expected := acrossTenants[cmp.Or(n.Index, n.Relation)] != "" || !b.ofTenants[table] || tiny[table]
		if n.scans() && n.Kind != "Bitmap Heap Scan" && !expected && !ofTenant.MatchString(n.Condition) {
			found = append(found, n.String())
		}
	})
	return found
}
