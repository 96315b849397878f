package operations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"refundd/operations"
	"refundd/test/testdb"
)

func TestSubmitUnderFaults(t *testing.T) {
	t.Parallel()

	t.Run("OnePoisonedRowAmongAHundred_SpoilsNoOther", func(t *testing.T) {
		t.Parallel()
		const raise = `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.reason = 'poison' THEN RAISE EXCEPTION 'no' %s; END IF; RETURN NULL; END $$;
			CREATE %s TRIGGER refused AFTER INSERT ON refund_operations %s FOR EACH ROW EXECUTE FUNCTION refuse()`
		for _, c := range []struct{ name, reason, ddl string }{
			{"Encoding", "a\x00b", ""}, // the HTTP contract refuses it; Postgres does too (22021)
			{"Trigger", "poison", fmt.Sprintf(raise, "", "", "")},
			{"Privilege", "poison", fmt.Sprintf(raise, "USING ERRCODE = 'insufficient_privilege'", "", "")},
			{"AtCommit", "poison", fmt.Sprintf(raise, "", "CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED")},
		} {
			t.Run(c.name, func(t *testing.T) {
				b := newBundle(t)
				b.order("P", 10000)
				b.order("Q", 10000)
				if c.ddl != "" {
					b.exec(c.ddl)
				}
				g := b.gate()
				var all []<-chan outcome
				for i := range 100 {
					r := b.approve(fmt.Sprintf("K-%d", i), []string{"P", "Q"}[i%2], 10)
					if i == 42 {
						r.Reason = &c.reason
					}
					all = append(all, b.start(t.Context(), r))
				}
				b.until("all wait", func() bool { return b.Waiting() == 100 })
				g.open()
				for i, done := range all {
					got := wait(t, done)
					if i == 42 {
						if got.err == nil {
							t.Error("the poisoned refund succeeded")
						}
						continue
					}
					expect(t, got, operations.StatusProcessed)
				}
				if p, q := b.moved("P"), b.moved("Q"); p != 490 || q != 500 {
					t.Errorf("moved %d and %d, want 490 and 500", p, q)
				}
			})
		}
	})

	t.Run("A80_AnOrderThatStaysLocked_CostsOtherOrdersNothing", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		b.order("Q", 10000)
		g := b.gate()
		var stuck, moving []<-chan outcome
		var asked []operations.Request
		for i := range 5 {
			asked = append(asked, b.approve(fmt.Sprintf("P-%d", i), "P", 10))
			stuck = append(stuck, b.start(t.Context(), asked[i]))
			moving = append(moving, b.start(t.Context(), b.approve(fmt.Sprintf("Q-%d", i), "Q", 10)))
			b.until("both wait", func() bool { return b.Waiting() == 2*(i+1) })
		}
		holder := b.rival()
		holder.lock("P")
		g.open()
		for _, done := range moving { // while the order is locked
			expect(t, wait(t, done), operations.StatusProcessed)
		}
		expectErr(t, wait(t, stuck[0]), operations.ErrDatabaseUnavailable)
		// those who have waited less wait on; those who shared the wait are told the same, and try again
		holder.commit()
		for i, done := range stuck[1:] {
			got := wait(t, done)
			if errors.Is(got.err, operations.ErrDatabaseUnavailable) {
				got = wait(t, b.start(t.Context(), asked[i+1]))
			}
			expect(t, got, operations.StatusProcessed)
		}
		if p, q := b.moved("P"), b.moved("Q"); p != 40 || q != 50 {
			t.Errorf("moved %d and %d, want 40 and 50", p, q)
		}
	})

	t.Run("AnOrderThatStaysLocked_MakesEveryRouteUnavailable", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		b.approve("K", "P", 10)
		holder := b.rival()
		holder.exec(`SELECT FROM orders WHERE order_id = 'P' FOR UPDATE`)
		_, _, approve := b.Authorize(t.Context(), approval("L", "P", 1))
		_, revoke := b.Revoke(t.Context(), operations.Revocation{TenantID: tenant, OperationID: "K"})
		_, _, register := b.RegisterOrder(t.Context(), operations.Registration{
			OrderKey: operations.OrderKey{TenantID: tenant, OrderID: "P"}, CapturedCents: ptr(int64(20000)),
		})
		for name, err := range map[string]error{"approve": approve, "revoke": revoke, "register": register} {
			if !errors.Is(err, operations.ErrDatabaseUnavailable) {
				t.Errorf("%s: %v, want unavailable", name, err)
			}
		}
	})

	t.Run("Deadlock_IsTriedAgain", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 100)
		k := b.approve("K", "P", 10)
		r := b.rival()
		r.exec(`SET LOCAL deadlock_timeout = '30s'`) // so that tx 1 is the one that finds the deadlock, and its victim
		r.claim(k)
		refund := b.start(t.Context(), k)
		b.until("tx 1 holds the order and waits for the key, not in company", func() bool {
			return b.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '300 milliseconds'`) > 0
		})
		r.lock("P") // against the lock order; granted once tx 1 is the victim
		r.debit(k)
		r.commit()
		expect(t, wait(t, refund), operations.StatusAlreadyProcessed)
		b.until("the deadlock is counted", func() bool {
			return b.count(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`) > 0
		})
		if got := b.moved("P"); got != 10 {
			t.Errorf("moved %d, want 10", got)
		}
	})

	t.Run("LostCommitAcknowledgement", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			name  string
			after bool
		}{{"BeforeTheServerAppliedIt", false}, {"AfterTheServerAppliedIt", true}} {
			t.Run(c.name, func(t *testing.T) {
				b := newBundle(t)
				b.order("P", 10000)
				cutter := newCutter(t, b.db.ServiceURL, c.after)
				cut := &bundle{Engine: b.engine(testdb.Pool(t, cutter.URL)), t: t}
				for i := range 5 {
					r := b.approve(fmt.Sprintf("K-%d", i), "P", 100)
					cutter.arm()
					expect(t, cut.submit(r), operations.StatusProcessed)
					expect(t, cut.submit(r), operations.StatusAlreadyProcessed)
				}
				if cuts := cutter.cuts.Load(); cuts != 5 {
					t.Errorf("%d commits were cut, want 5", cuts)
				}
				if got := b.moved("P"); got != 500 {
					t.Errorf("moved %d, want 500", got)
				}
			})
		}
	})

	t.Run("DebitThatIsNotWritten_TakesTheClaimBack", func(t *testing.T) { onBothRoads(t, testDebitThatIsNotWritten) })

	t.Run("CallerThatLeavesTheQueue_NeverExecutes", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		g := b.gate()
		ctx, leave := context.WithCancel(t.Context())
		refund := b.start(ctx, b.approve("K", "P", 10))
		b.until("it waits", func() bool { return b.Waiting() == 1 })
		leave()
		expectErr(t, wait(t, refund), operations.ErrDeadlineExceeded)
		g.open()
		expect(t, b.submit(b.approve("K2", "P", 10)), operations.StatusProcessed) // the batch after it
		if got := b.moved("P"); got != 10 {
			t.Errorf("moved %d, want 10", got)
		}
	})

	t.Run("CallerThatLeavesWhileTheOrderIsAwaited_NeverExecutes", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		holder := b.rival()
		holder.lock("P")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		refund := b.start(ctx, b.approve("K", "P", 10))
		b.untilBlocked(1)
		leave()
		expectErr(t, wait(t, refund), operations.ErrDeadlineExceeded)
		holder.commit()
		expect(t, b.submit(b.approve("K2", "P", 10)), operations.StatusProcessed)
		if got := b.moved("P"); got != 10 {
			t.Errorf("moved %d, want 10", got)
		}
	})

	t.Run("FullQueue_RefusesAtOnce", func(t *testing.T) {
		b := newBundle(t, func(c *operations.Config) { c.MaxQueue = 3 })
		b.order("P", 10000)
		g := b.gate()
		var all []<-chan outcome
		for i := range 3 {
			all = append(all, b.start(t.Context(), b.approve(fmt.Sprintf("K-%d", i), "P", 10)))
		}
		b.until("the queue is full", func() bool { return b.Waiting() == 3 })
		expectErr(t, b.submit(b.approve("K-3", "P", 10)), operations.ErrOverloaded)
		g.open()
		for _, done := range all {
			expect(t, wait(t, done), operations.StatusProcessed)
		}
		expect(t, b.submit(operations.Request{TenantID: tenant, OperationID: "K-3", OrderID: "P", AmountCents: 10}),
			operations.StatusProcessed)
	})

	t.Run("Shutdown_AnswersWhatIsQueued", func(t *testing.T) {
		b := newBundle(t)
		b.order("P", 10000)
		e, err := operations.New(operations.Config{Pool: b.db.Pool})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		late := &bundle{Engine: e, t: t}
		holder := b.rival()
		holder.lock("P")
		var all []<-chan outcome
		for i := range 20 {
			all = append(all, late.start(t.Context(), b.approve(fmt.Sprintf("K-%d", i), "P", 10)))
			if i == 0 {
				b.untilBlocked(1)
			}
		}
		b.until("the others wait", func() bool { return e.Waiting() == 19 })
		stop()
		holder.commit()
		for _, done := range all {
			expect(t, wait(t, done), operations.StatusProcessed)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expectErr(t, late.submit(b.approve("K-late", "P", 10)), operations.ErrOverloaded)
		b.moved("P")
	})
}

func testDebitThatIsNotWritten(t *testing.T, newBundle func(*testing.T) *bundle) {
	for table, act := range map[string]string{"ledger_transfers": "INSERT", "orders": "UPDATE"} {
		t.Run(table, func(t *testing.T) {
			b := newBundle(t)
			b.order("P", 10000)
			b.exec(`CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
			b.exec(`CREATE TRIGGER swallowed BEFORE ` + act + ` ON ` + table +
				` FOR EACH ROW EXECUTE FUNCTION swallow()`)
			r := b.approve("K", "P", 10)
			if receipt, err := b.Submit(t.Context(), r); err == nil {
				t.Errorf("answered %+v", receipt)
			}
			if n := b.count(`SELECT (SELECT count(*) FROM refund_operations) + (SELECT count(*)
				FROM ledger_transfers)`); n != 0 {
				t.Errorf("%d rows are left of it", n)
			}
			b.exec(`DROP TRIGGER swallowed ON ` + table)
			expect(t, b.submit(r), operations.StatusProcessed)
			if got := b.moved("P"); got != 10 {
				t.Errorf("moved %d, want 10", got)
			}
		})
	}
}
