package stripe

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/stripefake"
)

func TestRefund_IsMadeOnce_ReplayedAndShown(t *testing.T) {
	t.Parallel()
	s := open(t)
	order := s.sell(func(p *stripefake.Payment) { p.Account = "acct_7" })
	for i, want := range []int{201, 200, 200} {
		if a := s.Client().Refund("K", order, 4000); a.Status != want {
			t.Errorf("call %d: %d %s", i, a.Status, a.Body)
		}
	}
	s.once("K")
	r := harness.Command(t, s.Service.DB.ServiceURL,
		append([]string{"show", "K", "--tenant", s.ID}, s.fake.Flags()[:4]...)...)
	if r.ExitCode != 0 || !strings.Contains(r.Stdout, "stripe") || !strings.Contains(r.Stdout, "Provider, asked now") ||
		!strings.Contains(r.Stdout, "succeeded") {
		t.Errorf("show exits %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	if leak := harness.LeakIn(r.Stdout + r.Stderr + s.Service.Servers[0].Logs.Text() +
		s.Service.Servers[0].MetricsText(t)); leak != "" {
		t.Errorf("a secret is shown: %s", leak)
	}
	if help := harness.Command(t, s.Service.DB.ServiceURL, "serve",
		"--help"); harness.LeakIn(help.Stdout+help.Stderr) != "" {
		t.Error("a secret is in the help")
	}
}

// What Stripe refuses for good is told; what may be our own success in disguise is looked up before.
func TestRefund_Declines(t *testing.T) {
	t.Parallel()
	s := open(t)
	pay := func(order string) string { return "pi_" + strings.ReplaceAll(s.ID, "-", "") + order }
	disputed := s.sell(func(p *stripefake.Payment) { p.Disputed = true })
	beside := s.sell()
	s.fake.Dashboard(pay(beside), 8000, nil)
	whole := s.sell()
	s.fake.Dashboard(pay(whole), 10000, nil)
	partly := s.sell(func(p *stripefake.Payment) { p.Captured = 3000 }) // of an order of which that was not said
	for operation, order := range map[string]string{"disputed": disputed, "beside": beside, "whole": whole,
		"partly": partly} {
		if a := s.Client().Refund(operation, order, 4000); a.Status != http.StatusAccepted {
			t.Errorf("%s is doubted at first: %d %s", operation, a.Status, a.Body)
		}
	}
	foreign := s.sell(func(p *stripefake.Payment) {
		p.ID, p.Account = "pi_foreign"+strings.ReplaceAll(s.ID, "-", ""), "acct_9"
	})
	s.Exec(`UPDATE orders SET provider_account = NULL WHERE order_id = $1 AND tenant_id = $2`, foreign, s.ID)
	if a := s.Client().Refund("foreign", foreign, 4000); a.Status != http.StatusAccepted {
		t.Errorf("a payment of another account, of which nobody says so: %d %s", a.Status, a.Body)
	}
	time.Sleep(400 * time.Millisecond) // the listing's lag
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("disputed", "failed", "charge_disputed")
	s.stands("beside", "failed", "amount_exceeds_unrefunded")
	s.stands("whole", "failed", "already_refunded")
	s.stands("partly", "failed", "amount_exceeds_unrefunded")
	for _, order := range []string{disputed, beside, whole, partly} {
		s.refundable(order, 10000)
	}
	s.stands("foreign", "reserved", "") // and held, with the reason in its history: a person may put the account right
	if a := s.Client().Get(harness.RefundPath("foreign") + "/events"); !strings.Contains(string(a.Body),
		`"reason":"unknown_payment"`) {
		t.Errorf("its history does not say why: %s", a.Body)
	}
	s.Exec(`UPDATE orders SET provider_account = 'acct_9' WHERE order_id = $1 AND tenant_id = $2`, foreign, s.ID)
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("foreign", "succeeded", "")
	s.once("foreign")
	if n := len(s.fake.Of(s.ID, "disputed")) + len(s.fake.Of(s.ID, "beside")) + len(s.fake.Of(s.ID, "whole")); n != 0 {
		t.Errorf("Stripe made %d refunds", n)
	}
}

// Its own success, whose answer was lost and whose key is forgotten, looks like a decline: it is found, and succeeds.
func TestRefund_AlreadyRefundedByUs_Succeeds(t *testing.T) {
	t.Parallel()
	s := open(t)
	order := s.sell()
	s.fake.Fault("drop_after", harness.Times(1))
	if a := s.Client().Refund("K", order, 10000); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.fake.Later(25 * time.Hour)
	s.fake.Lag(26 * time.Hour) // not even the listing shows it
	s.Service.Due(t)
	s.Service.Reconcile(t) // our clock says that the key lives: it is sent, and Stripe says already refunded
	s.fake.Heal()
	time.Sleep(400 * time.Millisecond)
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("K", "succeeded", "")
	s.once("K")
}

func TestRefund_AStored500_EndsAsItsRefundDid(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.fake.Fail(stripefake.Fault{Do: "stored", Status: 500, Times: 1})
	if a := s.Client().Refund("K", s.sell(), 4000); a.Status != http.StatusAccepted {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("K", "succeeded", "")
	s.once("K")
}

func TestReconcile_FindsWhatNoEventTold(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.fake.Set("requires_action", 0, 100)
	order := s.sell()
	if a := s.Client().Refund("K", order, 4000); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.stands("K", "pending", "")
	refund := s.fake.Of(s.ID, "K")[0].ID
	for _, step := range []struct{ status, state, code string }{
		{"pending", "pending", ""}, {"succeeded", "succeeded", ""}, {"failed", "failed", "late_failure"},
	} {
		s.fake.Settle(refund, step.status, "declined")
		s.Service.Due(t)
		s.Service.Reconcile(t)
		s.stands("K", step.state, step.code)
	}
	s.fake.Set("pending", 0, 100)
	if a := s.Client().Refund("K2", order, 4000); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.fake.Settle(s.fake.Of(s.ID, "K2")[0].ID, "canceled", "")
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("K2", "failed", "refund_failed")
	s.refundable(order, 10000)
	s.Service.Audit(t)
}

func TestOrders_AreHeldAgainstTheirPayment(t *testing.T) {
	t.Parallel()
	s := open(t, "--verify-payments")
	partly := s.fake.Add(stripefake.Payment{Currency: "eur", Amount: 10000, Captured: 6000})
	live := s.fake.Add(stripefake.Payment{Currency: "eur", Amount: 10000, Captured: 10000, Live: true})
	foreign := s.fake.Add(stripefake.Payment{Currency: "eur", Amount: 10000, Captured: 10000, Account: "acct_9"})
	uganda := s.fake.Pay("ugx", 500000)
	put := func(id string, cents int, currency, ref string, more harness.Fields) harness.Answer {
		body := harness.Fields{"currency": currency, "captured_cents": cents, "provider": "stripe",
			"provider_payment_ref": ref}
		for k, v := range more {
			body[k] = v
		}
		return s.Client().Put(harness.OrderPath(id), body)
	}
	for name, test := range map[string]struct {
		cents         int
		currency, ref string
		more          harness.Fields
		status        int
		says          string
	}{
		"more than was captured": {10000, "EUR", partly, nil, 422, `{"pointer":"/captured_cents","code":"mismatch"}`},
		"another currency":       {6000, "USD", partly, nil, 422, `"currency_mismatch"`},
		"no such payment": {6000, "EUR", "pi_none", nil, 422,
			`{"pointer":"/provider_payment_ref","code":"mismatch"}`},
		"the other mode's": {10000, "EUR", live, nil, 422,
			`{"pointer":"/provider_payment_ref","code":"mismatch"}`},
		"another account's": {10000, "EUR", foreign, nil, 422,
			`{"pointer":"/provider_payment_ref","code":"mismatch"}`},
		"in its account": {10000, "EUR", foreign, harness.Fields{"provider_account": "acct_9"}, 201,
			`"acct_9"`},
		"more than 5000 UGX": {5001, "UGX", uganda, nil, 422, `{"pointer":"/captured_cents","code":"mismatch"}`},
		"5000 UGX":           {5000, "UGX", uganda, nil, 201, `"UGX"`},
	} {
		if a := put(strings.ReplaceAll(name, " ", "-"), test.cents, test.currency, test.ref,
			test.more); a.Status != test.status || !strings.Contains(string(a.Body), test.says) {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	if a := put("P", 5000, "EUR", partly, nil); a.Status != 201 {
		t.Errorf("less than was captured: %d %s", a.Status, a.Body)
	}
	if a := s.Client().Put(harness.OrderPath("P"), harness.Fields{"captured_cents": 6001}); a.Status != 422 {
		t.Errorf("raised beyond: %d %s", a.Status, a.Body)
	}
	s.fake.Fault("lookup_down", harness.Times(1))
	if a := s.Client().Put(harness.OrderPath("P"), harness.Fields{"captured_cents": 6000}); a.Status != 503 ||
		!strings.Contains(string(a.Body), "provider_unavailable") {
		t.Errorf("raised while Stripe is away: %d %s", a.Status, a.Body)
	}
	came := len(s.fake.Fake.Requests())
	if a := s.Client().Put(harness.OrderPath("P"),
		harness.Fields{"customer": harness.Fields{"id": "c"}}); a.Status != 200 {
		t.Errorf("what the payment says nothing of: %d %s", a.Status, a.Body)
	}
	if now := len(s.fake.Fake.Requests()); now != came {
		t.Errorf("Stripe was asked of it")
	}
	if a := s.Client().Put(harness.OrderPath("P"), harness.Fields{"captured_cents": 6000}); a.Status != 200 {
		t.Errorf("raised: %d %s", a.Status, a.Body)
	}
}

func TestKey_OfTheOtherMode_MovesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.fake.Let("sk_live_"+harness.Canary, "live")
	live := harness.Serve(t, s.Service.DB.ServiceURL,
		append(s.Service.Flags, "--stripe-api-key", "sk_live_"+harness.Canary)...)
	order, _ := s.paid("K")
	s.Service.Due(t)
	for _, a := range []harness.Answer{
		s.ClientOf(live).Post(harness.RefundPath("K")+"/reconcile", harness.Fields{}),
		s.ClientOf(live).Get(harness.RefundPath("K")),
	} {
		if a.Status != 200 || !strings.Contains(string(a.Body), `"state":"succeeded"`) {
			t.Errorf("with a live key: %d %s", a.Status, a.Body)
		}
	}
	if a := s.ClientOf(live).Refund("K2", order, 100); a.Status != http.StatusAccepted {
		t.Errorf("a refund of a test payment with a live key: %d %s", a.Status, a.Body)
	}
	if n := len(s.fake.Refunds()); n != 1 {
		t.Errorf("%d refunds", n)
	}
	s.stands("K2", "reserved", "") // nothing is declined for good by a key that is not its account's
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("K2", "succeeded", "")
	s.once("K2")
}

// A refund that was declined, and that a listing which lags for longer than it is said to shows as pending later, is
// looked at until it has an end, also where no event tells of that.
func TestRefund_FailedAndYetPending_IsLookedAtUntilItEnds(t *testing.T) {
	t.Parallel()
	s := open(t)
	order := s.sell()
	s.fake.Set("pending", 72*time.Hour, 100)
	s.fake.Fault("drop_after", harness.Times(1))
	if a := s.Client().Refund("K", order, 4000); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.fake.Forget(s.ID + ":K")
	s.fake.Fault("decline", harness.Times(1))
	s.Service.Due(t)
	s.Service.Reconcile(t) // it is sent again, declined, and doubted
	time.Sleep(400 * time.Millisecond)
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("K", "failed", "declined")
	refund := s.fake.Of(s.ID, "K")[0].ID
	looksAgain := func(after string) {
		t.Helper()
		var again bool
		err := s.Service.DB.Owner.QueryRow(t.Context(), `SELECT next_check_at <= now() + interval '25 hours'
			FROM refund_operations
			WHERE tenant_id = $1 AND operation_id = 'K'`, s.ID).Scan(&again)
		if err != nil || !again {
			t.Errorf("after %s nobody looks again, %v", after, err)
		}
	}
	s.fake.Lag(0)
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("K", "failed", "declined") // what is pending is no proof that it was paid
	looksAgain("a look that shows it as pending")
	s.Exec(`UPDATE refund_operations SET next_check_at = 'infinity' WHERE tenant_id = $1`, s.ID)
	s.deliver(s.fake.Event("refund.updated", refund, false), 200, "unchanged")
	looksAgain("an event")
	s.fake.Settle(refund, "succeeded", "")
	s.Exec(`UPDATE refund_operations SET next_check_at = next_check_at - interval '25 hours'
		WHERE tenant_id = $1`, s.ID)
	if r := s.Service.Reconcile(t); r.ExitCode != 3 {
		t.Errorf("the run exits %d", r.ExitCode)
	}
	s.stands("K", "needs_attention", "paid_after_failure")
	s.refundable(order, 6000)
	s.Service.Audit(t)
}
