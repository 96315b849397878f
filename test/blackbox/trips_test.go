package blackbox

import (
	"fmt"
	"testing"

	"refundd/test/harness"
)

// What a refund costs in round trips to Postgres once everything is warm, authentication included, where each
// transition is told: four at a provider (tx 1, the gate in front of the call, two of tx 2), one without.
func TestRoundTrips_OfARefundThatIsTold(t *testing.T) {
	t.Parallel()
	s := harness.NewPaying(t)
	f, url := harness.NewFirewall(t, s.DB.ServiceURL)
	s.DB.ServiceURL = url
	s.AddServer(t, "--webhooks=false", "--webhook-allow-private") // another process would deliver
	tenant := s.OpenTenant(t)
	tenant.Order("L", 1_000_000)
	tenant.Pay(harness.Payment{OrderID: "P", Cents: 1_000_000})
	want(t, tenant.Client().Post("/v1/webhook-endpoints", harness.Fields{"url": "http://127.0.0.1:1"}), "201")
	const refunds = 30
	for _, c := range []struct {
		order string
		most  int
	}{{"P", 4}, {"L", 1}} {
		least := 1000
		for i := range refunds {
			before := f.RoundTrips()
			want(t, tenant.Client().Refund(fmt.Sprint(c.order, "-", i), c.order, 1), "processed")
			least = min(least, f.RoundTrips()-before) // others are the process's own, and those that prepare statements
		}
		if least < 1 || least > c.most {
			t.Errorf("order %s: a refund takes %d round trips, want at most %d", c.order, least, c.most)
		}
		t.Logf("order %s: %d", c.order, least)
	}
	var told int
	err := s.DB.Owner.QueryRow(t.Context(), `SELECT count(*) FROM webhook_events WHERE tenant_id = $1
		AND type = 'refund.succeeded'`,
		tenant.ID).Scan(&told)
	if err != nil || told != 2*refunds {
		t.Errorf("%d transitions are told, want %d, %v", told, 2*refunds, err)
	}
}
