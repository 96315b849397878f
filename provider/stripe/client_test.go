package stripe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/internal/clocks"
	"refundd/operations"
	"refundd/provider/stripe"
	"refundd/test/stripefake"
)

func client(t *testing.T, base, key string) *stripe.Client {
	t.Helper()
	c, err := stripe.NewClient(stripe.Config{Key: stripe.Secret(key), Base: base})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T) (*stripefake.Fake, *stripe.Client) {
	t.Helper()
	f := stripefake.New()
	t.Cleanup(f.Close)
	return f, client(t, f.URL, "sk_test_fake")
}

func request(payment string, amount int64, currency string) operations.ProviderRequest {
	return operations.ProviderRequest{
		TenantID: "acme", OperationID: "op-1", Key: "acme:op-1", PaymentRef: payment, AmountCents: amount, Currency: currency,
		NotAfter: clocks.Now().Add(time.Minute),
	}
}

// told is what a call came to, without its names and causes.
type told struct {
	Outcome   operations.Outcome
	Code      string
	Doubtful  bool
	Kind      operations.ErrorKind
	Reason    operations.Reason
	Unwritten bool
}

func tell(r operations.ProviderResult, err error) told {
	v := told{Outcome: r.Outcome, Code: r.DeclineCode, Doubtful: r.Doubtful}
	if failure, ok := errors.AsType[*operations.ProviderError](err); ok {
		v.Kind, v.Reason, v.Unwritten = failure.Kind, failure.Reason, failure.Unwritten
	} else if err != nil {
		v.Kind = "no ProviderError"
	}
	return v
}

func TestRefund_IsMadeOnceUnderItsKey_AndFound(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	r := request(f.Pay("eur", 10000), 6000, "EUR")
	first, err := c.Refund(t.Context(), r)
	if err != nil || first.Outcome != operations.OutcomeSucceeded || first.RequestID == "" {
		t.Fatalf("got %+v, %v", first, err)
	}
	again, err := c.Refund(t.Context(), r)
	if err != nil || again.ProviderRefundID != first.ProviderRefundID {
		t.Errorf("again: %+v, %v", again, err)
	}
	found, err := c.Lookup(t.Context(), r)
	if err != nil || found.ProviderRefundID != first.ProviderRefundID || found.Outcome != operations.OutcomeSucceeded {
		t.Errorf("looked up: %+v, %v", found, err)
	}
	made := f.Refunds()
	if len(made) != 1 {
		t.Fatalf("%d refunds", len(made))
	}
	want := map[string]string{"tenant_id": "acme", "operation_id": "op-1"}
	if d := cmp.Diff(want, made[0].Metadata); d != "" || made[0].Amount != 6000 || made[0].Key != "acme:op-1" {
		t.Errorf("made %+v %s", made[0], d)
	}
}

// Of each status and each failure reason that Stripe documents, and of one that it does not.
func TestLookup_TellsOfEachStatus(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status, reason string
		want           told
	}{
		{"succeeded", "", told{Outcome: operations.OutcomeSucceeded}},
		{"pending", "", told{Outcome: operations.OutcomePending}},
		{"requires_action", "", told{Outcome: operations.OutcomePending}},
		{"canceled", "", told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineRefundFailed}},
		{"failed", "lost_or_stolen_card", told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineLost}},
		{"failed", "expired_or_canceled_card",
			told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineExpiredCard}},
		{"failed", "charge_for_pending_refund_disputed",
			told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineChargeDisputed}},
		{"failed", "insufficient_funds",
			told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineInsufficientFunds}},
		{"failed", "declined", told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineDeclined}},
		{"failed", "merchant_request", told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineRefundFailed}},
		{"failed", "unknown", told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineRefundFailed}},
		{"failed", "", told{Outcome: operations.OutcomeDeclined, Code: operations.DeclineRefundFailed}},
		{"blocked", "", told{Kind: operations.ErrorUnknown}},
		{"", "", told{Kind: operations.ErrorUnknown}},
	} {
		f, c := start(t)
		r := request(f.Pay("eur", 100), 100, "EUR")
		made, err := c.Refund(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		f.Settle(made.ProviderRefundID, test.status, test.reason)
		if got := tell(c.Lookup(t.Context(), r)); got != test.want {
			t.Errorf("%s %s: %+v, want %+v", test.status, test.reason, got, test.want)
		}
	}
}

