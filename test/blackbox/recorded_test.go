package blackbox

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
)

// The outcome in hand is offered to the database until it takes it: it is away, or the order's row is locked.
func TestA64_TheDatabaseIsAwayAsTheAnswerArrives_ItIsRecordedThen(t *testing.T) {
	t.Parallel()
	for name, keeps := range map[string]func(*paying, string) (func(), time.Duration){
		"the database is away for 2 s": func(p *paying, _ string) (func(),
			time.Duration) {
			return p.Service.Outage(p.t), 2 * time.Second
		},
		"the order is locked for 5 s": func(p *paying, order string) (func(), time.Duration) {
			return p.Service.Hold(p.t, `SELECT FROM orders WHERE order_id = '`+order+`' FOR UPDATE`), 5 * time.Second
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaying(t)
			for i, c := range []struct{ fault, state, code string }{{"hang", "succeeded", ""},
				{"decline", "failed", "declined"}} {
				operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
				p.provider.Fault("hang", harness.Times(1), harness.After(time.Second))
				if c.fault != "hang" {
					p.provider.Fault(c.fault, harness.Times(1))
				}
				c1 := p.Client
				c1.Faulty = true
				answered := make(chan harness.Answer, 1)
				go func() {
					a, _ := c1.Try(harness.Request{Method: http.MethodPost, Path: "/v1/refunds",
						Body: harness.JSON(harness.Fields{"operation_id": operation, "order_id": order,
							"amount_cents": 4000})})
					answered <- a
				}()
				p.provider.AwaitRequests(p.ProviderKey(operation), 1)
				end, lasts := keeps(p, order)
				time.Sleep(time.Second + lasts)
				end()
				<-answered
				eventually(t, "the outcome is recorded", func() bool { return p.read(operation).State == c.state })
				p.stands(operation, c.state, c.code)
				if n := p.provider.Requests()[p.ProviderKey(operation)]; n != 1 {
					t.Errorf("%s was sent %d times", operation, n)
				}
				if a := p.attempts(operation); a["refund"] != 1 || a["lookup"] != 0 {
					t.Errorf("%s: the provider was asked %v", operation, a)
				}
			}
			p.Service.Audit(t)
		})
	}
}

// The same in reconciliation, and in a human's decision.
func TestA64_TheOrderIsLockedAsALookUpAnswers_ItIsRecordedThen(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	ids, _ := p.lost("K", 2)
	overdue(p, "human", "P0")
	p.provider.Heal()
	p.Service.Due(t)
	attempts := func() (n int) {
		p.Scan(&n, `SELECT sum(attempts) FROM refund_operations WHERE operation_id = ANY ($1)`, ids)
		return n
	}
	before := attempts()
	release := p.Service.Hold(t, `SELECT FROM orders FOR UPDATE`)
	var working sync.WaitGroup
	working.Go(func() {
		if r := p.run(p.Service.Flags...); r.ExitCode != 0 {
			t.Errorf("the run exits %d: %s %s", r.ExitCode, r.Stdout, r.Stderr)
		}
	})
	time.Sleep(5 * time.Second)
	release()
	working.Wait()
	if n := p.inState(append(ids, "human"), "succeeded"); n != 3 {
		t.Errorf("%d of 3 are settled", n)
	}
	if n := attempts() - before; n != len(ids) {
		t.Errorf("%d attempts for %d operations", n, len(ids))
	}
	p.Service.Audit(t)
}

// A finding that the database refuses, as an owner's trigger does, is not asked for again and again, and reaches a
// human.
func TestA64_AFindingThatCannotBeRecorded_BacksOffAndReachesAHuman(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	ids, refs := p.lost("K", 3)
	others, _ := p.lost("L", 3)
	p.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.operation_id LIKE 'K-%' THEN RAISE EXCEPTION 'no ` + harness.Canary + `'; END IF; RETURN NEW; END $$`)
	p.Exec(`CREATE TRIGGER refused BEFORE INSERT ON ledger_transfers FOR EACH ROW EXECUTE FUNCTION refuse()`)
	provider := newPicky(t, p.provider.URL)
	p.dueAt(append(ids, others...), "1 hour", "1 hour")
	for range 3 {
		p.run("--simulator-url", provider.URL)
	}
	if n := provider.lookedAt(refs...); n != len(ids) {
		t.Errorf("three runs ask %d times for %d findings that can not be recorded", n, len(ids))
	}
	if n := p.inState(others, "succeeded"); n != len(others) {
		t.Errorf("%d of %d others are settled", n, len(others))
	}
	p.dueAt(ids, "1 hour", "73 hours")
	r := p.run("--simulator-url", provider.URL)
	s := p.summary(r)
	if s.NeedsAttention != int64(len(ids)) || s.Errors != int64(len(ids)) || r.ExitCode != 3 {
		t.Errorf("exits %d, prints %s", r.ExitCode, r.Stdout)
	}
	if n := p.inState(ids, "needs_attention"); n != len(ids) {
		t.Errorf("%d of %d are in front of a human", n, len(ids))
	}
	evidence := false
	for _, e := range p.timeline(ids[0]) {
		evidence = evidence || e.Event != nil && e.Event.Detail["not_recorded"] == "succeeded"
	}
	if !evidence {
		t.Errorf("the history does not tell what the provider said: %+v", p.timeline(ids[0]))
	}
	p.Exec(`DROP TRIGGER refused ON ledger_transfers`)
	p.reconcile()
	if n := p.inState(ids, "succeeded"); n != len(ids) {
		t.Errorf("%d of %d are settled once they may be", n, len(ids))
	}
	p.Service.Audit(t)
}
