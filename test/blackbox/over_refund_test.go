package blackbox

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"refundd/test/harness"
)

// overRefunded leaves operation K, of 4000, paid at the provider though it had failed, after another refund took the
// money that was left of order P0: the provider paid 10001 of 10000.
func overRefunded(t *testing.T, byHuman bool) *paying {
	t.Helper()
	p := newPaying(t)
	failedThoughPaid(p, "K", "P0", byHuman)
	want(t, p.Refund("K-new", "P0", 6001), "processed")
	p.provider.Heal()
	return p
}

// excess fails the test where an order does not count so much as refunded, held, and paid beyond its capture, or the
// audit and the metric say otherwise.
func (p *paying) excess(order string, refunded, held, over int64) {
	p.t.Helper()
	p.balance(order, refunded, held)
	o := harness.Read[harness.Order](p.t, p.Get(harness.OrderPath(order)))
	if refundable := max(o.CapturedCents-refunded, 0); o.OverRefundedCents != over || o.RefundableCents != refundable {
		p.t.Errorf("order %s is over-refunded by %d and refundable %d, want %d and %d", order, o.OverRefundedCents,
			o.RefundableCents, over, refundable)
	}
	r := harness.Command(p.t, p.Service.DB.ServiceURL, "audit")
	named := strings.Contains(r.Stdout, "over_refund tenant="+p.ID+" order="+order+" operation=-:")
	if (r.ExitCode == 3) != (over > 0) || named != (over > 0) || r.ExitCode != 0 && r.ExitCode != 3 {
		p.t.Errorf("over-refunded by %d, and refundd audit exits %d: %s%s", over, r.ExitCode, r.Stdout, r.Stderr)
	}
	orders := map[bool]float64{true: 1}[over > 0]
	eventually(p.t, fmt.Sprint("the metric tells of ", orders, " orders"), func() bool {
		for _, s := range p.Service.Servers[0].Metrics(p.t) {
			if s.Name == "refundd_orders_over_refunded" {
				return s.Value == orders
			}
		}
		return false
	})
}

// What a provider is known to have paid beyond the capture is counted, stops every further refund, and is named until
// the capture covers it.
func TestA60_PaidBeyondTheCapture_IsCountedAndNamed(t *testing.T) {
	t.Parallel()
	for _, byHuman := range []bool{false, true} {
		t.Run(fmt.Sprint("by human ", byHuman), func(t *testing.T) {
			t.Parallel()
			p := overRefunded(t, byHuman)
			if byHuman {
				if s := p.reconcile(); s.ExitCode != 3 {
					t.Errorf("the run that finds it answers %+v", s)
				}
			}
			for range 2 { // proof is not dropped, and does not settle it
				p.lookUp("K")
				p.stands("K", "needs_attention", "over_refund")
				p.chain("K", "hold", "release", "hold")
				p.excess("P0", 10001, 4000, 1)
			}
			p.refund("K", "P0", "operation_needs_attention")
			for _, cents := range []int64{1, 4000, 10000} {
				a := p.Refund(fmt.Sprint("K-more", cents), "P0", cents)
				want(t, a, "amount_exceeds_refundable")
				if says := harness.Read[harness.Problem](t, a); says.RefundableCents == nil ||
					*says.RefundableCents != 0 {
					t.Errorf("it says %s", a.Body)
				}
			}
			a := p.Put(harness.OrderPath("P0"), harness.Fields{"captured_cents": 10000})
			if o := harness.Read[harness.Order](t, a); o.OverRefundedCents != 1 || o.RefundableCents != 0 {
				t.Errorf("registered again: %s", a.Body)
			}

			p.resolvable()
			want(t, p.resolve("K", "failed"), "provider_disagrees")
			want(t, p.resolve("K", "failed", harness.Fields{"override": true}), "provider_disagrees")
			p.resolvable()
			want(t, p.resolve("K", "succeeded"), "200")
			p.stands("K", "succeeded", "")
			p.chain("K", "hold", "release", "hold", "settle")
			p.excess("P0", 10001, 0, 1)
			want(t, p.Refund("K-still", "P0", 1), "amount_exceeds_refundable")

			a = p.Put(harness.OrderPath("P0"), harness.Fields{"captured_cents": 10003})
			if o := harness.Read[harness.Order](t, a); o.OverRefundedCents != 0 || o.RefundableCents != 2 {
				t.Errorf("registered with a larger capture: %s", a.Body)
			}
			p.excess("P0", 10001, 0, 0)
			want(t, p.Refund("K-more3", "P0", 3), "amount_exceeds_refundable")
			want(t, p.Refund("K-more2", "P0", 2), "processed")
			p.refund("K", "P0", "already_processed")
			p.executed("K", "K-new", "K-more2")
			p.Service.Audit(t)
		})
	}
}