// said is a server that answers everything with one status and body.
func said(t *testing.T, status int, body string) *stripe.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return client(t, s.URL, "sk_test_fake")
}

func problem(kind, code, param string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"param":%q,"message":"in Stripe's words"}}`, kind, code, param)
}

func TestRefund_OnlyTheClosedListDeclines(t *testing.T) {
	t.Parallel()
	const invalid, card = "invalid_request_error", "card_error"
	declined := func(code string, doubtful bool) told {
		return told{Outcome: operations.OutcomeDeclined, Code: code, Doubtful: doubtful}
	}
	unknown := told{Kind: operations.ErrorUnknown}
	noPayment := told{Kind: operations.ErrorUnknown, Reason: operations.ReasonUnknownPayment}
	for _, test := range []struct {
		status int
		body   string
		want   told
	}{
		{400, problem(invalid, "charge_already_refunded", ""), declined(operations.DeclineAlreadyRefunded, true)},
		{400, problem(invalid, "charge_disputed", ""), declined(operations.DeclineChargeDisputed, true)},
		{400, problem(invalid, "refund_disputed_payment", ""), declined(operations.DeclineChargeDisputed, true)},
		{400, problem(invalid, "charge_not_refundable", ""), declined(operations.DeclineDeclined, true)},
		{400, problem(invalid, "amount_too_large", "amount"), declined(operations.DeclineExceedsUnrefunded, true)},
		{400, problem(invalid, "", "amount"), declined(operations.DeclineExceedsUnrefunded, true)},
		{400, problem(invalid, "amount_too_small", "amount"), declined(operations.DeclineDeclined, true)},
		{400, problem(invalid, "balance_insufficient", ""), declined(operations.DeclineInsufficientFunds, false)},
		{402, problem(card, "insufficient_funds", ""), unknown},

		{404, problem(invalid, "resource_missing", "payment_intent"), noPayment},
		{400, problem(invalid, "resource_missing", "charge"), noPayment},
		{404, problem(invalid, "resource_missing", "id"), noPayment},
		{404, problem(invalid, "livemode_mismatch", ""), noPayment},
		{403, problem(invalid, "account_invalid", ""),
			told{Kind: operations.ErrorUnknown, Reason: operations.ReasonUnknownAccount}},
		{400, problem(invalid, "resource_missing", "customer"), unknown},
		{400, problem(invalid, "payment_intent_unexpected_state", ""), unknown},
		{400, problem(invalid, "a_code_of_tomorrow", "amount"), unknown},
		{400, problem(invalid, "", ""), unknown},
		{400, problem("idempotency_error", "", ""), unknown},
		{400, problem("idempotency_error", "charge_already_refunded", ""), unknown},
		{409, problem("idempotency_error", "idempotency_key_in_use", ""), unknown},
		{409, problem(invalid, "charge_already_refunded", ""), unknown},
		{500, problem("api_error", "", ""), unknown},
		{500, problem(invalid, "charge_already_refunded", ""), unknown},
		{503, problem(invalid, "charge_disputed", ""), unknown},
		{502, `<html>Bad gateway</html>`, unknown},
		{400, `<html>Bad request</html>`, unknown},
		{400, `{"error":`, unknown},
		{400, ``, unknown},
		{301, `{"object":"refund","id":"re_1","status":"succeeded"}`, unknown},
		{202, `{"object":"refund","id":"re_1","status":"succeeded"}`, unknown},
		{200, `{"object":"refund","id":"re_1","status":"succeeded"}`, unknown},
		{200, `{"id":"re_1","status":"succeeded","amount":100,"currency":"eur","payment_intent":"pi_1","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`,
			told{Outcome: operations.OutcomeSucceeded}},
		{200, `{"id":"","status":"succeeded","amount":100,"currency":"eur","payment_intent":"pi_1","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`, unknown},
		{200, `{"id":"re_1","status":"succeeded","amount":101,"currency":"eur","payment_intent":"pi_1","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`, unknown},
		{200, `{"id":"re_1","status":"succeeded","amount":100,"currency":"usd","payment_intent":"pi_1","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`, unknown},
		{200, `{"id":"re_1","status":"succeeded","amount":100,"currency":"eur","payment_intent":"pi_2","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`, unknown},
		{200, `{"id":"re_1","status":"succeeded","amount":100,"currency":"eur","payment_intent":"pi_1","metadata":{"tenant_id":"acme","operation_id":"op-2"}}`, unknown},
		{200, ``, unknown},
		{200, `[]`, unknown},

		{429, problem(invalid, "rate_limit", ""), told{Kind: operations.ErrorNotSent}},
		{429, problem(invalid, "lock_timeout", ""), told{Kind: operations.ErrorNotSent}},
		{429, `<html>`, unknown},
		{401, problem(invalid, "api_key_expired", ""), told{Kind: operations.ErrorMisconfigured}},
		{403, problem(invalid, "", ""), told{Kind: operations.ErrorMisconfigured}},
		{403, `<html>Blocked by a proxy</html>`, unknown},
	} {
		got := tell(said(t, test.status, test.body).Refund(t.Context(), request("pi_1", 100, "EUR")))
		if got != test.want {
			t.Errorf("%d %s: %+v, want %+v", test.status, test.body, got, test.want)
		}
	}
}

