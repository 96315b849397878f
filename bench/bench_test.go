package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/reconcile"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const tenant = "bench-1"

// newBench works as the service's role, as a deployment's would.
func newBench(t *testing.T, db *testdb.DB, s Scale) *Bench {
	t.Helper()
	ctx := t.Context()
	if _, err := db.Owner.Exec(ctx, `INSERT INTO tenants (tenant_id) VALUES ($1)`, tenant); err != nil {
		t.Fatal(err)
	}
	b, err := New(ctx, Config{Pool: db.Pool, TenantID: tenant, Secret: "secret", Scale: s, Audit: audit(db.Pool)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func audit(pool *pgxpool.Pool) func(context.Context) error {
	return func(ctx context.Context) error {
		report, err := reconcile.Audit(ctx, pool)
		if err == nil && report.LieCount > 0 {
			err = fmt.Errorf("the books lie: %v", report.Lies)
		}
		return err
	}
}

func TestNew_MakesBooksThatBalance(t *testing.T) {
	t.Parallel()
	for name, random := range map[string]bool{"ascending ids": false, "random ids": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			b := newBench(t, db, Scale{Orders: 70, Executed: 500, Random: random})
			if p, err := b.Check(t.Context()); err != nil || p != (Proof{}) {
				t.Errorf("proof %+v: %v", p, err)
			}
		})
	}
}

func TestRequests_NameTheRowsThatSQLMade(t *testing.T) {
	t.Parallel()
	for name, random := range map[string]bool{"ascending ids": false, "random ids": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			b := newBench(t, db, Scale{Orders: 70, Executed: 500, Random: random})
			for _, kind := range []Kind{KindNew, KindHot, KindSimulator, KindReplay} {
				if err := b.books.approve(t.Context(), kind, 5); err != nil {
					t.Fatal(err)
				}
				requests := (&run{bench: b, load: Load{Mix: Mix{parts: []part{{kind, 1}}}}}).requests()
				for range 5 {
					if _, ok := requests[0].fill(); !ok {
						t.Fatalf("%s: none is left", kind)
					}
					table := map[bool]string{true: "refund_authorizations", false: "refund_operations"}[kind.moves()]
					var n int
					err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM `+table+`
						JOIN orders USING (tenant_id, order_id)
						WHERE tenant_id = $1 AND operation_id = $2 AND order_id = $3`,
						tenant, string(requests[0].operation), string(requests[0].order)).Scan(&n)
					if err != nil || n != 1 {
						t.Errorf("%s: %d rows for %s of %s: %v", kind, n, requests[0].operation, requests[0].order, err)
					}
				}
			}
		})
	}
}

// claiming acknowledges refunds by the status, and makes their rows, or not.
func claiming(t *testing.T, db *testdb.DB, status int, problem string, rows bool) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		operation := member(body, "operation_id")
		if rows {
			_, err := db.Owner.Exec(r.Context(), `WITH claimed AS (
					INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id,
						amount_cents, currency,
						state, settled_at)
					VALUES ($1, $2, encode(sha256(convert_to('{"amount_cents": 100, "order_id": "' || $3 || '"}',
						'UTF8')), 'hex'),
						gen_random_uuid(), $3, 100, 'EUR', 'succeeded', now())
				), posted AS (
					INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
						amount_cents,
						currency)
					VALUES ($1, $2, 1, 'refund', 'merchant', 'customer', 100, 'EUR')
				) UPDATE orders SET refunded_cents = refunded_cents + 100 WHERE tenant_id = $1 AND order_id = $3`,
				tenant, operation, member(body, "order_id"))
			if err != nil {
				t.Error(err)
			}
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"operation_id":"%s",%s}`, operation, problem)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestCheck_FindsAnswersThatTheRowsContradict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		status  int
		problem string
		rows    bool
		untrue  bool
	}{
		{"acknowledged with rows", 201, `"state":"succeeded"`, true, false},
		{"acknowledged without rows", 201, `"state":"succeeded"`, false, true},
		{"refused without rows", 422, `"code":"authorization_expired","money_moved":"no"`, false, false},
		{"refused with rows", 422, `"code":"authorization_expired","money_moved":"no"`, true, true},
		{"unknown with rows", 500, `"code":"internal","money_moved":"unknown"`, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t)
			b := newBench(t, db, Scale{Orders: 10, Executed: 10})
			target := Target{Name: "fake", URL: claiming(t, db, c.status, c.problem, c.rows).URL}
			mix, _ := ParseMix("new")
			_, err := b.Run(t.Context(), target, Load{Mix: mix, Connections: 2, Duration: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if p, err := b.Check(t.Context()); errors.Is(err, ErrUntrue) != c.untrue || (err != nil && !c.untrue) {
				t.Errorf("%+v: %v", p, err)
			}
		})
	}
}

