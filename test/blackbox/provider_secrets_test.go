package blackbox

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"refundd/test/harness"
)

// A provider's words are for engineers who ask the provider: the client looks for the canary in every answer; here also
// logs, metrics, rows and commands are searched, after every way in which the provider can say something.
func TestA50_AProvidersWords_NeverComeOut(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-breaker-open", "1ms", "--provider-timeout", "1s")
	words := harness.Fields{"message": harness.Canary + " card 4242 of ada@example.com", "code": harness.Canary}
	faults := []harness.Fields{
		{"mode": "decline"}, {"mode": "decline", "code": "declined"}, {"mode": "fail_later",
			"delay_ms": 1}, {"mode": "refuse"},
		{"mode": "pending", "delay_ms": 1}, {"mode": "error_before", "status": 401}, {"mode": "error_before",
			"status": 403},
	}
	for _, status := range []int{400, 402, 404, 409, 422, 429, 500, 503} {
		faults = append(faults, harness.Fields{"mode": "error_before", "status": status},
			harness.Fields{"mode": "error_after", "status": status})
	}
	for i, fault := range faults {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("L", i)
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
		p.provider.Fault(fault["mode"].(string), words, fault, harness.Times(2))
		p.Refund(operation, order, 4000)
		p.Service.Due(t)
		p.Refund(operation, order, 4000)
		p.provider.Heal()
		time.Sleep(2 * time.Millisecond) // the breaker closes
	}
	p.provider.Fault("lookup_down", words)
	p.provider.Fault("error_before", words)
	var output string
	exercise := func() {
		p.Service.Due(t)
		for i := range faults {
			operation := fmt.Sprint("K", i)
			p.timeline(operation)
			p.read(operation)
			p.lookUp(operation)
			p.resolve(operation, "failed")
		}
		for _, args := range [][]string{append([]string{"reconcile"}, p.Service.Flags...),
			append([]string{"reconcile", "--dry-run"}, p.Service.Flags...),
			{"show", "K0", "--simulator-url", p.provider.URL}, {"show", "K9", "--json", "--simulator-url",
				p.provider.URL}, {"audit"}} {
			r := harness.Command(t, p.Service.DB.ServiceURL, args...)
			output += r.Stdout + r.Stderr
		}
	}
	exercise()
	p.Exec(`UPDATE refund_operations SET created_at = created_at - interval '100 hours'`)
	exercise()
	p.provider.Heal()
	p.provider.Fault("decline", words)
	exercise()
	for _, path := range []string{"/v1/refunds?limit=100", "/v1/refunds?state=failed", harness.OrderPath("L0")} {
		want(t, p.Get(path), fmt.Sprint(http.StatusOK))
	}
	for what, text := range map[string]string{"the log": p.Service.Servers[0].Logs.Text(),
		"metrics": p.Service.Servers[0].MetricsText(t),
		"rows":    p.Rows(), "commands": output} {
		if leak := harness.LeakIn(text); leak != "" {
			t.Errorf("%s: a provider's words got out: %s", what, leak)
		}
	}
}
