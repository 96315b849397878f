package stripe

import (
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stripe/stripe-go/v82/webhook"

	"refundd/operations"
)

// Tolerance is how old a signature may be, and how far ahead of our clock: Stripe signs each delivery anew.
const Tolerance = 5 * time.Minute

// Events reads what Stripe announces at an endpoint of ours.
type Events struct {
	secrets []Secret // whsec_…, of the endpoint: two while it is being rotated
	live    bool
}

// NewEvents returns the reader of events that are signed with one of secrets, for the mode of key.
func NewEvents(key Secret, secrets ...Secret) (*Events, error) {
	live, err := isLive(key)
	if err != nil {
		return nil, err
	}
	for _, s := range secrets {
		if s == "" {
			return nil, errors.New("a webhook secret is empty")
		}
	}
	if len(secrets) == 0 {
		return nil, errors.New("no webhook secret")
	}
	return &Events{secrets, live}, nil
}

// event is what is read of an event: where to look. All else that it says may be old by now.
type event struct {
	Type     string `json:"type"`
	Account  string `json:"account"`
	Livemode bool   `json:"livemode"`
	Data     struct {
		Object struct {
			named
			Object        string         `json:"object"`
			PaymentIntent jsontext.Value `json:"payment_intent"`
			Refunds       struct {
				Data []named `json:"data"`
			} `json:"refunds"`
		} `json:"object"`
	} `json:"data"`
}

// named is a refund's name and whose it is.
type named struct {
	ID       string            `json:"id"`
	Metadata map[string]string `json:"metadata"`
}

func (n named) hinted() operations.HintedRefund {
	return operations.HintedRefund{
		ProviderRefundID: n.ID,
		TenantID:         n.Metadata[operations.MetadataTenant], OperationID: n.Metadata[operations.MetadataOperation],
	}
}

// Read takes a delivery's body exactly as it came, and its Stripe-Signature. Its error is operations.ErrEventUnsigned
// or operations.ErrEventMalformed. An event of another kind or mode is a hint of nothing.
func (e *Events) Read(body []byte, signature string, now time.Time) (operations.Hint, error) {
	if !e.signed(body, signature, now) {
		return operations.Hint{}, operations.ErrEventUnsigned
	}
	var v event
	if err := json.Unmarshal(body, &v); err != nil {
		return operations.Hint{}, fmt.Errorf("%w: %w", operations.ErrEventMalformed, err)
	}
	hint := operations.Hint{Account: v.Account}
	object := v.Data.Object
	switch {
	case v.Livemode != e.live, !strings.HasPrefix(v.Type, "refund.") && !strings.HasPrefix(v.Type, "charge.refund"):
		return operations.Hint{}, nil
	case object.Object == "refund":
		hint.Refunds = []operations.HintedRefund{object.hinted()}
	case object.Object == "charge" && len(object.Refunds.Data) > 0: // as older versions of the API tell it
		for _, x := range object.Refunds.Data {
			hint.Refunds = append(hint.Refunds, x.hinted())
		}
	case object.Object == "charge":
		hint.PaymentRefs = []string{object.ID, idOf(object.PaymentIntent)}
	}
	return hint, nil
}

// idOf is the name of what may be expanded.
func idOf(v jsontext.Value) string {
	var id string
	if json.Unmarshal(v, &id) == nil {
		return id
	}
	var whole named
	_ = json.Unmarshal(v, &whole) // what has no name is not looked for
	return whole.ID
}

// signed tells whether the signature is of this very body, in time, with one of our secrets
// (https://docs.stripe.com/webhooks#verify-manually): t=1492774577,v1=5257a869…,v1=…
func (e *Events) signed(body []byte, header string, now time.Time) bool {
	var at time.Time
	var given [][]byte
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			seconds, err := strconv.ParseInt(value, 10, 64)
			if err != nil || !at.IsZero() {
				return false
			}
			at = time.Unix(seconds, 0)
		case "v1":
			if mac, err := hex.DecodeString(value); err == nil {
				given = append(given, mac)
			}
		}
	}
	if at.IsZero() || now.Sub(at).Abs() > Tolerance {
		return false
	}
	for _, secret := range e.secrets {
		expected := webhook.ComputeSignature(at, body, string(secret))
		for _, mac := range given {
			if hmac.Equal(mac, expected) {
				return true
			}
		}
	}
	return false
}
