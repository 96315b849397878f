package blackbox

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/testdb"
)

// The caller retries as agents do, at two servers, while the provider hangs for twice the lease.
func TestA21_TheProviderHangsForTwiceTheLease_ExecutesOnce(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-timeout", "500ms", "--lease", "1s")
	p.Service.AddServer(t)
	p.provider.Fault("hang", harness.Times(1), harness.After(2*time.Second))
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for began := time.Now(); ; time.Sleep(150 * time.Millisecond) {
				a := p.At(i).Refund("K", "P0", 4000)
				switch says := a.Says(); says {
				case "processed", "already_processed":
					return
				case "pending", "operation_in_progress":
					if r := a.Header.Get("Retry-After"); r == "" || r == "0" {
						t.Errorf("%s with Retry-After %q", says, r)
					}
				default:
					t.Errorf("answered %d %s", a.Status, a.Body)
				}
				if time.Since(began) > 40*time.Second {
					t.Error("no outcome within 40 s")
					return
				}
			}
		})
	}
	callers.Wait()
	p.executed("K")
	p.chain("K", "hold", "settle")
	p.balance("P0", 4000, 0)
	p.Service.Audit(t)
}

// answerLost are the ways to execute and not to say so; what the answer says is in no list of declines.
func answerLost() []harness.Fields {
	list := []harness.Fields{{"mode": "drop_after"}, {"mode": "hang", "delay_ms": 800},
		{"mode": "error_after", "delay_ms": 800}}
	for _, status := range []int{400, 404, 408, 409, 410, 422, 500, 502, 503, 504, 599} {
		list = append(list, harness.Fields{"mode": "error_after", "status": status})
	}
	for _, code := range []string{"", "try_again_later", "DECLINED", "declined ", "do_not_honor"} {
		list = append(list, harness.Fields{"mode": "error_after", "status": 402, "code": code})
	}
	return list
}

func TestA22_TheAnswerIsLost_ItIsUnknownAndNeverASecondKey(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-timeout", "600ms")
	var all []string
	for i, lost := range answerLost() {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("L", i)
		all = append(all, operation)
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
		p.provider.Fault(lost["mode"].(string), lost, harness.Times(1))
		a := p.refund(operation, order, "pending")
		if r := harness.Read[harness.Receipt](t, a); a.Status != http.StatusAccepted || r.MoneyMoved != "unknown" ||
			r.State != "reserved" ||
			r.NextAction != "wait_then_get" || a.Header.Get("Location") != harness.RefundPath(operation) {
			t.Errorf("%v: answered %d %s", lost, a.Status, a.Body)
		}
		p.stands(operation, "reserved", "")
		p.balance(order, 4000, 4000)
		want(t, p.Refund(operation+"-more", order, 6001), "amount_exceeds_refundable")
		p.refund(operation, order, "pending") // at most one look a second
	}
	time.Sleep(800 * time.Millisecond) // what hangs at the provider happens
	for i, operation := range all {
		switch i % 3 {
		case 0:
			p.again(operation, fmt.Sprint("L", i), "processed")
		case 1:
			if r := p.lookUp(operation); r.State != "succeeded" || r.MoneyMoved != "yes" {
				t.Errorf("%s, looked up: %+v", operation, r)
			}
		}
	}
	p.reconcile()
	for i, operation := range all {
		p.refund(operation, fmt.Sprint("L", i), "already_processed")
		p.stands(operation, "succeeded", "")
		p.chain(operation, "hold", "settle")
	}
	for key, e := range p.executed(all...) {
		if e.Requests != 1 {
			t.Errorf("%s was sent %d times, though the books show it", key, e.Requests)
		}
	}
	p.Service.Audit(t)
}

func TestA23_TheProviderFailsAndDidNothing_TheSameKeySucceeds(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-breaker-open", "20ms") // 401 and 403 open it at once
	var faults []harness.Fields
	for _, status := range []int{400, 404, 409, 422, 429, 500, 502, 503} {
		faults = append(faults, harness.Fields{"mode": "error_before", "status": status})
	}
	faults = append(faults, harness.Fields{"mode": "drop_before"}, harness.Fields{"mode": "refuse"},
		harness.Fields{"mode": "error_before", "status": 402, "code": "no_such_decline"},
		harness.Fields{"mode": "error_before", "status": 401}, harness.Fields{"mode": "error_before", "status": 403})
	var all []string
	for i, fault := range faults {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("L", i)
		all = append(all, operation)
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
		for range 3 { // it goes on for a while
			p.provider.Fault(fault["mode"].(string), fault, harness.Times(1))
			a := p.again(operation, order, "pending")
			if a.Status != http.StatusAccepted {
				t.Errorf("%v: answered %d %s", fault, a.Status, a.Body)
			}
			p.stands(operation, "reserved", "")
			p.balance(order, 4000, 4000)
			time.Sleep(30 * time.Millisecond)
		}
	}
	for i, operation := range all {
		p.again(operation, fmt.Sprint("L", i), "processed")
		p.refund(operation, fmt.Sprint("L", i), "already_processed")
		p.chain(operation, "hold", "settle")
	}
	p.executed(all...)
	p.Service.Audit(t)
}

