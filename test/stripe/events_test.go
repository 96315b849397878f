package stripe

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/stripefake"
)

// kinds are the events of a refund, as different endpoints get them.
var kinds = []string{"refund.created", "refund.updated", "charge.refund.updated", "charge.refunded"}

func TestA36_StaleAndRepeatedEvents_ChangeNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, refund := s.paid("K")
	s.fake.Settle(refund, "pending", "")
	old := s.fake.Event("refund.created", refund, false) // says pending, which is long over
	s.fake.Settle(refund, "succeeded", "")
	before := s.rows()
	for range 3 {
		s.deliver(old, 200, "unchanged")
		for _, kind := range kinds[:3] {
			s.deliver(s.fake.Event(kind, refund, true), 200, "unchanged")
		}
		s.deliver(s.fake.Event("charge.refunded", refund, true), 200, "unchanged")
		s.deliver(s.fake.Event("charge.refunded", refund, false), 200, "not_ours") // nothing of that payment is open
	}
	if after := s.rows(); after != before {
		t.Errorf("rows changed:\n%s\n%s", before, after)
	}
	s.stands("K", "succeeded", "")
	s.once("K")
}

func TestA37_FailedDaysLater_IsReversedByItsEvent(t *testing.T) {
	t.Parallel()
	s := open(t)
	order, refund := s.paid("K")
	s.refundable(order, 6000)
	s.fake.Later(72 * time.Hour)
	s.fake.Settle(refund, "failed", "lost_or_stolen_card")
	failed := s.fake.Event("refund.failed", refund, false)
	s.deliver(failed, 200, "applied")
	s.stands("K", "failed", "late_failure")
	s.refundable(order, 10000)
	before := s.rows()
	s.deliver(failed, 200, "unchanged")
	s.deliver(s.fake.Event("refund.updated", refund, false), 200, "unchanged")
	if after := s.rows(); after != before {
		t.Errorf("rows changed:\n%s\n%s", before, after)
	}
	if a := s.Client().Refund("K2", order, 10000); a.Status != http.StatusCreated {
		t.Errorf("a new operation: %d %s", a.Status, a.Body)
	}
	s.stands("K", "failed", "late_failure")
	if a := s.Client().Refund("K", order, 4000); a.Status != http.StatusUnprocessableEntity ||
		!strings.Contains(string(a.Body), "late_failure") {
		t.Errorf("the old one: %d %s", a.Status, a.Body)
	}
	s.Service.Audit(t)
}

func TestA38_DatabaseAway_IsNoSuccess_AndTheRedeliveryAppliesOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	order, refund := s.paid("K")
	s.fake.Settle(refund, "failed", "declined")
	event := s.fake.Event("refund.failed", refund, false)
	back := s.Service.Outage(t)
	s.deliver(event, 503, "")
	back()
	s.deliver(event, 200, "applied")
	s.deliver(event, 200, "unchanged")
	s.refundable(order, 10000)
	if n := s.Movements("K"); n != 3 {
		t.Errorf("%d transfers, want hold, settle, reversal", n)
	}
}

func TestEvents_BeforeOurOwnRecordExists_Settle(t *testing.T) {
	t.Parallel()
	s := open(t)
	for i, kind := range kinds {
		operation := fmt.Sprint("K", i)
		s.fake.Fault("drop_after", harness.Times(1))
		order := s.sell()
		if a := s.Client().Refund(operation, order, 4000); a.Status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", operation, a.Status, a.Body)
		}
		s.deliver(s.fake.Event(kind, s.fake.Of(s.ID, operation)[0].ID, false), 200, "applied")
		s.stands(operation, "succeeded", "")
		s.once(operation)
	}
	s.fake.Heal()
	s.Service.Audit(t)
}

// The listing lacks the refund yet: it is read by the name that the event gives.
func TestEvents_WhereTheListingLags_AreReadByName(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.fake.Lag(time.Hour)
	s.fake.Fault("drop_after", harness.Times(1))
	s.Client().Refund("K", s.sell(), 4000)
	s.deliver(s.fake.Event("refund.created", s.fake.Of(s.ID, "K")[0].ID, false), 200, "applied")
	s.stands("K", "succeeded", "")
}

