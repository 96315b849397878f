package stripe

import (
	"context"
	"errors"
	"net/http"
	"strings"

	stripe "github.com/stripe/stripe-go/v82"

	"refundd/operations"
)

// Why a payment is none.
var (
	errOtherMode    = errors.New("the payment is of test mode and the key is not, or the other way round")
	errOtherPayment = errors.New("the answer is another payment's")
)

// payment is what intents and charges have in common.
type payment struct {
	id       string
	live     bool
	currency stripe.Currency
	captured int64
}

// Payment reads a captured payment, by the name of its intent or of its charge. Of an intent that was captured in part,
// or not yet, that part is what was received. See operations.PaymentReader.
func (c *Client) Payment(ctx context.Context, ref, account string) (operations.Payment, error) {
	var e exchange
	p, err := c.readPayment(e.note(ctx), ref, account)
	switch {
	case err != nil && codeOf(err) == stripe.ErrorCodeResourceMissing && e.status == http.StatusNotFound:
		return operations.Payment{}, e.error(operations.ErrorNotFound, err)
	case err != nil:
		return operations.Payment{}, e.failed(err)
	case e.status != http.StatusOK, p.id != ref:
		return operations.Payment{}, e.error(operations.ErrorUnknown, errOtherPayment)
	case p.live != c.live:
		return operations.Payment{}, e.error(operations.ErrorNotFound, errOtherMode)
	}
	currency := strings.ToUpper(string(p.currency))
	return operations.Payment{Currency: currency, CapturedCents: fromStripe(p.captured, currency)}, nil
}

func (c *Client) readPayment(ctx context.Context, ref, account string) (payment, error) {
	if isCharge(ref) {
		x, err := c.api.V1Charges.Retrieve(ctx, ref, &stripe.ChargeRetrieveParams{Params: of(account)})
		if err != nil {
			return payment{}, err
		}
		return payment{x.ID, x.Livemode, x.Currency, x.AmountCaptured}, nil
	}
	x, err := c.api.V1PaymentIntents.Retrieve(ctx, ref, &stripe.PaymentIntentRetrieveParams{Params: of(account)})
	if err != nil {
		return payment{}, err
	}
	return payment{x.ID, x.Livemode, x.Currency, x.AmountReceived}, nil
}
