package stripefake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

func (r *Refund) json() []byte { return encoded(r.object()) }

func (r *Refund) object() map[string]any {
	o := map[string]any{
		"id": r.ID, "object": "refund", "amount": r.Amount, "currency": r.Currency, "status": r.Status, "charge": r.Charge,
		"payment_intent": r.Payment, "metadata": r.Metadata, "created": r.Created.Unix(), "reason": nil,
	}
	if r.Reason != "" {
		o["failure_reason"] = r.Reason
	}
	return o
}

func (p *Payment) intent() []byte {
	return encoded(map[string]any{
		"id": p.ID, "object": "payment_intent", "amount": p.Amount, "amount_received": p.Captured, "currency": p.Currency,
		"livemode": p.Live, "latest_charge": p.Charge, "status": "succeeded",
	})
}

func (p *Payment) charge() []byte { return encoded(p.chargeObject(nil)) }

func (p *Payment) chargeObject(refunds []map[string]any) map[string]any {
	o := map[string]any{
		"id": p.Charge, "object": "charge", "amount": p.Amount, "amount_captured": p.Captured, "captured": p.Captured > 0,
		"currency": p.Currency, "livemode": p.Live, "payment_intent": p.ID, "disputed": p.Disputed, "metadata": map[string]string{},
	}
	if refunds != nil {
		o["refunds"] = map[string]any{"object": "list", "has_more": false, "data": refunds}
	}
	return o
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // all that there is can be
	}
	return b
}

// Event is an event about a refund, as it would be delivered: of a type such as refund.updated, or charge.refunded,
// whose object is the charge, with its refunds where the endpoint's version of the API is an old one.
func (f *Fake) Event(kind, refund string, withRefunds bool) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	for _, r := range f.refunds {
		if r.ID != refund {
			continue
		}
		p, object := f.payments[r.Payment], r.object()
		switch {
		case kind == "charge.refunded" && withRefunds:
			object = p.chargeObject([]map[string]any{object})
		case kind == "charge.refunded":
			object = p.chargeObject(nil)
		}
		e := map[string]any{
			"id": fmt.Sprintf("evt_%08d",
				f.seq), "object": "event", "type": kind, "livemode": p.Live, "api_version": "2025-08-27.basil",
			"created": f.now().Unix(), "pending_webhooks": 1, "data": map[string]any{"object": object},
		}
		if r.Account != "" {
			e["account"] = r.Account
		}
		return encoded(e)
	}
	panic("no refund " + refund)
}

// Signature is the header of a delivery at a time, signed with each of secrets.
func Signature(body []byte, at time.Time, secrets ...string) string {
	header := fmt.Sprintf("t=%d", at.Unix())
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
		header += ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	return header
}

// Deliver posts an event to a service, and answers the status that it got; 0 where there was no answer.
func Deliver(service string, body []byte, secret string) int {
	//nolint:noctx // a test's
	request, err := http.NewRequest(http.MethodPost, service+"/v1/webhooks/stripe", strings.NewReader(string(body)))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("Stripe-Signature", Signature(body, time.Now(), secret))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}
