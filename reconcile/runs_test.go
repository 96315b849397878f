package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"refundd/operations"
)

// loseAnswers makes n refunds that the provider executed and did not tell of.
func (b *bench) loseAnswers(n int) {
	b.t.Helper()
	b.faults(`"mode":"drop_after"`)
	for i := range n {
		b.submit(fmt.Sprintf("K-%d", i))
	}
	b.faults()
	b.due()
}

// A31.
func TestRun_TwoAtOnce_CallOncePerOperation(t *testing.T) {
	b := newBench(t, 150*time.Millisecond)
	const n = 40
	b.loseAnswers(n)
	var sum Summary
	var mu sync.Mutex
	var runs sync.WaitGroup
	for range 2 {
		other := b.newJob(Config{Engine: b.newEngine(), Workers: 5})
		runs.Go(func() {
			s, err := other.Run(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if err != nil || s.Claimed == 0 {
				t.Errorf("one of two claimed %d (%v)", s.Claimed, err)
			}
			sum.Claimed, sum.Succeeded = sum.Claimed+s.Claimed, sum.Succeeded+s.Succeeded
		})
	}
	runs.Wait()
	if sum.Claimed != n || sum.Succeeded != n {
		t.Errorf("two runs claimed %d and settled %d of %d", sum.Claimed, sum.Succeeded, n)
	}
	if got := b.requests.lookups.Load(); got != n {
		t.Errorf("%d lookups for %d operations", got, n)
	}
	if got := b.requests.refunds.Load(); got != n {
		t.Errorf("%d requests for %d operations", got, n)
	}
	if got := b.requests.most.Load(); got > 10 {
		t.Errorf("%d requests at a time by 2 times 5 workers", got)
	}
	b.expect("K-0", "succeeded", "hold settle", 1)
}

func TestRun_AtARate_KeepsToIt(t *testing.T) {
	b := newBench(t, 0)
	b.loseAnswers(25)
	paced := b.newJob(Config{Engine: b.engine, RatePerSecond: 20})
	began := time.Now()
	b.runs(paced, Summary{Claimed: 25, Succeeded: 25})
	if took := time.Since(began); took < time.Second {
		t.Errorf("25 requests at 20 per second take %v", took)
	}
	began = time.Now()
	if b.runs(b.newJob(Config{Engine: b.engine, RatePerSecond: 0.1, Rates: map[string]float64{"simulator": 1000}}),
		Summary{}); time.Since(began) > 5*time.Second {
		t.Errorf("a rate of its own is not heeded: %v", time.Since(began))
	}
	b.faults(`"mode":"error_before","count":8`)
	for i := range 8 {
		b.submit(fmt.Sprintf("L-%d", i))
	}
	b.exec(`UPDATE refund_operations SET next_check_at = '-infinity' WHERE state = 'reserved'`)
	time.Sleep(100 * time.Millisecond) // what the first run spent is forgotten
	began = time.Now()
	b.runs(paced, Summary{Claimed: 8, Succeeded: 8, Resent: 8})
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("8 lookups and 8 requests at 20 per second take %v", took)
	}
}

func TestRun_ToldToStop_FinishesWhatItHasInHand(t *testing.T) {
	b := newBench(t, 300*time.Millisecond)
	b.loseAnswers(8)
	b.requests.lookups.Store(0)
	ctx, stop := context.WithCancel(t.Context())
	slow := b.newJob(Config{Engine: b.engine, Workers: 3})
	var got Summary
	var err error
	var running sync.WaitGroup
	running.Go(func() { got, err = slow.Run(ctx) })
	b.eventually("three lookups", func() bool { return b.requests.lookups.Load() == 3 })
	stop()
	running.Wait()
	if err != nil || got.Claimed != 3 || got.Succeeded != 3 {
		t.Errorf("stopped with %+v (%v)", got, err)
	}
	if left := b.text(`SELECT count(*) FROM refund_operations WHERE state = 'reserved' AND lease_until = '-infinity'
		AND attempts = 1`); left != "5" {
		t.Errorf("%s of 5 are left as they were", left)
	}
	if row := b.text(`SELECT concat_ws(' ', claimed, succeeded, error, finished_at IS NOT NULL)
		FROM reconciliation_runs`); row != "3 3 interrupted t" {
		t.Errorf("the run's row says %q", row)
	}
	b.runs(slow, Summary{Claimed: 5, Succeeded: 5})
}

