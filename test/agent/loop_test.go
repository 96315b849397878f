package agent

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/test/harness"
)

// rounds is how many conversations are had; `make drill` has more of them. Each waits more than it works.
var rounds = flag.Int("rounds", 24, "conversations of the scripted model")

const atOnce = 100 // conversations at most

// stage is all that a scripted model plays on, with faults at every hop.
type stage struct {
	*harness.Tenant
	t         *testing.T
	service   *harness.Service
	endpoints []string
	key       string
	random    *dice
	calls     atomic.Int64

	mu    sync.Mutex
	moved map[string]string // by case: the first answer that said yes
}

// dice is a source of chance that many may share; its seed is printed.
type dice struct {
	mu sync.Mutex
	*rand.Rand
}

func newDice(t *testing.T) *dice {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &dice{Rand: rand.New(rand.NewPCG(seed, 0))}
}

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.IntN(n)
}

// A model that re-issues calls, rewords reasons, changes amounts, drops answers, calls in parallel, cancels and gives
// up, over a network that loses answers, to a service whose provider fails in every way: the provider's books show each
// approved refund at most once and no other, and no answer was untrue.
func TestLoop_AModelThatNeverLearns_MovesNoMoneyTwice(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var models sync.WaitGroup
	turns := make(chan int)
	for i := range min(*rounds, atOnce) {
		models.Go(func() {
			m := overHTTP(t, s.endpoints[i%len(s.endpoints)], s.key)
			for round := range turns {
				s.converse(m, fmt.Sprint("L", round))
			}
			m.hides(s.key)
		})
	}
	for round := range *rounds {
		if round%10 == 0 {
			s.misbehave()
		}
		turns <- round
	}
	close(turns)
	models.Wait()
	s.settle()
	s.judge()
}

func newStage(t *testing.T) *stage {
	service := harness.NewPaying(t, "--provider-timeout", "700ms", "--lease", "3s", "--listing-lag", "100ms",
		"--provider-breaker-failures", "1000000",
		"--policy", harness.PolicyFile(t))
	service.AddServer(t)
	service.AddServer(t)
	s := &stage{Tenant: service.Tenant(t), t: t, service: service, random: newDice(t), moved: map[string]string{}}
	s.key = s.NewKey(agentScopes)
	for _, server := range service.Servers {
		network := harness.NewLossy(t, server.URL,
			func() (bool, bool) { return s.random.roll(30) == 0, s.random.roll(12) == 0 })
		s.endpoints = append(s.endpoints, serveTools(t, network.URL))
	}
	return s
}

// misbehave gives the provider another mood.
func (s *stage) misbehave() {
	s.service.Simulator.Heal()
	moods := []string{"error_before", "error_after", "drop_before", "drop_after", "decline", "pending", "refuse",
		"lookup_down", "hang"}
	for range 2 {
		s.service.Simulator.Fault(moods[s.random.roll(len(moods))], harness.Times(1+s.random.roll(4)),
			harness.After(200*time.Millisecond))
	}
}

// converse has one conversation: a wish, and then calls as a model makes them that never learns.
func (s *stage) converse(m *model, id string) {
	s.Pay(harness.Payment{OrderID: id, Cents: 10000})
	amounts, reasons := []int64{1000, 1000, 1000, 2500, 6000}, []string{"damaged", "damaged", "damaged", "bored"}
	wish := func() args {
		return args{"case_id": id, "order_id": id, "amount_cents": amounts[s.random.roll(len(amounts))],
			"reason_code":     reasons[s.random.roll(len(reasons))],
			"asked_for_human": s.random.roll(40) == 0}
	}
	var parallel sync.WaitGroup
	defer parallel.Wait()
	s.issue(m, "request_refund", wish())
	for range 3 + s.random.roll(6) {
		switch s.random.roll(8) {
		case 0, 1:
			s.issue(m, "request_refund", wish())
		case 2:
			s.issue(m, "check_refund", wish())
		case 3:
			s.issue(m, "get_refund", args{"case_id": id})
		case 4:
			for range 3 {
				parallel.Go(func() { s.issue(m, "process_refund", args{"case_id": id}) })
			}
		case 5:
			s.issue(m, "process_refunds", args{"case_ids": []string{id, "nobody's"}})
		case 6:
			ctx, cancel := context.WithTimeout(context.Background(),
				time.Duration(1+s.random.roll(300))*time.Millisecond)
			guess := args{"case_id": id, "amount_cents": amounts[s.random.roll(len(amounts))]}
			_, _ = m.try(ctx, "process_refund", guess) // the answer is dropped
			s.calls.Add(1)
			cancel()
		default:
			s.issue(m, "process_refund", args{"case_id": id})
		}
	}
}

