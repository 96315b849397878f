package agent

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

// calls are the counted calls of tools, by "tool status code".
func calls(t *testing.T, tools *harness.Server) map[string]float64 {
	t.Helper()
	counted := map[string]float64{}
	for _, m := range tools.Metrics(t) {
		if m.Name == "refundd_tool_calls_total" {
			counted[fmt.Sprint(m.Labels["tool"], " ", m.Labels["status"], " ", m.Labels["code"])] = m.Value
		}
	}
	return counted
}

// What the tools answered and what that cost the service is counted, by words that nobody else chooses.
func TestMetrics_CountCallsByOutcomeAndAttemptsByLayer(t *testing.T) {
	d := newDesk(t)
	d.Order("A", 10000)
	d.Approve("K", "A", 100)
	tools := spawnTools(t, d.service.Servers[0].URL)
	m := overHTTP(t, tools.URL, d.key)
	m.want("process_refund", args{"case_id": "case-7"}, "processed yes")
	m.want("process_refund", args{"case_id": "case-7"}, "already_processed yes")
	m.want("get_refund", args{"case_id": "nobody's"}, "refused authorization_not_found no")
	m.want("get_refund", args{"case": "case-7"}, "refused invalid_arguments unknown")
	overHTTP(t, tools.URL, "rfd_no_key").want("find_orders", args{"order_id": "A"}, "refused unauthenticated no")
	d.service.Servers[0].Kill()
	m.want("get_refund", args{"case_id": "case-7"}, "failed service_unavailable unknown")
	want := map[string]float64{
		"process_refund processed none": 1, "process_refund already_processed none": 1,
		"get_refund refused authorization_not_found": 1,
		"get_refund refused invalid_arguments":       1, "find_orders refused unauthenticated": 1,
		"get_refund failed service_unavailable": 1,
	}
	if diff := cmp.Diff(want, calls(t, tools)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	attempts, took := map[string]float64{}, 0.0
	for _, m := range tools.Metrics(t) {
		switch m.Name {
		case "refundd_tool_attempts_total":
			attempts[m.Labels["layer"]+" "+m.Labels["code"]] = m.Value
		case "refundd_tool_call_seconds_count":
			took += m.Value
		}
	}
	wanted := map[string]float64{ // approvals and refund, twice; the approvals of nobody's case; the key; and in vain
		"tool_transport none": 5, "tool_transport unauthenticated": 1, "tool_transport service_unavailable": 3,
	}
	if diff := cmp.Diff(wanted, attempts); diff != "" || took != 6 {
		t.Errorf("%v calls were timed; attempts (-want +got):\n%s", took, diff)
	}
	res, err := http.Get(tools.AdminURL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("/healthz answers %d", res.StatusCode)
	}
}

// A replica that is told to stop answers what it has begun.
func TestTools_ToldToStop_AnswerWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s := harness.NewPaying(t, "--provider-timeout", "20s")
	s.AddServer(t)
	d := s.Tenant(t)
	d.Pay(harness.Payment{OrderID: "A", Cents: 10000})
	d.Approve("K", "A", 100)
	tools := spawnTools(t, s.Servers[0].URL)
	m := overHTTP(t, tools.URL, d.NewKey(agentScopes))
	s.Simulator.Fault("hang", harness.Times(1), harness.After(2*time.Second))
	answered := make(chan answer)
	go func() { answered <- m.call("process_refund", args{"case_id": "case-7"}) }()
	s.Simulator.AwaitRequests(d.ProviderKey("K"), 1)
	if code := tools.Terminate(t); code != 0 {
		t.Errorf("exits %d", code)
	}
	if a := <-answered; a.text("status") != "processed" {
		t.Errorf("answers %v", a)
	}
}