func TestRun_IsRecorded(t *testing.T) {
	b := newBench(t, 0)
	b.loseAnswers(2)
	b.faults(`"mode":"error_before","count":1`)
	b.submit("again")
	b.faults(`"mode":"pending","count":2,"delay_ms":3600000`)
	b.submit("pending")
	b.submit("old")
	b.exec(`UPDATE refund_operations SET created_at = now() - interval '1 hour' WHERE operation_id = 'pending'`)
	b.exec(`UPDATE refund_operations SET created_at = now() - interval '15 days' WHERE operation_id = 'old'`)
	b.due()
	got, err := b.job.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{Claimed: 5, Succeeded: 3, Pending: 1, Resent: 1, NeedsAttention: 1}
	want.OldestUnknownSeconds, want.DurationMS = got.OldestUnknownSeconds, got.DurationMS
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if got.OldestUnknownSeconds < 3600 || got.OldestUnknownSeconds > 3900 {
		t.Errorf("the oldest unknown operation is %d s old, want an hour", got.OldestUnknownSeconds)
	}
	row := b.text(`SELECT concat_ws(' ', claimed, succeeded, failed, pending, resent, needs_attention, still_unknown,
		oldest_unknown_seconds,
		errors, duration_ms, error IS NULL, dry_run, finished_at >= started_at) FROM reconciliation_runs`)
	told := fmt.Sprintf("%d %d %d %d %d %d %d %d %d %d t f t", got.Claimed, got.Succeeded, got.Failed, got.Pending,
		got.Resent, got.NeedsAttention,
		got.StillUnknown, got.OldestUnknownSeconds, got.Errors, got.DurationMS)
	if row != told {
		t.Errorf("the run's row says %q, the run told %q", row, told)
	}
}

