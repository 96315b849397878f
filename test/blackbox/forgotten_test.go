package blackbox

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/testdb"
)

// forgetful is a service behind a firewall that may forget its connections to Postgres, with what it is asked.
type forgetful struct {
	*testing.T
	tenant   *harness.Tenant
	firewall *harness.Firewall
}

func newForgetful(t *testing.T) *forgetful {
	t.Helper()
	s := harness.NewPaying(t)
	f := &forgetful{T: t}
	f.firewall, s.DB.ServiceURL = harness.NewFirewall(t, s.DB.ServiceURL)
	s.AddServer(t, "--pool-size", "32")
	f.tenant = s.OpenTenant(t)
	return f
}

// forgottenAct is a request, and what a message to Postgres carries on its behalf.
type forgottenAct struct {
	name string
	mark string
	do   func() harness.Answer
	says []string // the first time it comes through, and later
}

// acts are requests of every kind that asks the database.
func (f *forgetful) acts() []forgottenAct {
	c := f.tenant.Client()
	f.tenant.Order("P", 1_000_000)
	f.tenant.Pay(harness.Payment{OrderID: "at-provider", Cents: 1000})
	for _, id := range []string{"to-revoke", "in-case"} {
		f.tenant.Approve(id, "P", 1)
	}
	for _, id := range []string{"to-read", "to-time", "to-replay"} {
		want(f.T, c.Refund(id, "P", 1), "processed")
	}
	fresh := f.tenant.NewKey("read")
	hash := sha256.Sum256([]byte(fresh))
	refund := func(id, order string) func() harness.Answer {
		return func() harness.Answer { return c.Refund(id, order, 1) }
	}
	get := func(path string) func() harness.Answer { return func() harness.Answer { return c.Get(path) } }
	return []forgottenAct{
		{"refund", "new-refund", refund("new-refund", "P"), []string{"processed", "already_processed"}},
		{"refund at a provider", "new-at-provider", refund("new-at-provider", "at-provider"),
			[]string{"processed", "already_processed", "operation_in_progress"}},
		// reserved unheard: its lease lives on
		{"replay", "to-replay", refund("to-replay", "P"), []string{"already_processed"}},
		{"approve", "new-approval", func() harness.Answer {
			return c.Put(harness.AuthorizationPath("new-approval"),
				harness.Fields{"case_id": "C", "order_id": "P", "amount_cents": 1, "approved_by": "ada"})
		}, []string{"201", "200"}},
		{"register", "new-order", func() harness.Answer {
			return c.Put(harness.OrderPath("new-order"), harness.Fields{"currency": "EUR", "captured_cents": 1})
		}, []string{"201", "200"}},
		{"revoke", "to-revoke", func() harness.Answer {
			return c.Post(harness.AuthorizationPath("to-revoke")+"/revoke", harness.Fields{})
		},
			[]string{"200"}},
		{"ask for an approval", "new-case", func() harness.Answer {
			return c.Post("/v1/refund-requests",
				harness.Fields{"case_id": "new-case", "order_id": "P", "amount_cents": 1, "reason_code": "late"})
		}, []string{"201", "200"}},
		{"read a refund", "to-read", get(harness.RefundPath("to-read")), []string{"200"}},
		{"read a timeline", "to-time", get(harness.RefundPath("to-time") + "/events"), []string{"200"}},
		{"read an approval", "in-case", get(harness.AuthorizationPath("in-case")), []string{"200"}},
		{"read an order", "no-order", get(harness.OrderPath("no-order")), []string{"order_not_found"}},
		{"list", "listed", get("/v1/refunds?order_id=listed"), []string{"200"}},
		{"authenticate", string(hash[:]), func() harness.Answer { return c.With(fresh).Get(harness.OrderPath("P")) },
			[]string{"200"}},
	}
}

// A caller waits for a message of 6 s at most, and for a second one where the first was a question.
const forgottenLimit = 14 * time.Second