func TestEvents_DuringOurOwnCall_AreProofWhateverTheLease(t *testing.T) {
	t.Parallel()
	s := open(t)
	order := s.sell()
	s.fake.Fail(stripefake.Fault{On: "POST", Do: "hang_after", Wait: 2 * time.Second, Times: 1})
	var caller sync.WaitGroup
	caller.Go(func() {
		if a := s.Client().Refund("K", order, 4000); a.Status >= 300 {
			t.Errorf("the call that hung is answered %d %s", a.Status, a.Body)
		}
	})
	for began := time.Now(); len(s.fake.Of(s.ID, "K")) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("no refund is made")
		}
	}
	event := s.fake.Event("refund.created", s.fake.Of(s.ID, "K")[0].ID, false)
	var deliveries sync.WaitGroup
	for range 4 {
		deliveries.Go(func() {
			if a := s.post(event, stripefake.Signature(event, time.Now(),
				harness.StripeSecret)); a.Status != http.StatusOK {
				t.Errorf("delivered: %d %s", a.Status, a.Body)
			}
		})
	}
	deliveries.Wait()
	s.stands("K", "succeeded", "")
	caller.Wait()
	s.once("K")
	if n := s.Movements("K"); n != 2 {
		t.Errorf("%d transfers, want hold and settle", n)
	}
	s.Service.Audit(t)
}

// A refund fails while our own call, whose answer says that it succeeded, is still on its way.
func TestEvents_FailureDuringOurOwnCall_IsTheLaterWord(t *testing.T) {
	t.Parallel()
	s := open(t)
	order := s.sell()
	s.fake.Fail(stripefake.Fault{On: "POST", Do: "hang_after", Wait: 2 * time.Second, Times: 1})
	var caller sync.WaitGroup
	caller.Go(func() { s.Client().Refund("K", order, 4000) })
	for began := time.Now(); len(s.fake.Of(s.ID, "K")) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("no refund is made")
		}
	}
	refund := s.fake.Of(s.ID, "K")[0].ID
	s.fake.Settle(refund, "failed", "declined")
	s.deliver(s.fake.Event("refund.failed", refund, false), 200, "applied")
	caller.Wait()
	s.stands("K", "failed", "declined")
	s.Service.Due(t)
	s.Service.Reconcile(t)
	s.stands("K", "failed", "declined")
	s.refundable(order, 10000)
	s.Service.Audit(t)
}

func TestEvents_OfWhatIsNotOurs_Answer200AndChangeNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	order, refund := s.paid("K")
	connected, _ := s.paid("C", func(p *stripefake.Payment) { p.Account = "acct_7" })
	before := s.rows()
	ours := map[string]string{"tenant_id": s.ID, "operation_id": "K"}
	foreign := s.fake.Add(stripefake.Payment{Currency: "eur", Amount: 10000, Captured: 10000, Account: "acct_9"})
	live := s.fake.Add(stripefake.Payment{Currency: "eur", Amount: 10000, Captured: 10000, Live: true})
	elsewhere := s.fake.Pay("eur", 10000)
	for name, r := range map[string]stripefake.Refund{
		"of the dashboard, of an order of ours": s.fake.Dashboard("pi_"+strings.ReplaceAll(s.ID, "-", "")+order,
			100, nil),
		"of an operation that nobody here knows": s.fake.Dashboard(elsewhere, 100,
			map[string]string{"tenant_id": s.ID, "operation_id": "other"}),
		"of another account, with our marks": s.fake.Dashboard(foreign, 4000, ours),
		"of the other mode, with our marks":  s.fake.Dashboard(live, 4000, ours),
		"of a tenant that is none": s.fake.Dashboard(elsewhere, 100,
			map[string]string{"tenant_id": "a\x00b", "operation_id": "K"}),
	} {
		for _, kind := range kinds[:3] {
			event := s.fake.Event(kind, r.ID, false)
			if a := s.post(event, stripefake.Signature(event, time.Now(), harness.StripeSecret)); a.Status != 200 ||
				!strings.Contains(string(a.Body), "not_ours") {
				t.Errorf("%s, %s: %d %s", name, kind, a.Status, a.Body)
			}
		}
	}
	noise := []byte(`{"object":"event","type":"invoice.paid","livemode":false,"data":{"object":{"id":"in_1","object":"invoice"}}}`)
	s.deliver(noise, 200, "not_ours")
	if after := s.rows(); after != before {
		t.Errorf("rows changed:\n%s\n%s", before, after)
	}
	s.deliver(s.fake.Event("refund.updated", refund, false), 200, "unchanged")
	s.fake.Settle(s.fake.Of(s.ID, "C")[0].ID, "failed", "declined")
	s.deliver(s.fake.Event("refund.failed", s.fake.Of(s.ID, "C")[0].ID, false), 200, "applied")
	s.refundable(connected, 10000)
}