func TestA24_PostgresDiesBeforeTheProvidersSuccessIsRecorded_ItEndsSucceededOnce(t *testing.T) {
	t.Parallel()
	cluster := testdb.Start(t, embedpg.Options{Durable: true})
	provider := harness.Simulate(t, 0)
	p := payingOn(t, &harness.Service{DB: testdb.NewIn(t, cluster), Simulator: provider,
		Flags: []string{"--simulator-url", provider.URL}})
	c := p.Client
	c.Faulty = true
	for i, way := range []string{"service lives", "service dies", "restarted at once"} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		provider.Fault("hang", harness.Times(1), harness.After(700*time.Millisecond))
		answered := make(chan harness.Answer, 1)
		go func() {
			a, _ := c.Try(harness.Request{Method: http.MethodPost, Path: "/v1/refunds",
				Body: harness.JSON(harness.Fields{"operation_id": operation, "order_id": order, "amount_cents": 4000})})
			answered <- a
		}()
		provider.AwaitRequests(p.ProviderKey(operation), 1)
		if err := cluster.Kill(); err != nil {
			t.Fatal(err)
		}
		if way != "restarted at once" {
			eventually(t, "the provider executes", func() bool { return len(provider.Refunds()) == i+1 })
			time.Sleep(300 * time.Millisecond) // the success finds no database
		}
		if way == "service dies" {
			p.Service.Servers[i].Kill()
		}
		if a := <-answered; a.Status != 0 && way != "restarted at once" {
			want(t, a, "pending")
		}
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Service.DB.Owner.Reset()
		c.URL = p.Service.AddServer(t).URL
		p.Client = c
		if i%2 == 0 {
			p.reconcile()
		} else {
			p.again(operation, order, "processed")
		}
		p.refund(operation, order, "already_processed")
		p.stands(operation, "succeeded", "")
		p.chain(operation, "hold", "settle")
		p.balance(order, 4000, 0)
	}
	p.executed("K0", "K1", "K2")
	p.Service.Audit(t)
}

func TestA25_ADecline_ReplaysAsTheSameDecline(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for i, code := range []string{"declined", "insufficient_funds", "charge_disputed", "expired_or_canceled_card",
		"unknown_payment", "lost_or_stolen_card"} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		p.provider.Fault("decline", harness.Times(1), harness.Fields{"code": code})
		first := p.refund(operation, order, "refund_declined")
		one := harness.Read[harness.Problem](t, first)
		if one.FailureCode != code || one.Replayed == nil || *one.Replayed ||
			first.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: first answered %v %s", code, first.Header, first.Body)
		}
		for range 3 {
			p.Service.Due(t)
			replay := p.refund(operation, order, "refund_declined")
			two := harness.Read[harness.Problem](t, replay)
			if two.Replayed == nil || !*two.Replayed || replay.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: replayed as %v %s", code, replay.Header, replay.Body)
			}
			one.Replayed, one.DiagnosticRef, two.Replayed, two.DiagnosticRef = nil, "", nil, ""
			if diff := cmp.Diff(one, two); diff != "" {
				t.Errorf("%s: the replay differs: %s", code, diff)
			}
		}
		p.lookUp(operation)
		p.stands(operation, "failed", code)
		p.chain(operation, "hold", "release")
		p.balance(order, 0, 0)
		p.refund(operation+"-new", order, "processed")
		if n := p.provider.Requests()[p.ProviderKey(operation)]; n != 1 {
			t.Errorf("%s: sent %d times", code, n)
		}
	}
	p.Service.Audit(t)
}

