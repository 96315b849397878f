package reconcile

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"refundd/test/testdb"
)

// scraped is what a fresh collector tells, by name and labels.
func scraped(t *testing.T, pool *pgxpool.Pool) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(pool, "simulator"))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	told := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil && name != "#" {
			told[name] = value
		}
	}
	return told
}

// within checks that an age passed by in seconds, give or take the test's own time.
func within(t *testing.T, told map[string]float64, name string, seconds float64) {
	t.Helper()
	if age, ok := told[name]; !ok || age < seconds || age > seconds+100 {
		t.Errorf("%s is %v (told: %t), want %v", name, age, ok, seconds)
	}
}

func TestCollector_TellsWhatHasNoEnd(t *testing.T) {
	b := newBench(t, 0)
	want := map[string]float64{
		`refundd_operations{state="reserved"}`: 0, `refundd_operations_oldest_age_seconds{state="reserved"}`: 0,
		`refundd_operations{state="pending"}`: 0, `refundd_operations_oldest_age_seconds{state="pending"}`: 0,
		`refundd_operations{state="needs_attention"}`: 0, `refundd_operations_oldest_age_seconds{state="needs_attention"}`: 0,
		`refundd_operations_due{provider="simulator"}`: 0, `refundd_operations_due{provider="unknown"}`: 0,
		`refundd_operations_scrape_success`: 1, `refundd_orders_over_refunded`: 0, `refundd_operations_contradicted`: 0, `refundd_reconciliation_last_success_timestamp_seconds`: 0,
	}
	if diff := gocmp.Diff(want, scraped(t, b.db.Pool)); diff != "" {
		t.Errorf("of an empty database (-want +got):\n%s", diff)
	}
	b.loseAnswers(3)
	b.faults(`"mode":"pending","count":2,"delay_ms":3600000`)
	b.submit("P")
	b.submit("old")
	b.submit("settled")
	b.exec(`UPDATE refund_operations SET created_at = now() - interval '20 days' WHERE operation_id = 'old'`)
	b.exec(`UPDATE refund_operations SET created_at = now() - interval '1 hour' WHERE operation_id = 'K-1'`)
	b.exec(`UPDATE refund_operations SET next_check_at = '-infinity' WHERE operation_id = 'old'`)
	b.exec(`UPDATE refund_operations SET next_check_at = 'infinity' WHERE operation_id <> 'old'`)
	b.runs(b.job, Summary{Claimed: 1, NeedsAttention: 1})
	told := scraped(t, b.db.Pool)
	for state, count := range map[string]float64{"reserved": 3, "pending": 1, "needs_attention": 1} {
		if got := told[`refundd_operations{state="`+state+`"}`]; got != count {
			t.Errorf("%v are %s, want %v", got, state, count)
		}
	}
	within(t, told, `refundd_operations_oldest_age_seconds{state="reserved"}`, 3600)
	within(t, told, `refundd_operations_oldest_age_seconds{state="pending"}`, 0)
	within(t, told, `refundd_operations_oldest_age_seconds{state="needs_attention"}`, 20*86400)
	within(t, told, `refundd_reconciliation_last_success_age_seconds`, 0)
	if at := time.Unix(int64(told[`refundd_reconciliation_last_success_timestamp_seconds`]),
		0); time.Since(at) > time.Minute {
		t.Errorf("the last run was at %v", at)
	}
}

func TestCollector_TellsWhatIsDue(t *testing.T) {
	b := newBench(t, 0)
	b.load("simulator", "open", 3, "1 hour")
	settled := b.load("simulator", "settled", 2, "1 hour")
	b.load("stripe", "strange", 4, "1 hour")
	b.load("adyen", "strange-too", 1, "1 hour")
	b.load("simulator", "later", 7, "-1 hour")
	leased := b.load("simulator", "leased", 7, "1 hour")
	b.exec(`UPDATE refund_operations SET state = 'needs_attention' WHERE operation_id = ANY ($1)`, settled)
	b.exec(`UPDATE refund_operations SET lease_until = now() + interval '1 hour' WHERE operation_id = ANY ($1)`, leased)
	told := scraped(t, b.db.Pool)
	for provider, count := range map[string]float64{"simulator": 5, "unknown": 5} {
		if got := told[`refundd_operations_due{provider="`+provider+`"}`]; got != count {
			t.Errorf("%v are due of %s, want %v", got, provider, count)
		}
	}
}

func TestCollector_CountsOnlyRunsThatWereASuccess(t *testing.T) {
	b := newBench(t, 0)
	b.exec(`INSERT INTO reconciliation_runs (run_id, started_at, finished_at, error) VALUES
		(gen_random_uuid(), now() - interval '3 hours', now() - interval '2 hours', NULL),
		(gen_random_uuid(), now() - interval '1 hour', NULL, NULL),
		(gen_random_uuid(), now() - interval '1 hour', now(), 'interrupted')`)
	b.exec(`INSERT INTO reconciliation_runs (run_id, finished_at, errors) VALUES (gen_random_uuid(), now(), 1)`)
	told := scraped(t, b.db.Pool)
	within(t, told, `refundd_reconciliation_last_success_age_seconds`, 7200)
	if told[`refundd_reconciliation_last_run_failed`] != 1 {
		t.Error("the last run, which had an error, is not told as failed")
	}
	b.exec(`INSERT INTO reconciliation_runs (run_id, finished_at) VALUES (gen_random_uuid(), now())`)
	if told := scraped(t, b.db.Pool); told[`refundd_reconciliation_last_run_failed`] != 0 {
		t.Error("a run that was a success is told as failed")
	}
	if _, found := told[`refundd_audit_lies`]; found {
		t.Error("an audit that never was is told of")
	}
	for _, lies := range []int64{7, 2} {
		if err := RecordAudit(t.Context(), b.db.Pool, Report{LieCount: lies}, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	told = scraped(t, b.db.Pool)
	within(t, told, `refundd_audit_age_seconds`, 0)
	if told[`refundd_audit_lies`] != 2 {
		t.Errorf("the last audit is told to name %v lies", told[`refundd_audit_lies`])
	}
}

func TestCollector_WithoutTheDatabase_SaysSoInTime(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	pool := testdb.Pool(t, strings.Replace(db.ServiceURL, db.Name, "nowhere", 1))
	began := time.Now()
	if diff := gocmp.Diff(map[string]float64{`refundd_operations_scrape_success`: 0}, scraped(t, pool)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("it takes %v", took)
	}
}
