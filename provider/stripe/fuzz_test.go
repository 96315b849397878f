package stripe_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"refundd/operations"
	"refundd/provider/stripe"
	"refundd/test/stripefake"
)

// No header that somebody makes up is a signature.
func FuzzEvents_Signature(f *testing.F) {
	events, err := stripe.NewEvents("sk_test_x", "whsec_known")
	if err != nil {
		f.Fatal(err)
	}
	now, body := time.Unix(1_800_000_000, 0), []byte(`{"type":"refund.updated"}`)
	f.Add(stripefake.Signature(body, now, "whsec_other"))
	f.Add("t=1800000000,v1=,v0=00,v1")
	f.Fuzz(func(t *testing.T, header string) {
		if _, err := events.Read(body, header, now); !errors.Is(err, operations.ErrEventUnsigned) {
			t.Errorf("%q: %v", header, err)
		}
	})
}

// A signed event, whatever stands in it, is malformed or a hint of where to look; another kind's is a hint of nothing.
func FuzzEvents_Body(f *testing.F) {
	events, err := stripe.NewEvents("sk_test_x", "whsec_known")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		`{"type":"refund.updated","livemode":false,"data":{"object":{"id":"re_1","object":"refund","metadata":{"tenant_id":"a"}}}}`,
		`{"type":"charge.refunded","data":{"object":{"id":"ch_1","object":"charge","payment_intent":{"id":"pi_1"},"refunds":{"data":[{"id":"re_1"}]}}}}`,
		`{"type":"refund.failed","data":{"object":{"object":"charge","payment_intent":null}}}`, `[]`, `{"type":1}`,
	} {
		f.Add([]byte(seed))
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, body []byte) {
		hint, err := events.Read(body, stripefake.Signature(body, now, "whsec_known"), now)
		if err != nil && !errors.Is(err, operations.ErrEventMalformed) {
			t.Fatal(err)
		}
		if err != nil || len(hint.Refunds)+len(hint.PaymentRefs) == 0 {
			return
		}
		var said map[string]any
		if err := json.Unmarshal(body, &said); err != nil {
			t.Fatalf("%q is a hint, and encoding/json says %v", body, err)
		}
		if kind, _ := said["type"].(string); !strings.HasPrefix(kind, "refund.") &&
			!strings.HasPrefix(kind, "charge.refund") || said["livemode"] == true {
			t.Errorf("%q is taken for a hint of %+v", body, hint)
		}
	})
}
