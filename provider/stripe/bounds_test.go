package stripe_test

import (
	"testing"

	"refundd/operations"
	"refundd/test/stripefake"
)

// A payment that was given back in more parts than are read may have ours among the rest.
func TestLookup_OfMoreRefundsThanAreRead_IsUnknown(t *testing.T) {
	t.Parallel()
	f, c := start(t)
	f.Set("succeeded", 0, 1) // a page of one each
	payment := f.Add(stripefake.Payment{Currency: "eur", Amount: 10000, Captured: 10000})
	for parts := range 51 {
		f.Dashboard(payment, 1, nil)
		want := operations.ErrorNotFound
		switch parts + 1 {
		case 51:
			want = operations.ErrorUnknown
		case 50:
		default:
			continue
		}
		if got := tell(c.Lookup(t.Context(), request(payment, 100, "EUR"))); got.Kind != want {
			t.Errorf("of %d: %+v, want %s", parts+1, got, want)
		}
	}
}

// What was read of another payment says nothing of this one.
func TestPayment_OfAnotherName_IsUnknown(t *testing.T) {
	t.Parallel()
	c := said(t, 200, `{"id":"pi_2","object":"payment_intent","currency":"eur","amount":100,"amount_received":100,"livemode":false}`)
	_, err := c.Payment(t.Context(), "pi_1", "")
	if got := tell(operations.ProviderResult{}, err); got.Kind != operations.ErrorUnknown {
		t.Errorf("%+v", got)
	}
}
