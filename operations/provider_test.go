package operations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"refundd/operations"
	"refundd/provider/simulator"
)

// paying is a bundle whose engine refunds through a simulator, over HTTP.
type paying struct {
	*bundle
	url string
}

func newPaying(t *testing.T, change ...func(*operations.Config)) *paying {
	t.Helper()
	server, err := simulator.New(simulator.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(func() { web.Close(); _ = server.Close() })
	client, err := simulator.NewClient(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	configure := append([]func(*operations.Config){func(c *operations.Config) {
		c.Providers = map[string]operations.ProviderSetup{"simulator": {
			Provider: client, KeyRetention: simulator.KeyRetention, MaxKeyLength: simulator.MaxKeyLength,
		}}
		c.ProviderTimeout = 500 * time.Millisecond
		c.Lease = 2 * time.Second
		c.BreakerFailures = 1000
	}}, change...)
	p := &paying{newBundle(t, configure...), web.URL}
	p.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
		VALUES ($1, 'P', 'USD', 10000, 'simulator', 'pay-1')`, tenant)
	return p
}

func (p *paying) call(method, path, body string) []byte {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(resp.Body); err != nil {
		p.t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		p.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, out.String())
	}
	return out.Bytes()
}

// fault makes the simulator misbehave count times.
func (p *paying) fault(mode string, count, delayMS int) {
	p.t.Helper()
	p.call(http.MethodPost, "/_faults", fmt.Sprintf(`{"mode":%q,"count":%d,"delay_ms":%d}`, mode, count, delayMS))
}

// executed is what the simulator's books show, by idempotency key.
func (p *paying) executed() map[string]int {
	p.t.Helper()
	var books struct {
		Refunds []struct {
			IdempotencyKey string `json:"idempotency_key"`
			AmountCents    int64  `json:"amount_cents"`
			Status         string `json:"status"`
		} `json:"refunds"`
	}
	if err := json.Unmarshal(p.call(http.MethodGet, "/_ledger", ""), &books); err != nil {
		p.t.Fatal(err)
	}
	n := map[string]int{}
	for _, r := range books.Refunds {
		n[r.IdempotencyKey]++
	}
	return n
}

// due makes everything due and its lease free, as time would.
func (p *paying) due() {
	p.t.Helper()
	p.exec(`UPDATE refund_operations SET lease_until = '-infinity', next_check_at = '-infinity'`)
}

// reconcile resolves what is due, once.
func (p *paying) reconcile() []operations.Pursuit {
	p.t.Helper()
	leases := append(p.claim(operations.Claim{}), p.claim(operations.Claim{Settled: true})...)
	var all []operations.Pursuit
	for _, l := range leases {
		r, err := p.Pursue(p.t.Context(), l)
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// claim takes leases of what is due at the simulator within the hour.
func (p *paying) claim(c operations.Claim) []operations.Lease {
	p.t.Helper()
	c.Provider, c.Before, c.Limit = "simulator", time.Now().Add(time.Hour), 100
	leases, err := p.ClaimDue(p.t.Context(), c)
	if err != nil {
		p.t.Fatal(err)
	}
	return leases
}

func (p *paying) state(operationID string) operations.Operation {
	p.t.Helper()
	op, err := p.Refund(p.t.Context(), tenant, operationID)
	if err != nil {
		p.t.Fatal(err)
	}
	return op
}

// books checks an operation's chain of transfers and its order's balance.
func (p *paying) books(operationID string, balance int64, kinds ...string) {
	p.t.Helper()
	rows, err := p.db.Owner.Query(p.t.Context(),
		`SELECT kind FROM ledger_transfers WHERE operation_id = $1 ORDER BY seq`, operationID)
	if err != nil {
		p.t.Fatal(err)
	}
	got, err := pgx.AppendRows([]string(nil), rows, pgx.RowTo[string])
	if err != nil {
		p.t.Fatal(err)
	}
	if diff := cmp.Diff(kinds, got); diff != "" {
		p.t.Errorf("transfers of %s (-want +got):\n%s", operationID, diff)
	}
	if got := p.count(`SELECT refunded_cents FROM orders WHERE order_id = 'P'`); got != balance {
		p.t.Errorf("order's balance %d, want %d", got, balance)
	}
}

func (p *paying) pay(operationID string, amount int64) operations.Request {
	return p.approve(operationID, "P", amount)
}

const key = tenant + ":K"

func TestSubmitAtAProvider(t *testing.T) {
	t.Parallel()

	t.Run("Succeeds_SettlesTheHoldAndReplays", func(t *testing.T) {
		p := newPaying(t)
		r := p.pay("K", 4000)
		r.Layer = "agent_loop"
		first := p.submit(r)
		expect(t, first, operations.StatusProcessed)
		expect(t, p.submit(r), operations.StatusAlreadyProcessed)
		p.books("K", 4000, "hold", "settle")
		if diff := cmp.Diff(map[string]int{key: 1}, p.executed()); diff != "" {
			t.Errorf("provider (-want +got):\n%s", diff)
		}
		if op := p.state("K"); op.State != operations.StateSucceeded || op.ProviderRefundID == nil ||
			op.SettledAt == nil {
			t.Errorf("row %+v", op)
		}
		if diff := cmp.Diff(first.receipt.Operation.SettledAt, p.state("K").SettledAt); diff != "" {
			t.Errorf("settled_at (-answered +stored):\n%s", diff)
		}
		timeline, _, err := p.Timeline(t.Context(), tenant, "K", operations.Page{Limit: 20})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, e := range timeline {
			if e.Transfer != nil {
				kinds = append(kinds, "transfer:"+string(e.Transfer.Kind))
			} else {
				kinds = append(kinds, e.Event.Kind)
			}
		}
		if diff := cmp.Diff([]string{"transfer:hold", "transition", "transfer:settle", "refund", "transition"},
			kinds); diff != "" {
			t.Errorf("timeline (-want +got):\n%s", diff)
		}
	})

	t.Run("TwoOperationsAlike_HaveTheirOwnKeys", func(t *testing.T) { // A5
		p := newPaying(t)
		one, two := p.start(t.Context(), p.pay("K1", 500)), p.start(t.Context(), p.pay("K2", 500))
		expect(t, wait(t, one), operations.StatusProcessed)
		expect(t, wait(t, two), operations.StatusProcessed)
		if diff := cmp.Diff(map[string]int{tenant + ":K1": 1, tenant + ":K2": 1}, p.executed()); diff != "" {
			t.Errorf("provider (-want +got):\n%s", diff)
		}
	})

	t.Run("ManyAtOnce_OneExecutesTheOthersReplayOrAreInProgress", func(t *testing.T) {
		p := newPaying(t)
		p.fault("hang", 1, 200)
		r := p.pay("K", 4000)
		var all []<-chan outcome
		for range 50 {
			all = append(all, p.start(t.Context(), r))
		}
		processed := 0
		for _, done := range all {
			switch got := wait(t, done); {
			case got.err == nil && got.receipt.Status == operations.StatusProcessed:
				processed++
			case got.err == nil && got.receipt.Status == operations.StatusAlreadyProcessed:
			case errors.Is(got.err, operations.ErrInProgress):
				var refusal *operations.Refusal
				if !errors.As(got.err, &refusal) || refusal.RetryAfter <= 0 {
					t.Error("in progress without a time to retry after")
				}
			default:
				t.Errorf("got %s", got)
			}
		}
		if processed != 1 {
			t.Errorf("%d processed, want 1", processed)
		}
		p.books("K", 4000, "hold", "settle")
	})

	t.Run("AnswerLost_StaysHeldAndTheSameKeyFindsIt", func(t *testing.T) { // A22
		for _, mode := range []string{"drop_after", "error_after", "hang"} {
			t.Run(mode, func(t *testing.T) {
				p := newPaying(t)
				p.fault(mode, 1, 800)
				r := p.pay("K", 4000)
				got := p.submit(r)
				expect(t, got, operations.StatusPending)
				if got.receipt.Operation.State.MoneyMoved() != operations.MovedUnknown {
					t.Errorf("money moved %s, want unknown", got.receipt.Operation.State.MoneyMoved())
				}
				p.books("K", 4000, "hold")
				expect(t, p.submit(r), operations.StatusPending) // within the second: the row answers
				time.Sleep(900 * time.Millisecond)               // the hanging request ends at the provider
				p.due()
				expect(t, p.submit(r), operations.StatusProcessed)
				expect(t, p.submit(r), operations.StatusAlreadyProcessed)
				p.books("K", 4000, "hold", "settle")
				if diff := cmp.Diff(map[string]int{key: 1}, p.executed()); diff != "" {
					t.Errorf("provider (-want +got):\n%s", diff)
				}
			})
		}
	})

	t.Run("NothingDone_IsSentAgainWithTheSameKey", func(t *testing.T) { // A23
		for _, mode := range []string{"error_before", "drop_before", "refuse"} {
			t.Run(mode, func(t *testing.T) {
				p := newPaying(t)
				p.fault(mode, 1, 0)
				r := p.pay("K", 4000)
				expect(t, p.submit(r), operations.StatusPending)
				p.due()
				expect(t, p.submit(r), operations.StatusProcessed)
				p.books("K", 4000, "hold", "settle")
				if diff := cmp.Diff(map[string]int{key: 1}, p.executed()); diff != "" {
					t.Errorf("provider (-want +got):\n%s", diff)
				}
			})
		}
	})

	t.Run("Declined_ReleasesAndReplaysTheDecline", func(t *testing.T) { // A25
		p := newPaying(t)
		p.fault("decline", 1, 0)
		r := p.pay("K", 4000)
		first := p.submit(r)
		expectErr(t, first, operations.ErrDeclined)
		again := p.submit(r)
		expectErr(t, again, operations.ErrDeclined)
		var a, b *operations.Refusal
		if !errors.As(first.err, &a) || !errors.As(again.err, &b) || a.Replayed || !b.Replayed {
			t.Fatalf("replayed: first %+v, again %+v", a, b)
		}
		if diff := cmp.Diff(a.Operation, b.Operation); diff != "" {
			t.Errorf("declines differ (-first +again):\n%s", diff)
		}
		p.books("K", 0, "hold", "release")
		expect(t, p.submit(p.pay("K2", 4000)), operations.StatusProcessed)
	})

	t.Run("DeclinedOnASecondSend_IsDoubtedUntilTheListingIsComplete", func(t *testing.T) {
		p := newPaying(t, func(c *operations.Config) { c.ListingLag = 300 * time.Millisecond })
		p.fault("drop_before", 1, 0)
		r := p.pay("K", 4000)
		expect(t, p.submit(r), operations.StatusPending)
		p.fault("decline", 1, 0)
		p.due()
		expect(t, p.submit(r), operations.StatusPending) // sent again, declined, doubted
		p.due()
		p.reconcile() // within the lag: nothing is believed
		if op := p.state("K"); op.State != operations.StateReserved {
			t.Fatalf("state %s, want reserved", op.State)
		}
		time.Sleep(400 * time.Millisecond)
		p.due()
		p.reconcile()
		if op := p.state("K"); op.State != operations.StateFailed || op.FailureCode == nil {
			t.Fatalf("row %+v, want failed", op)
		}
		p.books("K", 0, "hold", "release")
	})

	t.Run("Pending_WaitsWithoutACallAndIsReconciled", func(t *testing.T) { // A48
		p := newPaying(t)
		p.fault("pending", 1, 200)
		r := p.pay("K", 4000)
		expect(t, p.submit(r), operations.StatusPending)
		expect(t, p.submit(r), operations.StatusPending)
		if op := p.state("K"); op.State != operations.StatePending {
			t.Fatalf("state %s, want pending", op.State)
		}
		time.Sleep(300 * time.Millisecond)
		p.due()
		p.reconcile()
		expect(t, p.submit(r), operations.StatusAlreadyProcessed)
		p.books("K", 4000, "hold", "settle")
	})

	t.Run("FailsLate_IsReversedAndTheRemainderIsBack", func(t *testing.T) { // A37
		p := newPaying(t)
		p.fault("fail_later", 1, 200)
		r := p.pay("K", 10000)
		expect(t, p.submit(r), operations.StatusProcessed)
		time.Sleep(300 * time.Millisecond)
		p.due()
		p.reconcile()
		got := p.submit(r)
		expectErr(t, got, operations.ErrDeclined)
		if op := p.state("K"); op.State != operations.StateFailed || *op.FailureCode != operations.FailureLate {
			t.Errorf("row %+v, want failed late", op)
		}
		p.books("K", 0, "hold", "settle", "reversal")
		expect(t, p.submit(p.pay("K2", 10000)), operations.StatusProcessed)
	})

	t.Run("KeyForgotten_IsNeverSentAgain", func(t *testing.T) { // A26
		for _, executed := range []bool{true, false} {
			t.Run(fmt.Sprintf("Executed_%v", executed), func(t *testing.T) {
				p := newPaying(t, func(c *operations.Config) { c.ListingLag = 100 * time.Millisecond })
				mode := map[bool]string{true: "drop_after", false: "drop_before"}[executed]
				p.fault(mode, 1, 0)
				r := p.pay("K", 4000)
				expect(t, p.submit(r), operations.StatusPending)
				p.call(http.MethodPost, "/_keys/expire", "")
				p.exec(`UPDATE refund_operations SET provider_key_expires_at = now()`)
				time.Sleep(200 * time.Millisecond)
				p.due()
				got := p.submit(r)
				want := map[string]int{}
				if executed {
					expect(t, got, operations.StatusProcessed)
					p.books("K", 4000, "hold", "settle")
					want[key] = 1
				} else {
					expectErr(t, got, operations.ErrNeedsAttention)
					p.books("K", 4000, "hold")
				}
				if diff := cmp.Diff(want, p.executed()); diff != "" {
					t.Errorf("provider (-want +got):\n%s", diff)
				}
			})
		}
	})

	t.Run("FailedAndYetPaid_IsHeldAgainOrNamed", func(t *testing.T) { // A54
		p := newPaying(t)
		p.fault("drop_after", 2, 0)
		one, two := p.pay("K", 6000), p.pay("L", 3000)
		expect(t, p.submit(one), operations.StatusPending)
		expect(t, p.submit(two), operations.StatusPending)
		p.exec(`UPDATE refund_operations SET state = 'failed', failure_code = 'declined',
			settled_at = now()`) // as a decline believed wrongly
		p.exec(`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
			amount_cents, currency)
			SELECT tenant_id, operation_id, 2, 'release', 'in_transit', 'merchant', amount_cents, currency
				FROM refund_operations`)
		p.exec(`UPDATE orders SET refunded_cents = 0 WHERE order_id = 'P'`)
		expect(t, p.submit(p.pay("M", 7000)), operations.StatusProcessed) // takes what K would need
		for _, id := range []string{"K", "L"} {
			if _, err := p.Reconcile(t.Context(), tenant, id); err != nil {
				t.Fatal(err)
			}
		}
		if k, l := p.state("K"), p.state("L"); k.State != operations.StateNeedsAttention ||
			*k.FailureCode != operations.FailureOverRefund ||
			l.State != operations.StateNeedsAttention || *l.FailureCode != operations.FailureOverRefund {
			t.Errorf("K %s(%s), L %s(%s)", k.State, *k.FailureCode, l.State, *l.FailureCode)
		}
		p.books("K", 16000, "hold", "release", "hold")
		p.books("L", 16000, "hold", "release", "hold")
		p.exec(`UPDATE orders SET captured_cents = 16000 WHERE order_id = 'P'`)
		for _, id := range []string{"K", "L"} {
			if op, err := p.Reconcile(t.Context(), tenant, id); err != nil || op.State != operations.StateSucceeded {
				t.Errorf("%s: %s, %v", id, op.State, err)
			}
		}
		p.books("K", 16000, "hold", "release", "hold", "settle")
		p.books("L", 16000, "hold", "release", "hold", "settle")
	})

	t.Run("CallerLeaves_TheOutcomeIsRecorded", func(t *testing.T) { // A45
		p := newPaying(t)
		p.fault("hang", 1, 300)
		ctx, leave := context.WithCancel(t.Context())
		call := p.start(ctx, p.pay("K", 4000))
		p.until("it is reserved", func() bool { return p.count(`SELECT count(*) FROM refund_operations`) == 1 })
		time.Sleep(20 * time.Millisecond)
		leave()
		expect(t, wait(t, call), operations.StatusPending) // reserved is all it knows
		p.until("the outcome is recorded", func() bool { return p.state("K").State == operations.StateSucceeded })
		p.books("K", 4000, "hold", "settle")
	})

	t.Run("BreakerOpen_ReservesNothingNew", func(t *testing.T) {
		p := newPaying(t, func(c *operations.Config) { c.BreakerFailures, c.BreakerOpen = 3, 500*time.Millisecond })
		p.fault("error_before", 3, 0)
		for i := range 3 {
			expect(t, p.submit(p.pay(fmt.Sprintf("K-%d", i), 10)), operations.StatusPending)
		}
		refused := p.pay("K-3", 10)
		expectErr(t, p.submit(refused), operations.ErrProviderUnavailable)
		if n := p.count(`SELECT count(*) FROM refund_operations`); n != 3 {
			t.Errorf("%d operations, want 3", n)
		}
		time.Sleep(600 * time.Millisecond)
		expect(t, p.submit(refused), operations.StatusProcessed)
		p.books("K-3", 40, "hold", "settle")
	})

	t.Run("ProviderUnknownToUs_RefusesBeforeReserving", func(t *testing.T) {
		p := newPaying(t, func(c *operations.Config) { c.Providers = nil })
		expectErr(t, p.submit(p.pay("K", 10)), operations.ErrProviderUnavailable)
		p.books("K", 0)
	})

	t.Run("CrashBeforeTheSend_IsInProgressThenResumed", func(t *testing.T) { // A20
		p := newPaying(t)
		r := p.pay("K", 4000)
		p.fault("drop_before", 1, 0)
		expect(t, p.submit(r), operations.StatusPending)
		p.exec(`UPDATE refund_operations SET lease_until = now() + interval '1 hour'`) // as a process that died left it
		got := p.submit(r)
		expectErr(t, got, operations.ErrInProgress)
		p.due()
		expect(t, p.submit(r), operations.StatusProcessed)
		p.books("K", 4000, "hold", "settle")
	})

	t.Run("LateAnswerAfterReconciliation_ChangesNothing", func(t *testing.T) { // A32
		p := newPaying(t, func(c *operations.Config) {
			c.ProviderTimeout, c.Lease = 1500*time.Millisecond,
				4*time.Second
		})
		p.fault("drop_after", 1, 1000)
		r := p.pay("K", 4000)
		first := p.start(t.Context(), r)
		p.until("it is reserved", func() bool { return p.count(`SELECT count(*) FROM refund_operations`) == 1 })
		p.until("the provider executed it", func() bool { return p.executed()[key] == 1 })
		p.due()
		p.reconcile()
		if op := p.state("K"); op.State != operations.StateSucceeded {
			t.Fatalf("state %s, want succeeded", op.State)
		}
		if got := wait(t, first); got.err != nil || got.receipt.Operation.State != operations.StateSucceeded {
			t.Errorf("the late call answers %s", got)
		}
		p.books("K", 4000, "hold", "settle")
	})
}

func TestGate_LetsOnlyALiveLeaseOfALivingKeyThrough(t *testing.T) {
	p := newPaying(t, func(c *operations.Config) { c.Lease, c.ProviderTimeout = time.Minute, 20*time.Second })
	p.fault("drop_before", 1, 0)
	expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
	take := func() operations.Lease {
		t.Helper()
		p.due()
		leases := p.claim(operations.Claim{})
		if len(leases) != 1 {
			t.Fatalf("%d leases", len(leases))
		}
		return leases[0]
	}
	gate := func(what string, l operations.Lease, want bool) {
		t.Helper()
		if open, err := p.MaySend(t.Context(), l); err != nil || open != want {
			t.Errorf("%s: open %v, %v, want %v", what, open, err, want)
		}
	}
	first := take()
	gate("a fresh lease", first, true)
	second := take()
	gate("a lease that somebody took since", first, false)
	gate("the later lease", second, true)
	gate("a process stopped for longer than the lease", second.Aged(time.Minute), false)
	gate("a machine suspended for longer than the lease", second.AgedOnTheWall(time.Minute), false)
	gate("a process stopped for less", second.Aged(5*time.Second), true)
	p.exec(`UPDATE refund_operations SET provider_key_expires_at = now() + interval '75 seconds'`)
	gate("a key that may be forgotten while the call runs", second, false)
	p.exec(`UPDATE refund_operations SET provider_key_expires_at = now() + interval '90 seconds'`)
	gate("a key that lives long enough", second, true)
	p.exec(`UPDATE refund_operations SET state = 'pending'`)
	gate("an operation that is not reserved any more", second, false)
}

func TestSettle(t *testing.T) {
	t.Parallel()
	attention := func(t *testing.T, mode string) *paying {
		p := newPaying(t, func(c *operations.Config) { c.ListingLag = 50 * time.Millisecond })
		p.fault(mode, 1, 0)
		expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
		p.exec(`UPDATE refund_operations SET state = 'needs_attention', failure_code = 'outcome_overdue'`)
		time.Sleep(100 * time.Millisecond)
		return p
	}
	decide := func(p *paying, succeeded, override bool) (operations.Operation, error) {
		return p.Resolve(p.t.Context(), operations.Decision{
			TenantID: tenant, OperationID: "K", Succeeded: succeeded, Evidence: "call with the bank", Override: override, Actor: "ann",
		})
	}

	t.Run("FailedWhileTheProviderShowsSuccess_IsRefused", func(t *testing.T) { // A55
		p := attention(t, "drop_after")
		_, err := decide(p, false, true)
		if !errors.Is(err, operations.ErrProviderDisagrees) {
			t.Errorf("got %v", err)
		}
		p.books("K", 4000, "hold") // a 4xx moves nothing
		if op := p.state("K"); op.State != operations.StateNeedsAttention {
			t.Errorf("state %s, want needs_attention", op.State)
		}
		p.reconcile() // due at once
		p.books("K", 4000, "hold", "settle")
	})

	t.Run("FailedWhileItIsPendingThere_IsRefused", func(t *testing.T) {
		p := newPaying(t, func(c *operations.Config) { c.ListingLag = 50 * time.Millisecond })
		p.fault("pending", 1, 60000)
		expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
		p.exec(`UPDATE refund_operations SET state = 'needs_attention', failure_code = 'outcome_overdue',
			last_send_ended = '-infinity'`)
		if _, err := decide(p, false, true); !errors.Is(err, operations.ErrProviderDisagrees) {
			t.Errorf("got %v", err)
		}
		p.books("K", 4000, "hold")
	})

	t.Run("Failed_ReleasesAndIsTheSameAgain", func(t *testing.T) {
		p := attention(t, "drop_before")
		for range 2 {
			op, err := decide(p, false, false)
			if err != nil || op.State != operations.StateFailed {
				t.Fatalf("%s, %v", op.State, err)
			}
		}
		if _, err := decide(p, true, false); !errors.Is(err, operations.ErrResolutionConflict) {
			t.Errorf("decided otherwise: %v", err)
		}
		p.books("K", 0, "hold", "release")
		if n := p.count(`SELECT count(*) FROM operation_events WHERE kind = 'human' AND actor = 'ann'
			AND detail->>'evidence' = 'call with the bank'`); n != 1 {
			t.Errorf("%d decisions in the history, want 1", n)
		}
	})

	t.Run("Succeeded_Settles", func(t *testing.T) {
		p := attention(t, "drop_before")
		op, err := decide(p, true, false)
		if err != nil || op.State != operations.StateSucceeded {
			t.Fatalf("%s, %v", op.State, err)
		}
		p.books("K", 4000, "hold", "settle")
	})

	t.Run("BooksThatContradictThemselves_NeedAnOverride", func(t *testing.T) {
		p := attention(t, "drop_after")
		p.exec(`UPDATE refund_operations SET amount_cents = 3999`) // the provider paid another amount than ours
		for _, succeeded := range []bool{false, true} {
			if _, err := decide(p, succeeded, false); !errors.Is(err, operations.ErrProviderDisagrees) {
				t.Errorf("got %v", err)
			}
			if op := p.state("K"); op.State != operations.StateNeedsAttention {
				t.Errorf("state %s", op.State)
			}
		}
	})

	// A61: what a person types is evidence, and displaces no proof.
	t.Run("AnotherOperationsRefundIsNamed_IsAClaimAndNoProof", func(t *testing.T) {
		p := attention(t, "drop_before")
		expect(t, p.submit(p.pay("L", 4000)), operations.StatusProcessed)
		name := p.state("L").ProviderRefundID
		d := operations.Decision{TenantID: tenant, OperationID: "K", Succeeded: true, Evidence: "seen", Actor: "ann",
			ProviderRefundID: name}
		for range 2 {
			if op, err := p.Resolve(t.Context(), d); err != nil || op.State != operations.StateSucceeded ||
				op.ProviderRefundID != nil {
				t.Errorf("%s by %v, %v", op.State, op.ProviderRefundID, err)
			}
		}
		if after := p.state("L").ProviderRefundID; *after != *name {
			t.Errorf("L is %s at the provider, and was %s", *after, *name)
		}
		if n := p.count(`SELECT count(*) FROM operation_events WHERE kind = 'human'
			AND detail->>'claimed_provider_refund_id' = $1`, *name); n != 1 {
			t.Errorf("%d claims in the history", n)
		}
	})

	t.Run("TheLookShowsAnotherOperationsRefund_NeedsAnOverrideAndProvesNothing", func(t *testing.T) {
		p := attention(t, "drop_after")
		expect(t, p.submit(p.pay("L", 4000)), operations.StatusProcessed)
		p.exec(`UPDATE refund_operations SET provider_refund_id = (SELECT l.refund->>'refund_id'
			FROM (SELECT $1::jsonb->'refunds'->0) AS l (refund))
			WHERE operation_id = 'L'`, string(p.call(http.MethodGet, "/_ledger",
			""))) // L's by its row, K's by the provider
		if _, err := decide(p, true, false); !errors.Is(err, operations.ErrProviderDisagrees) {
			t.Errorf("got %v", err)
		}
		if op := p.state("K"); op.State != operations.StateNeedsAttention {
			t.Errorf("state %s", op.State)
		}
		if op, err := decide(p, true, true); err != nil || op.State != operations.StateSucceeded ||
			op.ProviderRefundID != nil {
			t.Errorf("%s by %v, %v", op.State, op.ProviderRefundID, err)
		}
	})

	t.Run("ProviderOutOfReach_NeedsAnOverride", func(t *testing.T) {
		p := attention(t, "drop_before")
		p.fault("lookup_down", 2, 0)
		_, err := decide(p, false, false)
		if !errors.Is(err, operations.ErrProviderUnavailable) {
			t.Errorf("got %v", err)
		}
		op, err := decide(p, false, true)
		if err != nil || op.State != operations.StateFailed {
			t.Errorf("override: %s, %v", op.State, err)
		}
	})

	t.Run("WithinTheListingLag_Waits", func(t *testing.T) {
		p := newPaying(t)
		p.fault("drop_before", 1, 0)
		expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
		p.exec(`UPDATE refund_operations SET state = 'needs_attention', failure_code = 'outcome_overdue'`)
		_, err := decide(p, false, false)
		var refusal *operations.Refusal
		if !errors.Is(err, operations.ErrInProgress) || !errors.As(err, &refusal) ||
			refusal.RetryAfter < 50*time.Second {
			t.Errorf("got %v, %+v", err, refusal)
		}
	})

	t.Run("NotWaitingForAHuman_IsAConflict", func(t *testing.T) {
		p := newPaying(t)
		expect(t, p.submit(p.pay("K", 4000)), operations.StatusProcessed)
		if _, err := decide(p, true, true); !errors.Is(err, operations.ErrResolutionConflict) {
			t.Errorf("got %v", err)
		}
	})
}