// issue calls a tool and holds its answer against what may be true of the case.
func (s *stage) issue(m *model, tool string, in args) {
	a := m.call(tool, in)
	s.calls.Add(1)
	id, _ := in["case_id"].(string)
	if id == "" || a.text("money_moved") != "yes" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	told := fmt.Sprint(a["refund_id"], " ", a["amount_cents"])
	if before, again := s.moved[id]; again && before != told {
		s.t.Errorf("%s: told of two refunds: %s and %s", id, before, told)
	}
	s.moved[id] = told
}

// settle heals everything and lets reconciliation end what is open.
func (s *stage) settle() {
	s.service.Simulator.Heal()
	for range 12 {
		s.service.Due(s.t)
		if r := s.service.Reconcile(s.t); r.StillUnknown == 0 && r.Pending == 0 && r.Resent == 0 {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// judge holds the provider's books against the approvals, and what was told against the books.
func (s *stage) judge() {
	s.t.Helper()
	type approval struct {
		operationID, caseID string
		cents               int64
	}
	approved := map[string]approval{} // by the provider's key
	rows, err := s.service.DB.Owner.Query(s.t.Context(),
		`SELECT operation_id, case_id, amount_cents FROM refund_authorizations WHERE tenant_id = $1`, s.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	var a approval
	_, err = pgx.ForEachRow(rows, []any{&a.operationID, &a.caseID, &a.cents}, func() error {
		approved[s.ProviderKey(a.operationID)] = a
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	books := s.service.Simulator.Ledger() // a key that executed twice fails the test
	executed := map[string]int64{}
	for key, r := range books {
		a, known := approved[key]
		if !known || a.cents != r.AmountCents {
			s.t.Errorf("%s executed %d, approved %+v", key, r.AmountCents, a)
		}
		if r.Status == "succeeded" {
			executed[a.caseID]++
		}
	}
	for id, told := range s.moved {
		if executed[id] == 0 {
			s.t.Errorf("%s: a model was told %s, and the provider executed nothing", id, told)
		}
	}
	for id, n := range executed {
		if n > 1 {
			s.t.Errorf("%s: %d refunds of one case", id, n)
		}
	}
	s.capped()
	if len(s.moved) == 0 || len(books) < *rounds/8 {
		s.t.Errorf("nothing was tried: %d conversations, %d refunds, %d told of", *rounds, len(books), len(s.moved))
	}
	s.service.Audit(s.t)
	s.t.Logf("%d conversations, %d calls of tools, %d approvals, %d executed", *rounds, s.calls.Load(), len(approved),
		len(books))
}

// capped holds the attempts that the service counted against the cap of the layer that made them.
func (s *stage) capped() {
	s.t.Helper()
	var attempts float64
	for _, server := range s.service.Servers {
		for _, m := range server.Metrics(s.t) {
			if m.Name != "refundd_refund_attempts_total" {
				continue
			}
			if m.Labels["layer"] != "tool_transport" {
				s.t.Errorf("attempts of layer %q", m.Labels["layer"])
			}
			attempts += m.Value
		}
	}
	if limit := 3 * float64(s.calls.Load()); attempts == 0 || attempts > limit {
		s.t.Errorf("%v attempts for %d calls", attempts, s.calls.Load())
	}
	s.t.Logf("%v attempts at POST /v1/refunds", attempts)
}
