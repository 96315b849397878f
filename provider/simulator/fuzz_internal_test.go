package simulator

import (
	"errors"
	"io"
	"strings"
	"testing"

	"refundd/operations"
)

// Whatever a provider answers, a refund is only taken for ours, paid, where the answer bears our marks; all else is an
// error of one of the kinds.
func FuzzAnswers(f *testing.F) {
	r := operations.ProviderRequest{TenantID: "acme", OperationID: "op-1", Key: "acme:op-1", PaymentRef: "pay-1",
		AmountCents: 4999, Currency: "EUR"}
	ours := `{"refund_id":"re_1","idempotency_key":"acme:op-1","payment_ref":"pay-1","amount_cents":4999,"currency":"EUR",` +
		`"metadata":{"tenant_id":"acme","operation_id":"op-1"},"status":"succeeded","created_at":"2026-01-02T03:04:05Z"}`
	f.Add(201, ours)
	f.Add(200, `{"refunds":[`+ours+`]}`)
	f.Add(200, `{"refunds":[`+ours+`,`+strings.Replace(ours, "4999", "4998", 1)+`]}`)
	f.Add(402, `{"code":"card_declined"}`)
	f.Add(200, `{"refunds":[`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		for name, read := range map[string]func(exchanged) (operations.ProviderResult, error){
			"refund": func(e exchanged) (operations.ProviderResult, error) { return e.refund(r) },
			"lookup": func(e exchanged) (operations.ProviderResult, error) { return e.lookup(r) },
		} {
			got, err := read(exchanged{status: status, body: io.NopCloser(strings.NewReader(body))})
			if err != nil {
				if said, ok := errors.AsType[*operations.ProviderError](err); !ok || said.Kind == "" {
					t.Errorf("%s of %d %q: %v", name, status, body, err)
				}
				continue
			}
			if declined := got.Outcome == operations.OutcomeDeclined; got.Outcome == "" || !declined &&
				got.ProviderRefundID == "" ||
				got.Outcome == operations.OutcomeSucceeded && !strings.Contains(body, "4999") {
				t.Errorf("%s of %d %q is %+v", name, status, body, got)
			}
		}
	})
}