// stalling answers at once, but for one pause.
func stalling(t *testing.T, after int64, pause time.Duration) *httptest.Server {
	t.Helper()
	var n atomic.Int64
	gate := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		gate <- struct{}{} // one after the other
		if n.Add(1) == after {
			time.Sleep(pause)
		}
		<-gate
		_, _ = fmt.Fprintf(w, `{"operation_id":"%s"}`, member(body, "operation_id"))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestRun_CountsAnOpenLoopFromWhenRequestsWereToBeSent(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	b := newBench(t, db, Scale{Orders: 10, Executed: 10})
	mix, _ := ParseMix("replays")
	const pause = 800 * time.Millisecond
	load := Load{Mix: mix, Connections: 1, Rate: 100, Duration: 2 * time.Second}
	r, err := b.Run(t.Context(), Target{Name: "fake", URL: stalling(t, 50, pause).URL}, load)
	if err != nil {
		t.Fatal(err)
	}
	// Some 80 of the 200 requests were to be sent while the only connection waited: a median of them waited 400 ms.
	if r.Latency.Quantile(0.8) < pause/4 || r.Late < pause/2 {
		t.Errorf("80 %% within %v, late by %v: the pause is hidden", r.Latency.Quantile(0.8), r.Late)
	}
	if r.Latency.Count() < 180 {
		t.Errorf("%d requests, want 200", r.Latency.Count())
	}
}

func TestRun_TellsOfAnOpenLoopThatItsTargetDidNotKeepUpWith(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	b := newBench(t, db, Scale{Orders: 10, Executed: 10})
	mix, _ := ParseMix("replays")
	load := Load{Mix: mix, Connections: 1, Rate: 100, Duration: time.Second}
	r, err := b.Run(t.Context(), Target{Name: "fake", URL: stalling(t, 20, 3*time.Second).URL}, load)
	if err != nil {
		t.Fatal(err)
	}
	// Request 20 was answered after the end; the 80 after it never had a connection.
	if r.Other[notSent] < 75 || r.Other[notSent] > 85 {
		t.Errorf("%v, want some 80 of them", r.Other)
	}
}

func TestRun_CountsWhatItDoesNotExpect(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	b := newBench(t, db, Scale{Orders: 10, Executed: 10})
	replays, _ := ParseMix("replays")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go hangUpOn(l)
	load := Load{Mix: replays, Connections: 2, Duration: 500 * time.Millisecond}
	r, err := b.Run(t.Context(), Target{Name: "fake", URL: "http://" + l.Addr().String()}, load)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered != 0 || len(r.Other) == 0 {
		t.Errorf("answered %d, other %v", r.Answered, r.Other)
	}
	overloaded := claiming(t, db, 503, `"code":"overloaded","money_moved":"unknown"`, false)
	if r, err = b.Run(t.Context(), Target{Name: "fake", URL: overloaded.URL}, load); err != nil {
		t.Fatal(err)
	}
	if r.Answered != 0 || r.Shed == 0 || r.ShedLatency.Count() == 0 || len(r.Other) > 0 {
		t.Errorf("answered %d, shed %d, other %v", r.Answered, r.Shed, r.Other)
	}
}

func hangUpOn(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Close()
	}
}

func TestPrint_ShowsEachTargetOfEachLoad(t *testing.T) {
	t.Parallel()
	result := func(target string, answered int64) Result {
		r := Result{Target: target, Mix: "new", Connections: 64, Took: time.Second, Answered: answered,
			Latency: new(Histogram), ShedLatency: new(Histogram), Other: map[string]int64{"500 internal": 2}}
		r.Latency.add(3 * time.Millisecond)
		r.Cost.Service = time.Duration(answered) * 70 * time.Microsecond
		r.Cost.Others = untold
		return r
	}
	summaries := Summarize([]Result{result("a", 1000), result("b", 10), result("a", 3000), result("b", 20),
		result("a", 1500)})
	if len(summaries) != 2 || summaries[0].Median != 1500 || summaries[0].Min != 1000 || summaries[0].Max != 3000 ||
		summaries[1].Median != 15 {
		t.Fatalf("%+v", summaries)
	}
	if got := summaries[0].PerAnswer(summaries[0].Cost.Service); got != 70*time.Microsecond {
		t.Errorf("%v of CPU per answer", got)
	}
	var out strings.Builder
	if err := Print(&out, summaries); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1000–3000", "10–20", "3.01", "a, new, 64 connections: 6 × 500 internal"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
