package stripe_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
	"refundd/provider/stripe"
	"refundd/test/stripefake"
)

func reader(t *testing.T, key string, secrets ...stripe.Secret) *stripe.Events {
	t.Helper()
	e, err := stripe.NewEvents(stripe.Secret(key), secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEvents_TakeWhatIsSignedNowWithOneOfTheSecrets(t *testing.T) {
	t.Parallel()
	now := time.Now()
	body := []byte(`{"type":"refund.updated","livemode":false,"data":{"object":{"id":"re_1","object":"refund","metadata":{}}}}`)
	good := stripefake.Signature(body, now, "whsec_new")
	for name, test := range map[string]struct {
		header string
		body   []byte
		good   bool
	}{
		"signed":                 {good, body, true},
		"signed with the older":  {stripefake.Signature(body, now, "whsec_old"), body, true},
		"signed with several":    {stripefake.Signature(body, now, "whsec_x", "whsec_old"), body, true},
		"of another scheme too":  {good + ",v0=00", body, true},
		"4 min 50 s ago":         {stripefake.Signature(body, now.Add(-290*time.Second), "whsec_new"), body, true},
		"of another secret":      {stripefake.Signature(body, now, "whsec_x"), body, false},
		"of another body":        {good, []byte(strings.Replace(string(body), "re_1", "re_2", 1)), false},
		"of a body with space":   {good, append([]byte(" "), body...), false},
		"yesterday's":            {stripefake.Signature(body, now.Add(-24*time.Hour), "whsec_new"), body, false},
		"5 min 10 s ago":         {stripefake.Signature(body, now.Add(-310*time.Second), "whsec_new"), body, false},
		"of 5 min 10 s from now": {stripefake.Signature(body, now.Add(310*time.Second), "whsec_new"), body, false},
		"none":                   {"", body, false},
		"without a time":         {strings.TrimPrefix(good, strings.SplitAfter(good, ",")[0]), body, false},
		"with two times":         {"t=1," + good, body, false},
		"of the test scheme":     {strings.Replace(good, "v1=", "v0=", 1), body, false},
		"cut":                    {good[:len(good)-2], body, false},
		"no hex":                 {"t=1,v1=zz", body, false},
		"an absurd time":         {"t=99999999999999999999,v1=00", body, false},
	} {
		_, err := reader(t, "sk_test_x", "whsec_new", "whsec_old").Read(test.body, test.header, now)
		if (err == nil) != test.good || err != nil && !errors.Is(err, operations.ErrEventUnsigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEvents_AreHintsOfWhereToLook(t *testing.T) {
	t.Parallel()
	ours := operations.HintedRefund{ProviderRefundID: "re_1", TenantID: "acme", OperationID: "op-1"}
	const refund = `{"id":"re_1","object":"refund","status":"succeeded","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`
	const charge = `{"id":"ch_1","object":"charge","metadata":null,"payment_intent":"pi_1"`
	for _, test := range []struct {
		kind, object, more string
		want               operations.Hint
	}{
		{"refund.created", refund, "", operations.Hint{Refunds: []operations.HintedRefund{ours}}},
		{"refund.updated", refund, "", operations.Hint{Refunds: []operations.HintedRefund{ours}}},
		{"refund.failed", refund, `,"account":"acct_1"`,
			operations.Hint{Account: "acct_1", Refunds: []operations.HintedRefund{ours}}},
		{"charge.refund.updated", refund, "", operations.Hint{Refunds: []operations.HintedRefund{ours}}},
		{"charge.refunded", charge + `,"refunds":{"data":[` + refund + `]}}`, "",
			operations.Hint{Refunds: []operations.HintedRefund{ours}}},
		{"charge.refunded", charge + `}`, "", operations.Hint{PaymentRefs: []string{"ch_1", "pi_1"}}},
		{"charge.refunded", charge + `,"refunds":null}`, "", operations.Hint{PaymentRefs: []string{"ch_1", "pi_1"}}},
		{"charge.refunded", `{"id":"ch_1","object":"charge","payment_intent":{"id":"pi_1"}}`, "",
			operations.Hint{PaymentRefs: []string{"ch_1", "pi_1"}}},
		{"refund.updated", `{"id":"re_9","object":"refund","metadata":{}}`, "",
			operations.Hint{Refunds: []operations.HintedRefund{{ProviderRefundID: "re_9"}}}},
		{"payment_intent.succeeded", `{"id":"pi_1","object":"payment_intent"}`, "", operations.Hint{}},
		{"charge.succeeded", charge + `}`, "", operations.Hint{}},
		{"refund.updated", `{"id":"x","object":"something"}`, "", operations.Hint{}},
	} {
		body := []byte(`{"object":"event","type":"` + test.kind + `","livemode":false` + test.more +
			`,"data":{"object":` + test.object + `}}`)
		got, err := reader(t, "sk_test_x", "s").Read(body, stripefake.Signature(body, time.Now(), "s"), time.Now())
		if d := cmp.Diff(test.want, got); d != "" || err != nil {
			t.Errorf("%s %s: %v %s", test.kind, test.object, err, d)
		}
		got, err = reader(t, "rk_live_x", "s").Read(body, stripefake.Signature(body, time.Now(), "s"), time.Now())
		if d := cmp.Diff(operations.Hint{}, got); d != "" || err != nil {
			t.Errorf("%s of test mode, read with a live key: %v %s", test.kind, err, d)
		}
	}
	for _, body := range []string{``, `[]`, `{"type":`, `{"type":1}`, `{"data":{"object":[]}}`} {
		_, err := reader(t, "sk_test_x", "s").Read([]byte(body), stripefake.Signature([]byte(body), time.Now(), "s"),
			time.Now())
		if !errors.Is(err, operations.ErrEventMalformed) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestNewEvents_NeedsASecret(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]stripe.Secret{nil, {""}, {"a", ""}} {
		if _, err := stripe.NewEvents("sk_test_x", secrets...); err == nil {
			t.Errorf("%d secrets are taken", len(secrets))
		}
	}
}