func TestA82_AConnectionIsForgotten(t *testing.T) {
	t.Parallel()
	for _, lost := range []struct {
		name    string
		arrives bool
	}{{"WithTheMessage", false}, {"WithItsAnswer", true}} {
		t.Run(lost.name, func(t *testing.T) {
			t.Parallel()
			f := newForgetful(t)
			acts := f.acts()
			neighbour := f.tenant.Service.OpenTenant(t)
			neighbour.Order("N", 1_000_000)
			want(t, f.tenant.Client().Get(harness.OrderPath("P")), "200") // its key is known for some seconds
			met := make([]<-chan struct{}, len(acts))
			for i, a := range acts {
				met[i] = f.firewall.ForgetWith(a.mark, lost.arrives)
			}
			var stuck sync.WaitGroup
			for _, a := range acts {
				stuck.Go(func() { f.first(a) })
			}
			done := make(chan struct{})
			go func() { stuck.Wait(); close(done) }()
			for i, a := range acts { // who shares a message waits with it
				select {
				case <-met[i]:
				case <-time.After(forgottenLimit):
					t.Errorf("%s: no message carried %q", a.name, a.mark)
				}
			}
			if n := f.meanwhile(neighbour, done); n < 10 {
				t.Errorf("%d refunds of a neighbour were executed meanwhile", n)
			}
			for _, a := range acts {
				if says := a.do().Says(); !slices.Contains(a.says, says) {
					t.Errorf("%s again says %s, want one of %q", a.name, says, a.says)
				}
			}
			f.tenant.Service.Audit(t)
		})
	}
}

// first acts while its connection is forgotten.
func (f *forgetful) first(a forgottenAct) {
	began := time.Now()
	says := a.do().Says()
	if took := time.Since(began); took > forgottenLimit {
		f.Errorf("%s waits for %v", a.name, took)
	} else {
		f.Logf("%s: %s in %v", a.name, says, took)
	}
	switch {
	case says == "database_unavailable", says == a.says[0]:
	case says == "operation_in_progress" && slices.Contains(a.says, says): // it found its own reservation, unheard
	default:
		f.Errorf("%s says %s", a.name, says)
	}
}

// meanwhile asks on behalf of a neighbour until done, and returns how many of its refunds were executed.
func (f *forgetful) meanwhile(neighbour *harness.Tenant, done <-chan struct{}) (n int) {
	for {
		select {
		case <-done:
			return n
		default:
		}
		n++
		began := time.Now()
		want(f.T, neighbour.Client().Refund(fmt.Sprintf("n-%d", n), "N", 1), "processed")
		if a := neighbour.Client().Get("/readyz"); a.Status != http.StatusOK {
			f.Errorf("readyz: %d %s", a.Status, a.Body)
		}
		if took := time.Since(began); took > 5*time.Second {
			f.Errorf("a neighbour waits for %v", took)
		}
	}
}

// Every connection is forgotten at once, a few times: nobody waits for each of them to be tried.
func TestA82_AllConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	s := &harness.Service{DB: testdb.New(t)}
	firewall, through := harness.NewFirewall(t, s.DB.ServiceURL)
	s.DB.ServiceURL = through
	s.AddServer(t)
	tenant := s.OpenTenant(t)
	const callers = 12
	for i := range callers {
		tenant.Order(fmt.Sprintf("P%d", i), 1_000_000)
	}
	for _, pause := range []time.Duration{0, 1500 * time.Millisecond} {
		together(callers, func(i int) {
			want(t, tenant.Client().Refund(fmt.Sprintf("%v-%d", pause, i), fmt.Sprintf("P%d", i), 1), "processed")
		})
		if n := firewall.ForgetAll(); n == 0 {
			t.Fatal("no connection was there to be forgotten")
		}
		time.Sleep(pause) // then the pool asks first whether they live
		together(callers, func(i int) {
			began := time.Now()
			says := tenant.Client().Refund(fmt.Sprintf("%v-again-%d", pause, i), fmt.Sprintf("P%d", i), 1).Says()
			if took := time.Since(began); took > forgottenLimit || says != "processed" &&
				says != "database_unavailable" {
				t.Errorf("%s after %v", says, took)
			}
			began = time.Now()
			want(t, tenant.Client().Refund(fmt.Sprintf("%v-after-%d", pause, i), fmt.Sprintf("P%d", i), 1), "processed")
			if took := time.Since(began); took > forgottenLimit/2 {
				t.Errorf("the next one waits for %v", took)
			}
		})
	}
	s.Audit(t)
}
