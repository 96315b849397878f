package operations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
)

func TestSubmit(t *testing.T) { onBothRoads(t, testSubmit) }

func testSubmit(t *testing.T, newBundle func(*testing.T) *bundle) {
	t.Run("Alone_DebitsOnceAndReplaysTheReceipt", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		r := b.approve("K", "P", 4000)
		reason := "late parcel"
		r.Reason, r.Metadata = &reason, map[string]string{"ticket": "7", "ü<&>": "\"\\\n"}
		first := b.submit(r)
		expect(t, first, operations.StatusProcessed)
		other := "another reason"
		r.Reason, r.Metadata = &other, nil
		for range 4 {
			again := b.submit(r)
			expect(t, again, operations.StatusAlreadyProcessed)
			if diff := cmp.Diff(first.receipt.Operation, again.receipt.Operation); diff != "" {
				t.Errorf("receipt of the replay (-first +replay):\n%s", diff)
			}
		}
		if got := b.moved("P"); got != 4000 {
			t.Errorf("moved %d, want 4000", got)
		}
	})

	t.Run("SameKeyConcurrently_MovesMoneyOnce", func(t *testing.T) {
		b := newBundle(t)
		second := b.engine(b.db.Pool)
		b.order("P", 1000000)
		for round := range 20 {
			r := b.approve(fmt.Sprintf("K-%d", round), "P", 100)
			var all []<-chan outcome
			for i := range 50 {
				engine := b.Engine
				if i%2 == 1 {
					engine = second
				}
				all = append(all, (&bundle{Engine: engine, t: t}).start(t.Context(), r))
			}
			tally := map[string]int{}
			for _, done := range all {
				tally[wait(t, done).String()]++
			}
			if diff := cmp.Diff(map[string]int{"processed": 1, "already_processed": 49}, tally); diff != "" {
				t.Fatalf("round %d (-want +got):\n%s", round, diff)
			}
		}
		if got := b.moved("P"); got != 20*100 {
			t.Errorf("moved %d, want 2000", got)
		}
	})

	t.Run("WinnerCommitsWhileTheOrderIsAwaited_IsReplayed", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 4000) // which leaves nothing to whoever reads the money before the key
		r := b.approve("K", "P", 4000)
		winner := b.rival()
		winner.lock("P")
		loser := b.start(t.Context(), r)
		b.untilBlocked(1) // the loser read no key, and now waits for the lock of step 1
		winner.claim(r)
		winner.debit(r)
		winner.commit()
		expect(t, wait(t, loser), operations.StatusAlreadyProcessed)
		if got := b.moved("P"); got != 4000 {
			t.Errorf("moved %d, want 4000", got)
		}
	})

	t.Run("AuthorizationCommitsWhileTheOrderIsAwaited_IsSeen", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		holder := b.rival()
		holder.lock("P")
		r := operations.Request{TenantID: tenant, OperationID: "K", OrderID: "P", AmountCents: 1}
		refund := b.start(t.Context(), r)
		b.untilBlocked(1)
		b.approve("K", "P", 1)
		holder.commit()
		expect(t, wait(t, refund), operations.StatusProcessed)
	})

	t.Run("RowThatAppearsBeforeARefusal_IsReplayed", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		// which nobody approved
		r := operations.Request{TenantID: tenant, OperationID: "K", OrderID: "P", AmountCents: 4000}
		winner := b.rival()
		winner.exec(`LOCK TABLE refund_authorizations`)
		loser := b.start(t.Context(), r)
		b.untilBlocked(1) // the loser read no key, and now waits to read its approval
		winner.claim(r)
		winner.commit()
		expect(t, wait(t, loser), operations.StatusAlreadyProcessed)
	})

	t.Run("WinnerBlocksTheInsert", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			name  string
			ends  func(*rival)
			rival int64
			want  func(*testing.T, outcome)
			moved int64
		}{
			{"CommitsTheSame_IsReplayed", (*rival).commit, 4000, func(t *testing.T, o outcome) {
				expect(t, o, operations.StatusAlreadyProcessed)
			}, 4000},
			{"CommitsAnother_IsRefusedWithoutItsReceipt", (*rival).commit, 3000, func(t *testing.T, o outcome) {
				expectErr(t, o, operations.ErrOperationConflict)
				var refusal *operations.Refusal
				if errors.As(o.err, &refusal) && refusal.Operation != nil {
					t.Errorf("the conflict shows the winner's %+v", refusal.Operation)
				}
			}, 3000},
			{"RollsBack_LeavesTheKeyFree", func(r *rival) { _ = r.Rollback(context.Background()) }, 3000,
				func(t *testing.T, o outcome) { expect(t, o, operations.StatusProcessed) }, 4000},
		} {
			t.Run(c.name, func(t *testing.T) {
				b := newBundle(t)
				b.order("P", 10000)
				r := b.approve("K", "P", 4000)
				w := r
				w.AmountCents = c.rival
				winner := b.rival()
				winner.claim(w) // without the order's lock: the INSERT itself is what waits
				loser := b.start(t.Context(), r)
				b.untilBlocked(1)
				c.ends(winner)
				c.want(t, wait(t, loser))
				if c.moved == c.rival { // the winner's debit, which it could not make while the loser held the order
					b.exec(`UPDATE orders SET refunded_cents = refunded_cents + $1 WHERE order_id = 'P'`, c.rival)
				}
				if got := b.moved("P"); got != c.moved {
					t.Errorf("moved %d, want %d", got, c.moved)
				}
			})
		}
	})

	t.Run("SameKeyOfTwoOrdersInOneBatch_OneWins", func(t *testing.T) {
		b := newBundle(t)
		b.free()
		b.order("P", 10000)
		b.order("Q", 10000)
		g := b.gate()
		k := operations.Request{TenantID: tenant, OperationID: "K", OrderID: "P", AmountCents: 10}
		q := k
		q.OrderID = "Q"
		onP := b.start(t.Context(), k)
		b.until("the first waits", func() bool { return b.Waiting() == 1 })
		onQ := b.start(t.Context(), q)
		b.until("both wait", func() bool { return b.Waiting() == 2 })
		g.open()
		expect(t, wait(t, onP), operations.StatusProcessed)
		expectErr(t, wait(t, onQ), operations.ErrOperationConflict)
		if p, q := b.moved("P"), b.moved("Q"); p != 10 || q != 0 {
			t.Errorf("moved %d and %d, want 10 and 0", p, q)
		}
	})

	t.Run("ManyOfOneOrderInOneBatch_AreJudgedInTheirOrder", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		g := b.gate()
		amounts := []int64{4000, 5000, 2000, 1000, 1, 1} // the third does not fit, the fourth fills the rest
		want := []error{nil, nil, operations.ErrAmountExceedsRefundable, nil, operations.ErrAmountExceedsRefundable,
			operations.ErrAmountExceedsRefundable}
		refundable := map[int]int64{2: 1000, 4: 0, 5: 0} // as the calls before them left it
		var all []<-chan outcome
		for i, amount := range amounts {
			all = append(all, b.start(t.Context(), b.approve(fmt.Sprintf("K-%d", i), "P", amount)))
			b.until("it waits", func() bool { return b.Waiting() == i+1 })
		}
		g.open()
		for i, done := range all {
			got := wait(t, done)
			if !errors.Is(got.err, want[i]) {
				t.Errorf("refund %d of %d: got %s, want %v", i, amounts[i], got, want[i])
			}
			if left, refused := refundable[i]; refused {
				var r *operations.Refusal
				if !errors.As(got.err, &r) || r.Refundable == nil || *r.Refundable != left {
					t.Errorf("refund %d of %d is refused as %+v, with %d left", i, amounts[i], r, left)
				}
			}
		}
		if got := b.moved("P"); got != 10000 {
			t.Errorf("moved %d, want 10000", got)
		}
		if n := b.count(`SELECT count(DISTINCT created_at) FROM refund_operations WHERE order_id = 'P'`); n != 1 {
			t.Errorf("%d transactions, want one", n)
		}
	})

	t.Run("RefusedForMoneyThatALostCallClaimed_IsJudgedAgain", func(t *testing.T) {
		b := newBundle(t)
		b.free()
		b.order("P", 10000)
		b.order("Q", 10000)
		g := b.gate()
		loser := operations.Request{TenantID: tenant, OperationID: "K1", OrderID: "P", AmountCents: 6000}
		elsewhere := loser
		elsewhere.OrderID = "Q"
		winner := b.rival()
		winner.claim(elsewhere)
		winner.debit(elsewhere)
		first := b.start(t.Context(), loser)
		b.until("the first waits", func() bool { return b.Waiting() == 1 })
		second := b.start(t.Context(),
			operations.Request{TenantID: tenant, OperationID: "K2", OrderID: "P", AmountCents: 6000})
		b.until("both wait", func() bool { return b.Waiting() == 2 })
		g.open()
		b.untilBlocked(1)
		winner.commit()
		expectErr(t, wait(t, first), operations.ErrOperationConflict)
		expect(t, wait(t, second), operations.StatusProcessed)
		if p, q := b.moved("P"), b.moved("Q"); p != 6000 || q != 6000 {
			t.Errorf("moved %d and %d, want 6000 each", p, q)
		}
	})

	t.Run("TwoRefundsRaceForTheLastMoney_OneWins", func(t *testing.T) {
		b := newBundle(t)
		second := &bundle{Engine: b.engine(b.db.Pool), t: t}
		for round := range 50 {
			p := fmt.Sprintf("P-%d", round)
			b.order(p, 10000)
			one := b.start(t.Context(), b.approve(p+".1", p, 6000))
			two := second.start(t.Context(), b.approve(p+".2", p, 6000))
			tally := map[string]int{wait(t, one).String(): 1}
			tally[wait(t, two).String()]++
			want := map[string]int{"processed": 1, operations.ErrAmountExceedsRefundable.Error(): 1}
			if diff := cmp.Diff(want, tally); diff != "" {
				t.Fatalf("round %d (-want +got):\n%s", round, diff)
			}
			if got := b.moved(p); got != 6000 {
				t.Fatalf("round %d: moved %d, want 6000", round, got)
			}
		}
	})
}