// A decline that may be our own success in disguise is not believed before the books are complete, and not sent again.
func TestA25_ADeclineInDoubt_IsLookedUpAndNotSentAgain(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--listing-lag", "1h")
	codes := []string{"already_refunded", "amount_exceeds_unrefunded"}
	for i, code := range codes {
		p.provider.Fault("decline", harness.Times(1), harness.Fields{"code": code})
		p.refund(fmt.Sprint("K", i), fmt.Sprint("P", i), "pending")
		p.again(fmt.Sprint("K", i), fmt.Sprint("P", i), "pending")
		p.stands(fmt.Sprint("K", i), "reserved", "")
	}
	p.reconcile()
	p.stands("K0", "reserved", "")
	p.reconcile("--listing-lag", "1ms")
	for i, code := range codes {
		operation := fmt.Sprint("K", i)
		p.stands(operation, "failed", code)
		p.refund(operation, fmt.Sprint("P", i), "refund_declined")
		if n := p.provider.Requests()[p.ProviderKey(operation)]; n != 1 {
			t.Errorf("%s: sent %d times", code, n)
		}
		p.chain(operation, "hold", "release")
	}
	p.Service.Audit(t)
}

func TestA26_TheProviderForgotTheKey_ItIsLookedUpAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	// Whether the provider executed it, and how long ago it forgot the key: a send that would still run then is too
	// late, too.
	type lost struct {
		mode    string
		expires string
		finds   func(operation, order string)
	}
	byCaller := func(operation, order string) { p.Service.Due(t); p.Refund(operation, order, 4000) }
	byJob := func(string, string) {} // which finds all that is left
	byLookUp := func(operation, _ string) { p.lookUp(operation) }
	var cases []lost
	for _, mode := range []string{"drop_after", "drop_before", "error_before"} {
		for _, expires := range []string{"-1 second", "-3 days", "50 seconds"} {
			for _, way := range []func(string, string){byCaller, byJob, byLookUp} {
				cases = append(cases, lost{mode, expires, way})
			}
		}
	}
	for i, c := range cases {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("L", i)
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
		p.provider.Fault(c.mode, harness.Times(1))
		p.refund(operation, order, "pending")
		p.Exec(`UPDATE refund_operations SET provider_key_expires_at = clock_timestamp() + $2::text::interval
			WHERE operation_id = $1`, operation, c.expires)
	}
	p.provider.Forget()
	time.Sleep(listingLag)
	for i, c := range cases {
		c.finds(fmt.Sprint("K", i), fmt.Sprint("L", i))
	}
	p.reconcile()
	for i, c := range cases {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("L", i)
		if c.mode == "drop_after" {
			p.stands(operation, "succeeded", "")
			p.refund(operation, order, "already_processed")
			p.chain(operation, "hold", "settle")
			continue
		}
		p.stands(operation, "needs_attention", "provider_key_expired")
		for range 2 {
			p.refund(operation, order, "operation_needs_attention")
			p.lookUp(operation)
		}
		p.balance(order, 4000, 4000)
		p.chain(operation, "hold")
	}
	p.reconcile()
	for key, n := range p.provider.Requests() {
		if n != 1 {
			t.Errorf("%s was sent %d times", key, n)
		}
	}
	p.Service.Audit(t)
}

// Where nothing was ever sent, the provider can not know the key: its age does not matter.
func TestA26_AnOldReservationThatWasNeverSent_IsSent(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.provider.Kill()
	p.refund("K", "P0", "pending")
	p.reconcile()
	p.again("K", "P0", "pending")
	p.provider.Start()
	p.Exec(`UPDATE refund_operations SET provider_key_expires_at = clock_timestamp() - interval '40 hours',
		created_at = created_at - interval '64 hours'`)
	p.again("K", "P0", "processed")
	p.executed("K")
	p.chain("K", "hold", "settle")
}

// A 429 may come from somebody in between, after the provider executed: a day later its key is forgotten, and only a
// look tells.
func TestA65_A429AfterTheProviderExecuted_IsLookedUpADayLater(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for i, by := range []string{"caller", "reconciliation"} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		p.provider.Fault("error_after", harness.Fields{"status": 429}, harness.Times(1))
		p.refund(operation, order, "pending")
		p.provider.Forget()
		p.Exec(`UPDATE refund_operations SET provider_key_expires_at = provider_key_expires_at - interval '25 hours',
			created_at = created_at - interval '25 hours'`)
		if by == "caller" {
			p.again(operation, order, "processed")
		} else {
			p.reconcile()
		}
		p.stands(operation, "succeeded", "")
		p.chain(operation, "hold", "settle")
		if n := p.provider.Requests()[p.ProviderKey(operation)]; n != 1 {
			t.Errorf("by %s: sent %d times", by, n)
		}
	}
	p.executed("K0", "K1")
	p.Service.Audit(t)
}
