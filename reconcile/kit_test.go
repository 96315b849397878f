package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"refundd/operations"
	"refundd/provider/simulator"
	"refundd/test/testdb"
)

// bench is one parallel test's database, its provider, and an engine and a job between them.
type bench struct {
	t        *testing.T
	db       *testdb.DB
	url      string
	requests *requests
	engine   *operations.Engine
	job      *Job
}

// requests counts what the provider was asked.
type requests struct {
	lookups, refunds, running, most atomic.Int64
}

func (r *requests) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/refunds" {
			n := map[bool]*atomic.Int64{true: &r.lookups, false: &r.refunds}[request.Method == http.MethodGet]
			n.Add(1)
			running := r.running.Add(1)
			defer r.running.Add(-1)
			for most := r.most.Load(); running > most && !r.most.CompareAndSwap(most, running); most = r.most.Load() {
			}
		}
		next.ServeHTTP(w, request)
	})
}

// newBench makes its test parallel, and starts a provider that takes latency for each answer, and an engine on it.
func newBench(t *testing.T, latency time.Duration, change ...func(*operations.Config)) *bench {
	t.Helper()
	t.Parallel()
	server, err := simulator.New(simulator.Options{Dir: t.TempDir(), Latency: latency})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, db: testdb.New(t, testdb.MaxConns(12)), requests: &requests{}}
	web := httptest.NewServer(b.requests.count(server))
	t.Cleanup(func() { web.Close(); _ = server.Close() })
	b.url = web.URL
	b.engine = b.newEngine(change...)
	b.job = b.newJob(Config{Engine: b.engine})
	b.exec(`INSERT INTO tenants (tenant_id, require_authorization) VALUES ('acme', false)`)
	return b
}

// newEngine runs another process's engine until the test ends.
func (b *bench) newEngine(change ...func(*operations.Config)) *operations.Engine {
	b.t.Helper()
	client, err := simulator.NewClient(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	config := operations.Config{
		Pool: b.db.Pool, ProviderTimeout: 2 * time.Second, BreakerFailures: 1000, BackoffMin: time.Minute,
		Providers: map[string]operations.ProviderSetup{"simulator": {
			Provider: client, KeyRetention: simulator.KeyRetention, MaxKeyLength: simulator.MaxKeyLength,
		}},
	}
	for _, c := range change {
		c(&config)
	}
	e, err := operations.New(config)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			b.t.Errorf("engine: %v", err)
		}
	})
	b.t.Cleanup(func() { stop(); running.Wait() })
	return e
}