func TestRefund_429_SaysHowLongToWait(t *testing.T) {
	t.Parallel()
	_, err := said(t, 429, problem("invalid_request_error", "rate_limit", "")).Refund(t.Context(),
		request("pi_1", 100, "EUR"))
	failure, _ := errors.AsType[*operations.ProviderError](err)
	if failure == nil || failure.RetryAfter != 7*time.Second || failure.Unwritten {
		t.Errorf("got %+v", failure)
	}
}

func TestRefund_NothingWritten_IsNotSent(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	late := request(f.Pay("eur", 100), 100, "EUR")
	late.NotAfter = clocks.Now()
	nobody := httptest.NewServer(nil)
	nobody.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() (operations.ProviderResult, error){
		"too late": func() (operations.ProviderResult, error) { return c.Refund(t.Context(), late) },
		"nobody there": func() (operations.ProviderResult, error) {
			return client(t, nobody.URL, "sk_test_x").Refund(t.Context(), request("pi_1", 1, "EUR"))
		},
		"caller is off": func() (operations.ProviderResult, error) { return c.Refund(over, request("pi_1", 1, "EUR")) },
	} {
		if got := tell(call()); got != (told{Kind: operations.ErrorNotSent, Unwritten: true}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if n := len(f.Requests()); n != 0 {
		t.Errorf("%d requests came", n)
	}
}

// Whatever becomes of a request, it is one request; what may have been executed is unknown.
func TestRefund_LostAnswers_AreUnknownAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	for _, fault := range []stripefake.Fault{
		{Do: "drop_before"}, {Do: "drop_after"}, {Do: "garbage"}, {Do: "hang_before",
			Wait: time.Second}, {Do: "hang_after", Wait: time.Second},
		{Do: "status_before", Status: 500}, {Do: "status_after", Status: 500}, {Do: "status_after", Status: 503},
		{Do: "status_before", Status: 409, Type: "idempotency_error", Code: "idempotency_key_in_use"},
	} {
		f, c := start(t)
		r := request(f.Pay("eur", 100), 100, "EUR")
		fault.On, fault.Times = "POST", 1
		f.Fail(fault)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		got := tell(c.Refund(ctx, r))
		cancel()
		if got != (told{Kind: operations.ErrorUnknown}) {
			t.Errorf("%s: %+v", fault.Do, got)
		}
		if came := f.Requests(); !slices.Equal(came, []string{"POST /v1/refunds"}) {
			t.Errorf("%s: came %v", fault.Do, came)
		}
	}
}

func TestRefund_AStored500_StaysUnknown_AndIsFound(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	r := request(f.Pay("eur", 100), 100, "EUR")
	f.Fail(stripefake.Fault{Do: "stored", Status: 500, Times: 1})
	for range 2 {
		if got := tell(c.Refund(t.Context(), r)); got != (told{Kind: operations.ErrorUnknown}) {
			t.Errorf("got %+v", got)
		}
	}
	if got := tell(c.Lookup(t.Context(), r)); got.Outcome != operations.OutcomeSucceeded {
		t.Errorf("looked up: %+v", got)
	}
}

func TestLookup_ReadsEveryPage_AndOneRefundOnTwoPagesIsOne(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	payment := f.Pay("eur", 1_000_000)
	r := request(payment, 100, "EUR")
	first, err := c.Refund(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for range 7 {
		f.Dashboard(payment, 50, nil)
	}
	f.Set("succeeded", 0, 2)
	found, err := c.Lookup(t.Context(), r)
	if err != nil || found.ProviderRefundID != first.ProviderRefundID {
		t.Errorf("got %+v, %v", found, err)
	}
	if n := len(f.Requests()); n != 1+4 {
		t.Errorf("%d requests for eight refunds, two a page", n)
	}
	f.Fail(stripefake.Fault{On: "GET", Do: "status_before", Status: 500, Times: 0})
	pages := 0
	again := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		pages++
		mine := `{"id":"re_1","status":"succeeded","amount":100,"currency":"eur","payment_intent":"` + payment +
			`","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`
		fmt.Fprintf(w, `{"object":"list","has_more":%v,"data":[{"id":"re_other%d","metadata":{}},%s]}`, pages < 3,
			pages, mine)
	}))
	defer again.Close()
	if got := tell(client(t, again.URL, "sk_test_x").Lookup(t.Context(), r)); got.Kind != operations.ErrorUnknown {
		t.Errorf("a listing that does not move on: %+v", got)
	}
}

