package agent

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"refundd/test/harness"
)

// planted is a service full of secrets: in the environment, in what it connects to its database with, in its provider's
// words and in another tenant's rows.
type planted struct {
	*harness.Tenant
	*harness.Service
	t     *testing.T
	key   string // of the tools
	other string // another tenant's
}

func plant(t *testing.T) *planted {
	t.Helper()
	s := harness.NewPaying(t, "--provider-breaker-open", "1ms", "--provider-timeout", "1s", "--policy", harness.PolicyFile(t))
	s.Servers = []*harness.Server{harness.Serve(t, s.CanaryURL(t), append(s.Flags, "--request-timeout", "600ms")...)}
	p := &planted{Tenant: s.Tenant(t), Service: s, t: t}
	p.key = p.NewKey(agentScopes)
	strangers := s.Tenant(t)
	p.other = strangers.NewKey(agentScopes)
	shared := harness.Fields{"email": "ann@example.com", "id": "cus-1"}
	strangers.Exec(`WITH bought AS (INSERT INTO orders (tenant_id, order_id, currency, captured_cents, customer_id,
			customer_email)
			VALUES ($1, $2 || '-order', 'EUR', 100, 'cus-1', 'ann@example.com') RETURNING *)
		INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency,
			approved_by)
		SELECT tenant_id, $2 || '-operation', 'case-7', order_id, 100, currency, $2 FROM bought`,
		strangers.ID, harness.Canary)
	p.Pay(harness.Payment{OrderID: "A", Cents: 10000}, harness.Payment{OrderID: "B", Cents: 10000})
	for _, order := range []string{"A", "B"} {
		p.Client().Put(harness.OrderPath(order), harness.Fields{"customer": shared})
	}
	p.Approve("rr-executed", "A", 100)
	if a := p.Client().Refund("rr-executed", "A", 100); a.Status != http.StatusCreated {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return p
}

// exercise calls every tool at once, in ways that are answered well and in ways that are not. What was paid is never
// said not to be.
func (p *planted) exercise(m *model) (codes map[string]bool) {
	calls := []struct {
		tool string
		in   args
	}{
		{"find_orders", args{"customer_email": "ann@example.com"}}, {"find_orders", args{"order_id": "nowhere"}},
		{"check_refund", args{"case_id": "C", "order_id": "B", "amount_cents": 100, "reason_code": "damaged"}},
		{"request_refund", args{"case_id": "C", "order_id": "B", "amount_cents": 100, "reason_code": "damaged"}},
		{"process_refund", args{"case_id": "C"}}, {"process_refund", args{"case_id": "case-7"}},
		{"process_refund", args{"case": "?"}},
		{"process_refunds", args{"case_ids": []string{"case-7", "C", "none"}}}, {"get_refund", args{"case_id": "C"}},
		{"get_refund", args{"case_id": "case-7"}}, {"escalate_to_human",
			args{"case_id": "C", "trigger": "tool_failure"}},
	}
	said := make([]string, len(calls))
	together(len(calls), func(i int) {
		a := m.call(calls[i].tool, calls[i].in)
		said[i] = a.text("code")
		if calls[i].in["case_id"] == "case-7" && a.text("money_moved") == "no" {
			p.t.Errorf("%s of a paid refund says that no money moved: %v", calls[i].tool, a)
		}
	})
	codes = map[string]bool{}
	for _, code := range said {
		codes[code] = true
	}
	if _, err := m.try(p.t.Context(), "pay_me", args{}); err == nil {
		p.t.Error("an unknown tool is called")
	} else {
		m.overhear(err.Error())
	}
	return codes
}

// overhear adds what the protocol says itself to what the model reads.
func (m *model) overhear(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintln(&m.transcript, text)
}

// Whatever fails, planted secrets reach no result of a tool, no error of the protocol, no log and no metric.
func TestCanary_NothingPlantedComesOut(t *testing.T) {
	t.Parallel()
	p := plant(t)
	told := map[string]bool{} // codes
	during := func(what string, want string, more func(*model, *harness.Server)) {
		t.Helper()
		tools := spawnTools(t, p.Servers[0].URL) // whose breaker knows nothing of the last fault
		m := overHTTP(t, tools.URL, p.key)
		more(m, tools)
		seen := p.exercise(m)
		// the tools' breaker may be first
		if maps.Copy(told, seen); !seen[want] && (want == "" || !seen["service_unavailable"]) {
			t.Errorf("%s: no answer says %q: %v", what, want, seen)
		}
		p.silent(what, m, tools)
	}
	nothing := func(*model, *harness.Server) {}
	during("all is well", "", func(m *model, tools *harness.Server) {
		p.provoke(m)
		p.rudely(m, tools.URL)
		p.exercise(overHTTP(t, tools.URL, "rfd_"+harness.Canary))
	})
	p.Exec(`REVOKE ALL ON orders, refund_operations, refund_authorizations FROM refundd_service`)
	during("no rights", "internal", nothing)
	p.Exec(`GRANT SELECT, INSERT, UPDATE ON orders, refund_operations, refund_authorizations TO refundd_service`)
	release := p.Hold(t, `LOCK TABLE orders, refund_operations, refund_authorizations IN ACCESS EXCLUSIVE MODE`)
	during("locked", "deadline_exceeded", nothing)
	release()
	end := p.Outage(t)
	during("an outage", "database_unavailable", nothing)
	end()
	p.Servers[0].Kill()
	during("the service is gone", "service_unavailable", nothing)
	t.Logf("codes: %v", slices.Sorted(maps.Keys(told)))
}

// provoke has the provider say what it should not.
func (p *planted) provoke(m *model) {
	words := harness.Fields{"message": harness.Canary + " card 4242", "code": harness.Canary}
	for i, fault := range []harness.Fields{
		{"mode": "error_before", "status": 500}, {"mode": "error_before", "status": 401}, {"mode": "refuse"},
		{"mode": "decline"},
		{"mode": "error_after", "status": 503},
	} {
		order, operation, caseID := fmt.Sprint("L", i), fmt.Sprint("rr-L", i), fmt.Sprint("case-L", i)
		p.Pay(harness.Payment{OrderID: order, Cents: 10000})
		p.Client().Put(harness.AuthorizationPath(operation),
			harness.Fields{"case_id": caseID, "order_id": order, "amount_cents": 100, "approved_by": "ada"})
		p.Simulator.Fault(fault["mode"].(string), words, fault, harness.Times(1))
		m.call("process_refund", args{"case_id": caseID})
		m.call("get_refund", args{"case_id": caseID})
		p.Simulator.Heal()
	}
}

// silent fails the test where what the model read, the tools logged or counted holds what was planted.
func (p *planted) silent(when string, m *model, tools *harness.Server) {
	p.t.Helper()
	m.hides(p.key, p.other, p.Servers[0].URL, "SQLSTATE", "dial tcp", "pgx")
	for what, text := range map[string]string{"log": tools.Logs.Text(), "metrics": tools.MetricsText(p.t)} {
		for _, secret := range []string{p.key, p.other, harness.Canary, "rr-L", "rr-executed"} {
			if i := strings.Index(text, secret); i >= 0 {
				p.t.Errorf("%s: the %s tells %q: …%s", when, what, secret, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
}

// rudely sends what is no call of a tool; what is answered is overheard by the model.
func (p *planted) rudely(m *model, endpoint string) {
	for _, body := range []string{
		`{`, `[]`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_refund","arguments":[]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_refund","arguments":{"case_id":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 300<<10) + `"}`,
	} {
		r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, endpoint, strings.NewReader(body))
		if err != nil {
			p.t.Fatal(err)
		}
		r.Header = http.Header{
			"Authorization": {"Bearer " + p.key}, "Content-Type": {"application/json"},
			"Accept":   {"application/json, text/event-stream"},
			"X-Secret": {harness.Canary + "-header"}, "Cookie": {"session=" + harness.Canary},
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			p.t.Fatal(err)
		}
		said, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode >= 500 {
			p.t.Errorf("%.80s: %d %s, %v", body, res.StatusCode, said, err)
		}
		m.overhear(fmt.Sprint(res.Header, string(said)))
	}
}

// An address that names its password or leads nowhere is told to nobody.
func TestCanary_AnAddressThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"http://refundd:" + harness.Canary + "-password@127.0.0.1:1", "http://" + harness.Canary + ".invalid",
		"http://127.0.0.1:1/" + harness.Canary,
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			m := overStdio(t, address, "rfd_"+harness.Canary)
			if codes := (&planted{t: t}).exercise(m); !codes["service_unavailable"] || codes[""] {
				t.Errorf("%v", codes)
			}
			m.hides("dial tcp", "lookup")
		})
	}
}
