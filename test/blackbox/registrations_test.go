package blackbox

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"refundd/test/harness"
)

// A83: what is said twelve times at once, on two servers, is new once and known eleven times. The order's own key and
// its payment are two constraints, and whoever loses at the second one first is no stranger who takes the payment.
func TestA83_TwelveIdenticalRegistrationsAtOnce_AreOneAndNeverRefused(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	for round := range 120 {
		fields := harness.Fields{"currency": "EUR", "captured_cents": 5000, "provider": "simulator",
			"provider_payment_ref": fmt.Sprintf("%s-%d", tenant.ID, round)}
		atOnce(t, tenant, 12, harness.OrderPath(fmt.Sprintf("P-%d", round)), func(int) harness.Fields { return fields },
			map[int]int{http.StatusCreated: 1, http.StatusOK: 11})
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func TestA83_OtherThingsSaidAtOnce(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	tenant.Load([]string{"P"}, 5000)
	for round := range 30 {
		key := fmt.Sprintf("K-%d", round)
		// Two orders ask for one payment: one order has it, the others are refused.
		for i, a := range answersAtOnce(tenant, 8, func(i int, c harness.Client) harness.Answer {
			return c.Put(harness.OrderPath(fmt.Sprintf("Q-%d-%d", round, i%2)),
				harness.Fields{"currency": "EUR", "captured_cents": 1,
					"provider": "stripe", "provider_payment_ref": fmt.Sprintf("%s-q-%d", tenant.ID, round)})
		}) {
			if says := a.Says(); a.Status >= 300 && says != "payment_already_registered" {
				t.Fatalf("round %d: order %d is answered %d %s", round, i%2, a.Status, says)
			}
		}
		// One approval.
		approval := harness.Fields{"case_id": "c", "order_id": "P", "amount_cents": 1, "approved_by": "ada"}
		atOnce(t, tenant, 8, harness.AuthorizationPath(key), func(int) harness.Fields { return approval },
			map[int]int{http.StatusCreated: 1, http.StatusOK: 7})
		// A capture that rises: the highest stands, and whoever says less than what stands is told that it never
		// shrinks.
		raised := answersAtOnce(tenant, 8, func(i int, c harness.Client) harness.Answer {
			return c.Put(harness.OrderPath("P"), harness.Fields{"captured_cents": 5000 + 10*round + i})
		})
		for i, a := range raised {
			if says := a.Says(); a.Status != http.StatusOK && says != "order_immutable" || i == len(raised)-1 &&
				a.Status != http.StatusOK {
				t.Fatalf("round %d: the capture raised by %d is answered %d %s", round, i, a.Status, says)
			}
		}
		// A customer who is replaced, and an approval that is withdrawn.
		for i, a := range answersAtOnce(tenant, 8, func(i int, c harness.Client) harness.Answer {
			if i%2 == 0 {
				return c.Put(harness.OrderPath("P"), harness.Fields{"customer": harness.Fields{"id": fmt.Sprint(i)}})
			}
			return c.Post(harness.AuthorizationPath(key)+"/revoke", harness.Fields{"revoked_by": "ada"})
		}) {
			if a.Status != http.StatusOK {
				t.Fatalf("round %d: %d is answered %d %s", round, i, a.Status, a.Says())
			}
		}
	}
}

// answersAtOnce asks n times at once, taking turns with the servers.
func answersAtOnce(tenant *harness.Tenant, n int, ask func(i int, c harness.Client) harness.Answer) []harness.Answer {
	answers := make([]harness.Answer, n)
	together(n, func(i int) { answers[i] = ask(i, tenant.At(i)) })
	return answers
}

// atOnce puts to one path n times at once and counts the answers by status.
func atOnce(t *testing.T, tenant *harness.Tenant, n int, path string, fields func(i int) harness.Fields,
	want map[int]int) {
	t.Helper()
	got := make(map[int]int)
	var refused []string
	for _, a := range answersAtOnce(tenant, n,
		func(i int, c harness.Client) harness.Answer { return c.Put(path, fields(i)) }) {
		got[a.Status]++
		if a.Status >= 300 {
			refused = append(refused, a.Says())
		}
	}
	for status, count := range want {
		if got[status] != count {
			slices.Sort(refused)
			t.Errorf("%s: statuses %v %v, want %v", path, got, refused, want)
			return
		}
	}
}
