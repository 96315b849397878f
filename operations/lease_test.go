package operations_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/operations"
)

// reserved makes operations whose answers were lost, each due for an hour less than the one before, with no lease.
func (p *paying) reserved(ids ...string) {
	p.t.Helper()
	for i, id := range ids {
		p.fault("drop_after", 1, 0)
		expect(p.t, p.submit(p.pay(id, 100)), operations.StatusPending)
		p.exec(`UPDATE refund_operations SET lease_until = '-infinity', next_check_at = now() - $2 * interval '1 hour'
			WHERE operation_id = $1`, id, len(ids)-i)
	}
}

// row is an operation's row, but for the members that the next claim of it changes anyway where that is wanted.
func (p *paying) row(id string) (text string) {
	p.t.Helper()
	if err := p.db.Owner.QueryRow(p.t.Context(), `SELECT to_jsonb(o)::text FROM refund_operations o
		WHERE operation_id = $1`, id).Scan(&text); err != nil {
		p.t.Fatal(err)
	}
	return text
}

func names(leases []operations.Lease) []string {
	var all []string
	for _, l := range leases {
		all = append(all, l.Operation.OperationID)
	}
	return all
}

func TestClaimDue(t *testing.T) {
	t.Parallel()
	claimed := func(p *paying, c operations.Claim) []string {
		p.t.Helper()
		c.Before = time.Now()
		if c.Provider == "" {
			c.Provider = "simulator"
		}
		leases, err := p.ClaimDue(p.t.Context(), c)
		if err != nil {
			p.t.Fatal(err)
		}
		return names(leases)
	}

	t.Run("FromEitherEnd_OfAKind_NoMoreThanAsked", func(t *testing.T) {
		p := newPaying(t)
		p.reserved("A", "B", "C", "D", "E", "S", "H", "later", "leased")
		p.exec(`UPDATE refund_operations SET state = 'succeeded', settled_at = now() WHERE operation_id = 'S'`)
		p.exec(`UPDATE refund_operations SET state = 'needs_attention' WHERE operation_id = 'H'`)
		p.exec(`UPDATE refund_operations SET next_check_at = now() + interval '1 minute' WHERE operation_id = 'later'`)
		p.exec(`UPDATE refund_operations SET lease_until = now() + interval '1 minute' WHERE operation_id = 'leased'`)
		for _, c := range []struct {
			claim operations.Claim
			want  []string
		}{
			{operations.Claim{Limit: 9, Provider: "stripe"}, nil},
			{operations.Claim{Limit: 2}, []string{"A", "B"}},
			{operations.Claim{Limit: 1, Newest: true}, []string{"E"}},
			{operations.Claim{Limit: 9}, []string{"C", "D"}},
			{operations.Claim{Limit: 9}, nil},
			{operations.Claim{Limit: 9, Settled: true}, []string{"H", "S"}},
			{operations.Claim{Limit: 9, Settled: true}, nil},
		} {
			got := claimed(p, c.claim)
			slices.Sort(got) // RETURNING has no order
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", c.claim, diff)
			}
		}
	})

	t.Run("NeverWaitsForARow_NorTakesItTwice", func(t *testing.T) {
		p := newPaying(t)
		p.reserved("A", "B", "C")
		r := p.rival()
		r.exec(`SELECT FROM refund_operations WHERE operation_id = 'B' FOR UPDATE`)
		began := time.Now()
		got := claimed(p, operations.Claim{Limit: 9})
		if slices.Sort(got); !slices.Equal(got, []string{"A", "C"}) || time.Since(began) > 2*time.Second {
			t.Errorf("claimed %v after %v", got, time.Since(began))
		}
		r.commit()
		if got := claimed(p, operations.Claim{Limit: 9}); !slices.Equal(got, []string{"B"}) {
			t.Errorf("then claimed %v", got)
		}
	})

	t.Run("Strangers_AreNamedWhereTheyHaveSomethingDue", func(t *testing.T) {
		p := newPaying(t)
		p.reserved("A", "B", "C", "D")
		for id, provider := range map[string]string{"B": "paypal", "C": "adyen", "D": "zed"} {
			p.exec(`UPDATE refund_operations SET provider = $2 WHERE operation_id = $1`, id, provider)
		}
		p.exec(`UPDATE refund_operations SET state = 'succeeded', settled_at = now() WHERE operation_id = 'B'`)
		p.exec(`UPDATE refund_operations SET next_check_at = now() + interval '1 minute' WHERE operation_id = 'C'`)
		p.exec(`UPDATE refund_operations SET lease_until = now() + interval '1 minute' WHERE operation_id = 'D'`)
		names, err := p.Strangers(t.Context(), time.Now())
		if diff := cmp.Diff([]string{"paypal"}, names); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// The listing's lag is counted from last_send_ended where a process ends before it has recorded what it sent: what it
// wrote later would be missed by a look that is taken for complete, and a human's "failed" with it.
func TestResolve_LaterThanTheRowSaysItSends_SendsNothing(t *testing.T) {
	p := newPaying(t)
	p.fault("drop_before", 2, 0)
	for _, id := range []string{"never-sent", "sent"} {
		expect(t, p.submit(p.pay(id, 100)), operations.StatusPending)
	}
	p.exec(`UPDATE refund_operations SET not_sent = attempts WHERE operation_id = 'never-sent'`)
	p.due()
	leases := p.claim(operations.Claim{})
	time.Sleep(600 * time.Millisecond) // the provider's timeout is 500 ms, and the lease 2 s
	if late := p.count(`SELECT count(*) FROM refund_operations WHERE last_send_ended < clock_timestamp()
		AND lease_until > clock_timestamp()`); late != 2 {
		t.Fatalf("%d operations are leased and send no more, want 2", late)
	}
	for _, l := range leases {
		r, err := p.Pursue(t.Context(), l)
		sent := l.Operation.OperationID == "sent" // it is looked up first, which moves last_send_ended
		if err != nil || r.Unasked == sent || r.Moved != sent {
			t.Errorf("%s: %+v, %v", l.Operation.OperationID, r, err)
		}
	}
	if diff := cmp.Diff(map[string]int{tenant + ":sent": 1}, p.executed()); diff != "" {
		t.Errorf("executed (-want +got):\n%s", diff)
	}
	p.due()
	p.reconcile()
	if got := p.state("never-sent").State; got != operations.StateSucceeded {
		t.Errorf("in the end it is %s", got)
	}
}

// What a holder finds after its lease ran out does not end the lease of whoever works on the operation now.
func TestResolve_AfterSomebodyTookTheLease_LeavesItToHim(t *testing.T) {
	p := newPaying(t)
	p.reserved("K")
	first := p.claim(operations.Claim{})[0]
	p.exec(`UPDATE refund_operations SET lease_until = '-infinity'`)
	second := p.claim(operations.Claim{})[0]
	const lease = `SELECT (extract(epoch FROM lease_until) * 1000000)::bigint FROM refund_operations`
	held := p.count(lease)
	if r, err := p.Pursue(t.Context(), first); err != nil || r.Operation.State != operations.StateSucceeded {
		t.Errorf("the proof is not recorded: %+v, %v", r, err)
	}
	if now := p.count(lease); now != held {
		t.Errorf("the lease ended at %d and ends at %d", held, now)
	}
	if _, err := p.Pursue(t.Context(), second); err != nil {
		t.Error(err)
	}
	if now := p.count(lease); now >= held {
		t.Error("the later holder did not give its lease back")
	}
}

// Of a provider that refuses our credentials, a probe learns that nothing may be asked: the row is as it was.
func TestResolve_AProbeThatIsRefused_ChangesNothing(t *testing.T) {
	t.Parallel()
	refuse := func(p *paying) { p.call(http.MethodPost, "/_faults", `{"mode":"lookup_down","status":401}`) }

	t.Run("Alone", func(t *testing.T) {
		p := newPaying(t, func(c *operations.Config) { c.ReservedAge = time.Hour })
		p.fault("drop_before", 1, 0)
		p.reserved("K")
		p.exec(`UPDATE refund_operations SET created_at = now() - interval '2 hours',
			not_sent = attempts`) // looked up for its age
		refuse(p)
		before := p.row("K")
		l := p.claim(operations.Claim{Probe: true})[0]
		if p.row("K") == before {
			t.Error("the lease left no trace")
		}
		if r, err := p.Pursue(t.Context(), l); err != nil || !r.Untaken || r.Answered {
			t.Errorf("%+v, %v", r, err)
		}
		if diff := cmp.Diff(before, p.row("K")); diff != "" {
			t.Errorf("the row changed (-before +after):\n%s", diff)
		}
		if n := p.count(`SELECT count(*) FROM operation_events WHERE kind = 'lookup'`); n != 0 {
			t.Errorf("%d look-ups in its history", n)
		}
	})

	t.Run("WhenSomebodyElseHasTheLease", func(t *testing.T) {
		p := newPaying(t)
		p.reserved("K")
		refuse(p)
		l := p.claim(operations.Claim{Probe: true})[0]
		// Whoever took it since, after its taker gave it back, has the same number.
		p.exec(`UPDATE refund_operations SET lease_until = lease_until + interval '1 microsecond'`)
		before := p.row("K")
		if _, err := p.Pursue(t.Context(), l); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, p.row("K")); diff != "" {
			t.Errorf("the other's lease changed (-before +after):\n%s", diff)
		}
	})

	t.Run("OfAProviderThatAnswered_IsAnAttempt", func(t *testing.T) {
		p := newPaying(t)
		p.reserved("K")
		refuse(p)
		if r, err := p.Pursue(t.Context(), p.claim(operations.Claim{})[0]); err != nil || r.Untaken {
			t.Errorf("%+v, %v", r, err)
		}
		if n := p.count(`SELECT count(*) FROM refund_operations WHERE attempts = 2 AND next_check_at > now()
			AND lease_until <= now()`); n != 1 {
			t.Error("it does not back off")
		}
	})
}

// A refund that was never sent goes to a human once it is old, rather than out.
func TestResolve_NeverSentAndOld_GoesToAHuman(t *testing.T) {
	p := newPaying(t)
	p.fault("refuse", 2, 0)
	for _, id := range []string{"old", "young"} {
		expect(t, p.submit(p.pay(id, 100)), operations.StatusPending)
	}
	p.exec(`UPDATE refund_operations SET not_sent = attempts`)
	p.exec(`UPDATE refund_operations SET created_at = now() - interval '73 hours' WHERE operation_id = 'old'`)
	p.due()
	p.reconcile()
	if op := p.state("old"); op.State != operations.StateNeedsAttention {
		t.Errorf("the old one is %s", op.State)
	}
	if op := p.state("young"); op.State != operations.StateSucceeded {
		t.Errorf("the young one is %s", op.State)
	}
	if diff := cmp.Diff(map[string]int{tenant + ":young": 1}, p.executed()); diff != "" {
		t.Errorf("provider (-want +got):\n%s", diff)
	}
}

// What was believed after a doubt, and a success after more than one request, is looked at once more.
func TestResolve_AfterASecondRequest_IsLookedAtOnceMore(t *testing.T) {
	t.Parallel()
	const lag = 300 * time.Millisecond
	next := func(p *paying) time.Duration {
		return time.Duration(p.count(`SELECT coalesce((extract(epoch
			FROM nullif(next_check_at, 'infinity') - now()) * 1000)::bigint, -1)
			FROM refund_operations`)) * time.Millisecond
	}

	t.Run("Succeeded", func(t *testing.T) {
		p := newPaying(t, func(c *operations.Config) { c.ListingLag = lag })
		p.fault("drop_before", 1, 0)
		expect(t, p.submit(p.pay("K", 100)), operations.StatusPending)
		p.due()
		p.reconcile()
		if op, in := p.state("K"), next(p); op.State != operations.StateSucceeded || in < 0 || in > lag+time.Second {
			t.Errorf("it is %s, and looked at again in %v", op.State, in)
		}
		p.due()
		p.reconcile()
		if in := next(p); in < 23*time.Hour {
			t.Errorf("after that in %v, want a day", in)
		}
	})

	t.Run("Declined", func(t *testing.T) {
		p := newPaying(t, func(c *operations.Config) { c.ListingLag = lag })
		p.fault("drop_before", 1, 0)
		expect(t, p.submit(p.pay("K", 100)), operations.StatusPending)
		p.fault("decline", 1, 0)
		p.due()
		p.reconcile() // sent again, declined, doubted
		time.Sleep(lag + 100*time.Millisecond)
		p.due()
		p.reconcile() // and believed
		if op, in := p.state("K"), next(p); op.State != operations.StateFailed || in < 0 {
			t.Errorf("it is %s, and looked at again in %v", op.State, in)
		}
		p.fault("lookup_down", 1, 0)
		p.due()
		p.reconcile() // in vain
		if in := next(p); in < 0 {
			t.Error("a look without an answer was the last one")
		}
		p.due()
		p.reconcile()
		if in := next(p); in >= 0 {
			t.Errorf("it is looked at for ever, in %v", in)
		}
	})

	t.Run("DeclinedAtOnce_IsNot", func(t *testing.T) {
		p := newPaying(t)
		p.fault("decline", 1, 0)
		expectErr(t, p.submit(p.pay("K", 100)), operations.ErrDeclined)
		if in := next(p); in >= 0 {
			t.Errorf("it is looked at in %v", in)
		}
	})
}

// While the breaker is open, a request that would be sent again waits for it, and what was found out is recorded.
func TestResolve_WhileTheBreakerIsOpen_LooksAndDoesNotSend(t *testing.T) {
	p := newPaying(t, func(c *operations.Config) { c.BreakerFailures, c.BreakerOpen = 4, time.Hour })
	p.fault("refuse", 1, 0)
	p.fault("error_before", 3, 0)
	for i := range 4 {
		expect(t, p.submit(p.pay(fmt.Sprint("K", i), 100)), operations.StatusPending)
	}
	expectErr(t, p.submit(p.pay("K4", 100)), operations.ErrProviderUnavailable)
	p.exec(`UPDATE refund_operations SET not_sent = 1 WHERE operation_id = 'K0'`)
	p.due()
	for _, r := range p.reconcile() {
		if !r.Answered || r.Resent || r.Operation.State != operations.StateReserved {
			t.Errorf("%s: %+v", r.Operation.OperationID, r)
		}
	}
	if n := p.count(`SELECT count(*) FROM refund_operations WHERE attempts = 2 AND lease_until <= now()
		AND next_check_at BETWEEN now() + interval '59 minutes' AND now() + interval '61 minutes'`); n != 4 {
		t.Errorf("%d of 4 wait for the breaker", n)
	}
	if n := p.count(`SELECT count(*) FROM refund_operations WHERE not_sent = attempts
		AND operation_id = 'K0'`); n != 1 {
		t.Error("what was never sent counts as sent")
	}
	for what, condition := range map[string]string{"asked": `error_kind = 'not_found'`,
		"entered in the history": `true`} {
		if n := p.count(`SELECT count(*) FROM operation_events WHERE kind = 'lookup' AND ` + condition); n != 4 {
			t.Errorf("%d of 4 were %s", n, what)
		}
	}
}

func TestNew_RefusesALeaseThatMakesNoSense(t *testing.T) {
	t.Parallel()
	provider := map[string]operations.ProviderSetup{"simulator": {KeyRetention: time.Hour}}
	// which connects when it is asked for something
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, c := range []struct {
		timeout, lease time.Duration
		good           bool
	}{
		{0, 0, true}, {time.Second, 2 * time.Second, true}, {time.Second, 2*time.Second - 1, false},
		{time.Minute, 70 * time.Second, true}, {time.Minute, 70*time.Second - 1, false},
		{time.Second, 59*time.Minute - time.Second, true}, {time.Second, 59*time.Minute - time.Second + 1,
			false}, {40 * time.Minute, 0, false},
	} {
		_, err := operations.New(operations.Config{Pool: pool, Providers: provider, ProviderTimeout: c.timeout,
			Lease: c.lease})
		if (err == nil) != c.good {
			t.Errorf("a lease of %v with a timeout of %v: %v", c.lease, c.timeout, err)
		}
	}
}