func TestRun_LogsEachDecision_WithoutAProvidersWords(t *testing.T) {
	b := newBench(t, 0)
	b.faults(`"mode":"drop_after","count":1`)
	b.submit("K")
	b.faults(`"mode":"pending","count":1,"delay_ms":3600000`)
	b.submit("P")
	b.faults(`"mode":"lookup_down","count":2,"message":"canary"`)
	b.due()
	var log bytes.Buffer
	logging := b.newJob(Config{Engine: b.engine, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	b.runs(logging, Summary{Claimed: 2, StillUnknown: 2})
	b.faults()
	b.due()
	b.runs(logging, Summary{Claimed: 2, Succeeded: 1, Pending: 1})
	got := map[string]int{}
	for line := range strings.Lines(log.String()) {
		var e struct {
			Msg, Kind string
			Operation string `json:"operation_id"`
			From      string `json:"from_state"`
			To        string `json:"to_state"`
			Run       string `json:"run_id"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Run == "" {
			t.Fatalf("%q: %v", line, err)
		}
		got[strings.Join([]string{e.Msg, e.Operation, e.From, e.To, e.Kind}, ",")]++
	}
	want := map[string]int{
		"operation reconciled,K,reserved,reserved,unknown": 1, "operation reconciled,P,pending,pending,unknown": 1,
		"operation reconciled,K,reserved,succeeded,": 1, "operation reconciled,P,pending,pending,": 1,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if strings.Contains(log.String(), "canary") {
		t.Error("the log quotes the provider")
	}
}

func TestRun_ThatCannotClaim_FailsAndSaysSo(t *testing.T) {
	b := newBench(t, 0)
	b.loseAnswers(1)
	b.exec(`REVOKE UPDATE ON refund_operations FROM refundd_service`)
	if _, err := b.job.Run(t.Context()); err == nil {
		t.Error("no error")
	}
	if row := b.text(`SELECT concat_ws(' ', claimed, error, finished_at IS NOT NULL)
		FROM reconciliation_runs`); row != "0 claim: sqlstate 42501 t" {
		t.Errorf("the run's row says %q", row)
	}
}

func TestRun_ThatCannotRecord_CountsErrorsAndEnds(t *testing.T) {
	b := newBench(t, 0)
	b.loseAnswers(3)
	b.exec(`REVOKE INSERT ON ledger_transfers FROM refundd_service`)
	b.runs(b.job, Summary{Claimed: 3, Errors: 3})
	b.exec(`GRANT INSERT ON ledger_transfers TO refundd_service`)
	b.run(Summary{Claimed: 3, Succeeded: 3})
}

func TestDryRun_DecidesAndChangesNothing(t *testing.T) {
	b := newBench(t, 0, lag(time.Millisecond))
	b.loseAnswers(2)
	b.faults(`"mode":"error_before","count":2`)
	b.submit("again")
	b.submit("forgotten")
	b.forget("forgotten")
	b.submitAway("never-sent")
	b.faults(`"mode":"pending","count":1,"delay_ms":3600000`)
	b.submit("pending")
	b.faults(`"mode":"drop_after","count":1`, `"mode":"fail_later","count":1`)
	b.submit("failed")
	b.submit("settled")
	b.due()
	before, refunds := b.dump(), b.requests.refunds.Load()
	got, err := b.job.DryRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got.OldestUnknownSeconds, got.DurationMS = 0, 0
	want := Summary{Claimed: 8, Succeeded: 2, Failed: 1, Pending: 1, Resent: 2, NeedsAttention: 1, StillUnknown: 2}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("dry run (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(before, b.dump()); diff != "" {
		t.Errorf("the database changed (-before +after):\n%s", diff)
	}
	if n := b.requests.refunds.Load() - refunds; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	b.runs(b.job, Summary{Claimed: 8, Succeeded: 4, Failed: 1, Pending: 1, Resent: 2, NeedsAttention: 1})
}

// dump is every row of every table.
func (b *bench) dump() map[string]string {
	b.t.Helper()
	rows := map[string]string{}
	for table := range strings.FieldsSeq("tenants api_keys orders refund_authorizations refund_operations ledger_transfers operation_events reconciliation_runs") {
		rows[table] = b.text(`SELECT jsonb_pretty(jsonb_agg(to_jsonb(x) ORDER BY to_jsonb(x)::text)) FROM ` +
			table + ` x`)
	}
	return rows
}

func TestDryRun_ReadsEveryPage(t *testing.T) {
	b := newBench(t, 0)
	b.exec(`
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents, provider,
			provider_payment_ref)
		VALUES ('acme', 'o', 'EUR', 100000, 600, 'simulator', 'pay')`)
	b.exec(`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
		currency, state,
			provider, provider_key, provider_key_expires_at, attempts)
		SELECT 'acme', 'op-' || i, $1, gen_random_uuid(), 'o', 1, 'EUR', 'reserved', 'simulator', 'acme:op-' || i,
			now() + interval '1 hour', 1
		FROM generate_series(1, 600) i`, operations.Fingerprint("o", 1))
	got, err := b.job.DryRun(t.Context())
	if err != nil || got.Claimed != 600 || got.Resent != 600 || b.requests.lookups.Load() != 600 {
		t.Errorf("%+v (%v)", got, err)
	}
}

func TestLoop_RunsUntilToldToStop(t *testing.T) {
	b := newBench(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	runs := 0
	b.job.Loop(ctx, 20*time.Millisecond, func(Summary, error) {
		if runs++; runs == 3 {
			stop()
		}
	})
	if rows := b.text(`SELECT count(*) FROM reconciliation_runs
		WHERE finished_at IS NOT NULL`); rows != "3" || runs != 3 {
		t.Errorf("%d runs, %s rows", runs, rows)
	}
}

func TestNew_NamesEachFault(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Workers: -1, RatePerSecond: -1, Rates: map[string]float64{"stripe": -2}})
	for _, says := range []string{"no engine", "no database pool", "-1 workers", "rate -1", "rate -2 of stripe"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}