func (b *bench) newJob(c Config) *Job {
	b.t.Helper()
	c.Pool = b.db.Pool
	j, err := New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Owner.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// text reads one value.
func (b *bench) text(sql string, args ...any) string {
	b.t.Helper()
	var s string
	if err := b.db.Owner.QueryRow(b.t.Context(), `SELECT coalesce((`+sql+`)::text, '')`, args...).Scan(&s); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return s
}

// call asks the provider directly.
func (b *bench) call(method, path, body string, headers ...string) string {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(response.Body); err != nil || response.StatusCode >= 300 {
		b.t.Fatalf("%s %s: %d %s (%v)", method, path, response.StatusCode, out.String(), err)
	}
	return out.String()
}

// faults replaces the provider's faults; each is the members of one, such as `"mode":"hang","count":1`.
func (b *bench) faults(faults ...string) {
	b.t.Helper()
	b.call(http.MethodDelete, "/_faults", "")
	for _, f := range faults {
		b.call(http.MethodPost, "/_faults", "{"+f+"}")
	}
}

// submit asks for a refund of 100 on an order of its own, whose payment bears the operation's name.
func (b *bench) submit(id string) {
	b.t.Helper()
	b.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
		VALUES ('acme', 'order-' || $1::text, 'EUR', 1000, 'simulator', $1)`, id)
	b.again(id)
}

// submitAway asks for it through a process whose provider is out of reach, so that not a byte of it is sent.
func (b *bench) submitAway(id string) {
	b.t.Helper()
	url, engine := b.url, b.engine
	b.url = "http://127.0.0.1:1" // nobody listens
	b.engine = b.newEngine()
	b.submit(id)
	b.url, b.engine = url, engine
}

// again asks once more.
func (b *bench) again(id string) {
	b.t.Helper()
	_, err := b.engine.Submit(b.t.Context(),
		operations.Request{TenantID: "acme", OperationID: id, OrderID: "order-" + id, AmountCents: 100})
	if err != nil && !errors.Is(err, operations.ErrDeclined) {
		b.t.Fatalf("submit %s: %v", id, err)
	}
}

// due lets the time pass until everything is due, unless it never is again, and its lease free.
func (b *bench) due() {
	b.t.Helper()
	b.exec(`UPDATE refund_operations SET lease_until = '-infinity', next_check_at = '-infinity'
		WHERE next_check_at < 'infinity'`)
}

// run lets everything be due, runs the job once and checks what it tells, but for its times.
func (b *bench) run(want Summary) {
	b.t.Helper()
	b.due()
	b.runs(b.job, want)
}

func (b *bench) runs(j *Job, want Summary) {
	b.t.Helper()
	got, err := j.Run(b.t.Context())
	if err != nil {
		b.t.Errorf("run: %v", err)
	}
	times := cmpopts.IgnoreFields(Summary{}, "DurationMS", "OldestUnknownSeconds")
	if diff := gocmp.Diff(want, got, times); diff != "" {
		b.t.Errorf("summary (-want +got):\n%s", diff)
	}
}

// expect checks where an operation stands: its state and failure code, its transfers, and the refunds that the provider
// made of it. The books are clean in any case.
func (b *bench) expect(id, state, transfers string, executed int) {
	b.t.Helper()
	row := b.text(`SELECT concat_ws(' ', state, failure_code) FROM refund_operations WHERE operation_id = $1`, id)
	if row != state {
		b.t.Errorf("%s is %q, want %q", id, row, state)
	}
	chain := b.text(`SELECT string_agg(kind, ' ' ORDER BY seq) FROM ledger_transfers WHERE operation_id = $1`, id)
	if chain != transfers {
		b.t.Errorf("%s by %q, want %q", id, chain, transfers)
	}
	if n := b.executed(id); n != executed {
		b.t.Errorf("the provider made %d refunds of %s, want %d", n, id, executed)
	}
	if report := audit(b.t, b.db); report.LieCount != 0 && !strings.Contains(state, operations.FailureOverRefund) {
		b.t.Errorf("the books lie: %+v", report.Lies)
	}
}

func (b *bench) executed(id string) int {
	b.t.Helper()
	var books struct {
		Refunds []struct {
			Ref string `json:"payment_ref"`
		} `json:"refunds"`
	}
	if err := json.Unmarshal([]byte(b.call(http.MethodGet, "/_ledger", "")), &books); err != nil {
		b.t.Fatal(err)
	}
	n := 0
	for _, r := range books.Refunds {
		if r.Ref == id {
			n++
		}
	}
	return n
}

// executeByHand makes a refund at the provider past our service, with an operation's name on it.
func (b *bench) executeByHand(id string, cents int) {
	b.t.Helper()
	body := fmt.Sprintf(`{"payment_ref":%q,"amount_cents":%d,"currency":"EUR","metadata":{"tenant_id":"acme","operation_id":%q}}`, id, cents, id)
	b.call(http.MethodPost, "/refunds", body, "Idempotency-Key", "by-hand-"+id)
}

// lastEvent is the kind, error kind and detail of an operation's last event of that kind.
func (b *bench) lastEvent(id, kind string) string {
	b.t.Helper()
	return b.text(`SELECT concat_ws(' ', error_kind, from_state, to_state, detail) FROM operation_events
		WHERE operation_id = $1 AND kind = $2 ORDER BY seq DESC LIMIT 1`, id, kind)
}

func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	b.t.Fatalf("waited in vain for %s", what)
}