func TestLookup_OneUnreadablePage_IsUnknown(t *testing.T) {
	t.Parallel()
	for _, fault := range []stripefake.Fault{
		{Do: "status_before", Status: 500}, {Do: "garbage"}, {Do: "drop_before"}, {Do: "drop_after"},
	} {
		f, c := start(t)
		payment := f.Pay("eur", 1000)
		r := request(payment, 100, "EUR")
		if _, err := c.Refund(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		f.Dashboard(payment, 50, nil)
		f.Set("succeeded", 0, 1)
		fault.On, fault.Times = "GET", 1
		f.Fail(fault)
		if got := tell(c.Lookup(t.Context(), r)); got != (told{Kind: operations.ErrorUnknown}) {
			t.Errorf("%s: %+v", fault.Do, got)
		}
	}
	for _, body := range []string{`{}`, `{"data":null}`, `{"has_more":true,"data":[]}`, `{"data":[null]}`,
		`{"data":[{"id":""}]}`, `[]`, ``} {
		if got := tell(said(t, 200, body).Lookup(t.Context(),
			request("pi_1", 100, "EUR"))); got != (told{Kind: operations.ErrorUnknown}) {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

func TestLookup_ComparesTenantOperationAmountAndCurrency(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		amount   int64
		metadata map[string]string
		want     operations.ErrorKind
	}{
		"made in the dashboard": {100, nil, operations.ErrorNotFound},
		"another tenant's": {100, map[string]string{"tenant_id": "other", "operation_id": "op-1"},
			operations.ErrorNotFound},
		"another operation's": {100, map[string]string{"tenant_id": "acme", "operation_id": "op-2"},
			operations.ErrorNotFound},
		"another amount": {99, map[string]string{"tenant_id": "acme", "operation_id": "op-1"},
			operations.ErrorContradictory},
		"ours": {100, map[string]string{"tenant_id": "acme", "operation_id": "op-1"}, ""},
	} {
		f, c := start(t)
		r := request(f.Pay("eur", 1000), 100, "EUR")
		f.Dashboard(r.PaymentRef, test.amount, test.metadata)
		if got := tell(c.Lookup(t.Context(), r)); got.Kind != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f, c := start(t)
	r := request(f.Pay("eur", 1000), 100, "EUR")
	for range 2 {
		f.Dashboard(r.PaymentRef, 100, map[string]string{"tenant_id": "acme", "operation_id": "op-1"})
	}
	if got := tell(c.Lookup(t.Context(), r)); got.Kind != operations.ErrorContradictory {
		t.Errorf("two of ours: %+v", got)
	}
}

func TestLookup_WhereTheListingLags_ReadsTheRefundWhoseNameIsKnown(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	f.Set("succeeded", time.Hour, 100)
	r := request(f.Pay("eur", 1000), 100, "EUR")
	made, err := c.Refund(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := tell(c.Lookup(t.Context(), r)); got.Kind != operations.ErrorNotFound {
		t.Errorf("without its name: %+v", got)
	}
	r.ProviderRefundID = made.ProviderRefundID
	if got := tell(c.Lookup(t.Context(), r)); got.Outcome != operations.OutcomeSucceeded {
		t.Errorf("by its name: %+v", got)
	}
	r.ProviderRefundID = "re_none"
	if got := tell(c.Lookup(t.Context(), r)); got.Kind != operations.ErrorNotFound {
		t.Errorf("by a name that Stripe does not know: %+v", got)
	}
}

// A payment that Stripe does not know is neither one without refunds nor one that takes none: the key may be of another
// account or mode by now.
func TestLookup_AnUnknownPayment_IsUnknown(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	live := f.Add(stripefake.Payment{Currency: "eur", Amount: 100, Captured: 100, Live: true})
	foreign := f.Add(stripefake.Payment{Currency: "eur", Amount: 100, Captured: 100, Account: "acct_2"})
	for _, ref := range []string{"pi_none", "ch_none", live, foreign} {
		want := told{Kind: operations.ErrorUnknown, Reason: operations.ReasonUnknownPayment}
		if got := tell(c.Lookup(t.Context(), request(ref, 100, "EUR"))); got != want {
			t.Errorf("%s: %+v", ref, got)
		}
		r := request(ref, 100, "EUR")
		r.Key = "acme:" + ref
		if got := tell(c.Refund(t.Context(), r)); got != want {
			t.Errorf("refund of %s: %+v", ref, got)
		}
	}
}

func TestAccount_IsNamedOnEveryRequest(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	r := request(f.Add(stripefake.Payment{Currency: "eur", Amount: 100, Captured: 100, Account: "acct_7"}), 100, "EUR")
	r.Account = "acct_7"
	if got := tell(c.Refund(t.Context(), r)); got.Outcome != operations.OutcomeSucceeded {
		t.Errorf("refund: %+v", got)
	}
	if got := tell(c.Lookup(t.Context(), r)); got.Outcome != operations.OutcomeSucceeded {
		t.Errorf("look-up: %+v", got)
	}
	if p, err := c.Payment(t.Context(), r.PaymentRef, "acct_7"); err != nil || p.CapturedCents != 100 {
		t.Errorf("payment: %+v, %v", p, err)
	}
	r.Account = "acct_8"
	want := told{Kind: operations.ErrorUnknown, Reason: operations.ReasonUnknownAccount}
	if got := tell(c.Refund(t.Context(), r)); got != want {
		t.Errorf("an account that our key has no access to: %+v", got)
	}
}

func TestAmounts_AreCountedAsStripeCountsThem(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		currency    string
		ours, their int64
	}{
		{"USD", 1234, 1234}, {"JPY", 5800, 5800}, {"KRW", 7, 7}, {"KWD", 1230, 1230}, {"BHD", 10, 10},
		{"HUF", 1055, 1055}, {"TWD", 1055, 1055}, {"ISK", 5, 500}, {"UGX", 5, 500}, {"MGA", 500, 5}, {"MGA",
			12300, 123},
	} {
		f, c := start(t)
		r := request(f.Pay(strings.ToLower(test.currency), 1_000_000), test.ours, test.currency)
		if got := tell(c.Refund(t.Context(), r)); got.Outcome != operations.OutcomeSucceeded {
			t.Errorf("%s %d: %+v", test.currency, test.ours, got)
			continue
		}
		if made := f.Refunds()[0].Amount; made != test.their {
			t.Errorf("%s %d: Stripe gave back %d, want %d", test.currency, test.ours, made, test.their)
		}
		if got := tell(c.Lookup(t.Context(), r)); got.Outcome != operations.OutcomeSucceeded {
			t.Errorf("%s %d looked up: %+v", test.currency, test.ours, got)
		}
	}
	f, c := start(t)
	r := request(f.Pay("ugx", 10_000), 5, "UGX")
	f.Dashboard(r.PaymentRef, 550, map[string]string{"tenant_id": "acme", "operation_id": "op-1"})
	if got := tell(c.Lookup(t.Context(), r)); got.Kind != operations.ErrorContradictory {
		t.Errorf("five and a half shillings are no five: %+v", got)
	}
	half := request(f.Pay("mga", 10_000), 150, "MGA")
	if got := tell(c.Refund(t.Context(), half)); got.Code != operations.DeclineDeclined {
		t.Errorf("one and a half ariary: %+v", got)
	}
	huge := request(f.Pay("isk", 10_000), 1<<53-1, "ISK")
	if got := tell(c.Refund(t.Context(), huge)); got.Outcome != operations.OutcomeDeclined {
		t.Errorf("more than there is: %+v", got)
	}
}

func TestPayment_IsWhatWasCaptured(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	whole := f.Pay("eur", 10000)
	part := f.Add(stripefake.Payment{Currency: "ISK", Amount: 900, Captured: 600, Charge: "ch_part"})
	live := f.Add(stripefake.Payment{Currency: "eur", Amount: 100, Captured: 100, Live: true})
	f.Change(part, func(p *stripefake.Payment) { p.Currency = "isk" })
	for ref, want := range map[string]operations.Payment{
		whole: {Currency: "EUR", CapturedCents: 10000}, part: {Currency: "ISK",
			CapturedCents: 6}, "ch_part": {Currency: "ISK", CapturedCents: 6},
	} {
		if got, err := c.Payment(t.Context(), ref, ""); err != nil || got != want {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
	}
	for _, ref := range []string{"pi_none", "ch_none", live} {
		_, err := c.Payment(t.Context(), ref, "")
		if got := tell(operations.ProviderResult{}, err); got.Kind != operations.ErrorNotFound {
			t.Errorf("%s: %+v", ref, got)
		}
	}
	if got, err := client(t, f.URL, "rk_live_fake").Payment(t.Context(), live, ""); err != nil ||
		got.CapturedCents != 100 {
		t.Errorf("with the live key: %+v, %v", got, err)
	}
	f.Fail(stripefake.Fault{On: "GET", Do: "status_before", Status: 500, Times: 1})
	_, err := c.Payment(t.Context(), whole, "")
	if got := tell(operations.ProviderResult{}, err); got.Kind != operations.ErrorUnknown {
		t.Errorf("500: %+v", got)
	}
}

func TestAnswers_BeyondTheirBounds_AreUnknown(t *testing.T) {
	t.Parallel()
	long := `{"id":"re_1","description":"` + strings.Repeat("x", 2<<20) + `"}`
	c := said(t, 200, long)
	if got := tell(c.Refund(t.Context(), request("pi_1", 100, "EUR"))); got != (told{Kind: operations.ErrorUnknown}) {
		t.Errorf("refund: %+v", got)
	}
	if got := tell(c.Lookup(t.Context(), request("pi_1", 100, "EUR"))); got != (told{Kind: operations.ErrorUnknown}) {
		t.Errorf("look-up: %+v", got)
	}
}

func TestNewClient_TakesSecretKeysOfAModeAlone(t *testing.T) {
	t.Parallel()
	for key, good := range map[string]bool{
		"sk_live_x": true, "sk_test_x": true, "rk_live_x": true, "rk_test_x": true,
		"": false, "pk_live_x": false, "sk_live_": false, "sk_x": false, "whsec_x": false, "acct_1": false,
	} {
		if _, err := stripe.NewClient(stripe.Config{Key: stripe.Secret(key)}); (err == nil) != good {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, base := range []string{"api.stripe.com", "ftp://x", "https://", "https://u:p@x", "https://x?y"} {
		if _, err := stripe.NewClient(stripe.Config{Key: "sk_test_x", Base: base}); err == nil {
			t.Errorf("base %q is taken", base)
		}
	}
	if shown := fmt.Sprintf("%v %+v %#v %s", stripe.Secret("canary"), stripe.Config{Key: "canary"},
		stripe.Config{Key: "canary"}, stripe.Secret("canary")); strings.Contains(shown, "canary") {
		t.Errorf("a secret is shown: %s", shown)
	}
}

// No word of the machine that asks goes along, and the SDK sends no telemetry.
func TestRequests_SayNothingOfTheMachine(t *testing.T) {
	t.Parallel()
	heads := make(chan http.Header, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heads <- r.Header
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(s.Close)
	c := client(t, s.URL, "sk_test_x")
	for range 2 {
		_, _ = c.Refund(t.Context(), request("pi_1", 1, "EUR"))
		_, _ = c.Lookup(t.Context(), request("pi_1", 1, "EUR"))
	}
	close(heads)
	for h := range heads {
		if h.Get("X-Stripe-Client-Telemetry") != "" || strings.Contains(h.Get("X-Stripe-Client-User-Agent"), "uname") {
			t.Errorf("it says %v", h)
		}
	}
}