func TestEvents_ThatAreRefused_SayWhy(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, refund := s.paid("K")
	s.fake.Settle(refund, "failed", "declined")
	event := s.fake.Event("refund.failed", refund, false)
	now := time.Now()
	big := append([]byte(`{"pad":"`+strings.Repeat("x", 1<<20)+`",`), event[1:]...)
	before := s.rows()
	for name, test := range map[string]struct {
		body      []byte
		signature string
		status    int
		code      string
	}{
		"without a signature": {event, "", 400, "webhook_signature_invalid"},
		"of another secret": {event, stripefake.Signature(event, now, "whsec_other"), 400,
			"webhook_signature_invalid"},
		"of yesterday": {event, stripefake.Signature(event, now.Add(-24*time.Hour), harness.StripeSecret), 400,
			"webhook_signature_invalid"},
		"of tomorrow": {event, stripefake.Signature(event, now.Add(24*time.Hour), harness.StripeSecret), 400,
			"webhook_signature_invalid"},
		"of another body": {append([]byte(" "), event...), stripefake.Signature(event, now, harness.StripeSecret),
			400, "webhook_signature_invalid"},
		"of 1 MB": {big, stripefake.Signature(big, now, harness.StripeSecret), 413, "request_too_large"},
		"that is no JSON": {event[:40], stripefake.Signature(event[:40], now, harness.StripeSecret), 400,
			"malformed_request"},
		"that is empty": {[]byte{}, stripefake.Signature(nil, now, harness.StripeSecret), 400,
			"malformed_request"},
	} {
		a := s.post(test.body, test.signature)
		if a.Status != test.status || !strings.Contains(string(a.Body), test.code) ||
			!strings.Contains(string(a.Body), `"money_moved":"no"`) {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	if after := s.rows(); after != before {
		t.Errorf("rows changed:\n%s\n%s", before, after)
	}
	s.deliver(event, 200, "applied") // nothing is lost
	unconfigured := s.Service.DB
	plain := harness.Serve(t, unconfigured.ServiceURL, "--stripe-api-key", harness.StripeKey)
	a := harness.Client{URL: plain.URL,
		T: t}.Do(harness.Request{Method: "POST", Path: "/v1/webhooks/stripe", Body: event,
		Header: http.Header{"Stripe-Signature": {stripefake.Signature(event, now, harness.StripeSecret)}}})
	if a.Status != 503 || !strings.Contains(string(a.Body), "provider_unavailable") ||
		a.Header.Get("Retry-After") == "" {
		t.Errorf("without a secret configured: %d %v %s", a.Status, a.Header, a.Body)
	}
	for result, least := range map[string]float64{"applied": 1, "refused": 8} {
		var counted float64
		for _, m := range s.Service.Servers[0].Metrics(t) {
			if m.Name == "refundd_provider_events_total" && m.Labels["result"] == result {
				counted = m.Value
			}
		}
		if counted != least {
			t.Errorf("%v events are counted as %s, want %v", counted, result, least)
		}
	}
}

func TestEvents_WhereStripeCanNotBeAsked_ComeAgain(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, refund := s.paid("K")
	s.fake.Settle(refund, "failed", "declined")
	event := s.fake.Event("refund.failed", refund, false)
	s.fake.Fault("lookup_down", harness.Times(1))
	s.deliver(event, 503, "")
	s.stands("K", "succeeded", "")
	s.deliver(event, 200, "applied")
	s.stands("K", "failed", "late_failure")
}

func TestEvents_TwoSecretsWhileOneIsRotated(t *testing.T) {
	t.Parallel()
	s := open(t)
	rotating := harness.Serve(t, s.Service.DB.ServiceURL,
		append(s.Service.Flags, "--stripe-webhook-secret", "whsec_next,"+harness.StripeSecret)...)
	_, refund := s.paid("K")
	event := s.fake.Event("refund.updated", refund, false)
	for secret, want := range map[string]int{harness.StripeSecret: 200, "whsec_next": 200, "whsec_third": 400} {
		if got := stripefake.Deliver(rotating.URL, event, secret); got != want {
			t.Errorf("%s: %d", secret, got)
		}
	}
}