// Once the capture covers it, or it failed after all, nothing is beyond it any more, and proof settles it as it does
// any other.
func TestA60_TheExcessEnds_ProofSettlesIt(t *testing.T) {
	t.Parallel()
	p := overRefunded(t, true)
	p.reconcile()
	p.excess("P0", 10001, 4000, 1)
	want(t, p.Put(harness.OrderPath("P0"), harness.Fields{"captured_cents": 10001}), "200")
	p.excess("P0", 10001, 4000, 0)
	p.reconcile()
	p.stands("K", "succeeded", "")
	p.excess("P0", 10001, 0, 0)
	p.executed("K", "K-new")
}

// A person's "failed" gives the hold and the excess back; proof that comes later raises both again.
func TestA60_AHumansFailed_LowersTheExcess(t *testing.T) {
	t.Parallel()
	p := overRefunded(t, true)
	p.reconcile()
	p.provider.Fault("lookup_down")
	p.resolvable()
	a := p.resolve("K", "failed")
	if want(t, a, "provider_unavailable"); a.Status != http.StatusServiceUnavailable {
		t.Errorf("answered %d", a.Status)
	}
	p.resolvable()
	want(t, p.resolve("K", "failed", harness.Fields{"override": true}), "200")
	p.stands("K", "failed", "resolved_failed")
	p.excess("P0", 6001, 0, 0)
	p.provider.Heal()
	p.reconcile()
	p.stands("K", "needs_attention", "over_refund")
	p.chain("K", "hold", "release", "hold", "release", "hold")
	p.excess("P0", 10001, 4000, 1)
}

// Two operations of one order, of which the provider paid more than was captured: each waits for a person, and the
// excess is their order's. New refunds of it race with the proof: whatever comes first, the books count what was paid.
func TestA60_TwoOfOneOrder_AndRefundsThatRaceWithTheProof(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.Service.AddServer(t)
	failedThoughPaid(p, "K", "P0", true)
	failedThoughPaid(p, "L", "P0", true)
	want(t, p.Refund("M", "P0", 3000), "processed")
	p.provider.Heal()
	answers := make([]harness.Answer, 8)
	together(len(answers)+2, func(i int) {
		if i < len(answers) {
			answers[i] = p.At(i).Refund(fmt.Sprint("N", i), "P0", 1500)
			return
		}
		p.At(i).Post(harness.RefundPath([]string{"K", "L"}[i-len(answers)])+"/reconcile", harness.Fields{})
	})
	paid := int64(11000)
	for _, a := range answers {
		switch says := a.Says(); says {
		case "processed":
			paid += 1500
		case "amount_exceeds_refundable":
		default:
			t.Errorf("answered %d %s", a.Status, a.Body)
		}
	}
	p.lookUp("K")
	p.lookUp("L")
	held := int64(0) // the one that was shown first may have been covered
	for _, operation := range []string{"K", "L"} {
		if r := p.read(operation); r.State == "needs_attention" {
			held += 4000
			p.stands(operation, "needs_attention", "over_refund")
		}
	}
	if held == 0 {
		t.Error("nobody is asked")
	}
	p.excess("P0", paid, held, paid-10000)
	p.resolvable()
	for _, operation := range []string{"K", "L"} {
		if p.read(operation).State == "needs_attention" {
			want(t, p.resolve(operation, "succeeded"), "200")
		}
		p.stands(operation, "succeeded", "")
	}
	p.excess("P0", paid, 0, paid-10000)
	want(t, p.Refund("O", "P0", 1), "amount_exceeds_refundable")
}
