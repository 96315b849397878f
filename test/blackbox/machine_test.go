package blackbox

import (
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"refundd/test/harness"
)

// TestMachine_AgreesWithTheModel draws requests, one after another and several at once on two servers, and holds every
// answer and, after every step, the books against a model in memory. A failure prints the seed that repeats it.
func TestMachine_AgreesWithTheModel(t *testing.T) {
	t.Parallel()
	service := harness.Shared(t)
	tenants := map[bool]*harness.Tenant{true: service.Tenant(t), false: service.OpenTenant(t)}
	var run atomic.Int64
	rapid.Check(t, func(r *rapid.T) {
		requires := rapid.Bool().Draw(r, "requires authorizations")
		m := &machine{world: newWorld(requires), tenant: tenants[requires].For(drawn{t, r}),
			prefix: fmt.Sprintf("r%d-", run.Add(1))}
		r.Repeat(map[string]func(*rapid.T){
			"one":     m.one,
			"refund":  m.aRefund,
			"several": m.several,
			"expire":  m.expire,
			"":        m.check,
		})
	})
}

// drawn fails the drawn sequence rather than the whole test, so that it is made small and printed.
type drawn struct {
	testing.TB
	r *rapid.T
}

func (d drawn) Errorf(format string, args ...any) { d.r.Errorf(format, args...) }
func (d drawn) Error(args ...any)                 { d.r.Error(args...) }
func (d drawn) Fatalf(format string, args ...any) { d.r.Fatalf(format, args...) }
func (d drawn) Fatal(args ...any)                 { d.r.Fatal(args...) }

type machine struct {
	world  *world
	tenant *harness.Tenant
	prefix string // of all ids of this sequence: the tenant has others
}

var (
	drawKey   = rapid.SampledFrom([]string{"k1", "k2", "k3", "k4", "k5", "k6"})
	drawOrder = rapid.SampledFrom([]string{"o1", "o2", "o3"})
	drawCents = rapid.SampledFrom([]int64{1, 40, 60, 100})
	drawKind  = rapid.SampledFrom([]string{"register", "approve", "approve", "revoke", "refund", "refund", "refund"})
)

func drawAct(r *rapid.T) act {
	return act{drawKind.Draw(r, "kind"), drawKey.Draw(r, "key"), drawOrder.Draw(r, "order"), drawCents.Draw(r, "cents")}
}

// send does the act on the i-th server and answers what it said.
func (m *machine) send(i int, a act) string {
	c, key, order := m.tenant.At(i), m.prefix+a.Key, m.prefix+a.Order
	switch a.Kind {
	case "register":
		return c.Put(harness.OrderPath(order), harness.Fields{"currency": "EUR", "captured_cents": a.Cents}).Says()
	case "approve":
		return c.Put(harness.AuthorizationPath(key),
			harness.Fields{"case_id": "c", "order_id": order, "amount_cents": a.Cents, "approved_by": "ada"}).Says()
	case "revoke":
		return c.Post(harness.AuthorizationPath(key)+"/revoke", harness.Fields{}).Says()
	default:
		return c.Refund(key, order, a.Cents).Says()
	}
}

func (m *machine) one(r *rapid.T) { m.expect(r, drawAct(r)) }

func (m *machine) expect(r *rapid.T, a act) {
	said := m.send(rapid.IntRange(0, 1).Draw(r, "server"), a)
	if wanted := m.world.do(a); said != wanted {
		r.Fatalf("%+v says %s, want %s", a, said, wanted)
	}
}

// aRefund is one that may well succeed: whatever it needs is there first.
func (m *machine) aRefund(r *rapid.T) {
	a := drawAct(r)
	a.Kind = "refund"
	if _, known := m.world.orders[a.Order]; !known {
		m.expect(r, act{"register", "", a.Order, 100})
	}
	if approved, known := m.world.approvals[a.Key]; known {
		a.Order, a.Cents = approved.order, approved.cents
	} else if m.world.requires && m.world.claims[a.Key] == (claim{}) {
		m.expect(r, act{"approve", a.Key, a.Order, a.Cents})
	}
	m.expect(r, a)
}

// several sends acts at once: some order of them must explain what all of them said.
func (m *machine) several(r *rapid.T) {
	acts := make([]act, rapid.IntRange(2, 5).Draw(r, "how many"))
	key := drawKey.Draw(r, "shared key")
	for i := range acts {
		acts[i] = drawAct(r)
		if rapid.Bool().Draw(r, "same key") {
			acts[i].Key = key
		}
	}
	said := make([]string, len(acts))
	together(len(acts), func(i int) { said[i] = m.send(i, acts[i]) })
	end := m.world.explains(acts, said, 0)
	if end == nil {
		r.Fatalf("no order of these explains their answers:\n%+v\n%q\nfrom %+v", acts, said, *m.world)
	}
	m.world = end
}

// expire moves an approval's time.
func (m *machine) expire(r *rapid.T) {
	key := drawKey.Draw(r, "key")
	if approved, known := m.world.approvals[key]; known {
		approved.expired = true
		m.world.approvals[key] = approved
		m.tenant.Exec(`UPDATE refund_authorizations SET expires_at = clock_timestamp() WHERE tenant_id = $1
			AND operation_id = $2`, m.tenant.ID, m.prefix+key)
	}
}

// check holds the database against the model: the books balance, nothing exceeds its capture, and each key moved money
// at most once.
func (m *machine) check(r *rapid.T) {
	orders, moved := m.tenant.Books(m.prefix)
	wanted := map[string]harness.Balance{}
	for id, o := range m.world.orders {
		wanted[m.prefix+id] = harness.Balance{Captured: o.captured, Refunded: o.refunded, Debited: o.refunded}
		if o.refunded > o.captured {
			r.Fatalf("the model itself lets %s exceed its capture", id)
		}
	}
	if diff := cmp.Diff(wanted, orders); diff != "" {
		r.Fatalf("books differ from the model: %s", diff)
	}
	keys := map[string]int64{}
	for id, c := range m.world.claims {
		if !c.revoked {
			keys[m.prefix+id] = c.cents
		}
	}
	if diff := cmp.Diff(keys, maps.Clone(moved)); diff != "" {
		r.Fatalf("keys that moved money differ from the model: %s", diff)
	}
}
