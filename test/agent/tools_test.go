package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"refundd/test/harness"
)

// desk is a service with a policy, a tenant and a conversation.
type desk struct {
	*harness.Tenant
	service *harness.Service
	key     string // of the tools
	model   *model
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	t.Parallel()
	s := harness.New(t, "--policy", harness.PolicyFile(t))
	d := &desk{Tenant: s.Tenant(t), service: s}
	d.key = d.NewKey(agentScopes)
	d.model = overStdio(t, s.Servers[0].URL, d.key)
	return d
}

func TestTools_ARefund_FromTheSearchToTheReceipt(t *testing.T) {
	d := newDesk(t)
	for i := range 3 {
		d.Client().Put(harness.OrderPath(fmt.Sprint("A", i)), harness.Fields{"currency": "EUR", "captured_cents": 10000,
			"customer": harness.Fields{"email": "ann@example.com", "id": fmt.Sprint("c", i), "name": "Ann"}})
	}
	found := d.model.want("find_orders", args{"customer_email": "ANN@example.com"}, "found no")
	if found["match_count"] != 3.0 || found.text("next_action") != "ask_for_identifier" {
		t.Errorf("several matches: %v", found)
	}
	none := d.model.want("find_orders", args{"customer_email": "bob@example.com"}, "none_found no")
	if none["match_count"] != 0.0 {
		t.Errorf("no match: %v", none)
	}
	d.model.want("find_orders", args{"order_id": "A1", "customer_id": "c1"}, "found no")
	d.model.want("find_orders", args{"order_id": "A1", "customer_id": "c2"}, "none_found no")
	wish := args{"case_id": "C1", "order_id": "A1", "amount_cents": 4000, "reason_code": "damaged"}
	if a := d.model.want("check_refund", wish, "would_approve no"); a["refundable_cents"] != 10000.0 {
		t.Errorf("preview: %v", a)
	}
	d.model.want("get_refund", args{"case_id": "C1"}, "refused authorization_not_found no")
	d.model.want("request_refund", wish, "approved no")
	d.model.want("get_refund", args{"case_id": "C1"}, "not_executed no")
	d.model.want("request_refund", wish, "approved unknown")
	first := d.model.want("process_refund", args{"case_id": "C1"}, "processed yes")
	again := d.model.want("process_refund", args{"case_id": "C1"}, "already_processed yes")
	if first["refund_id"] != again["refund_id"] || first["amount_cents"] != 4000.0 || again["replayed"] != true {
		t.Errorf("%v and %v", first, again)
	}
	d.model.want("get_refund", args{"case_id": "C1"}, "succeeded yes")
	d.model.want("process_refund", args{"case_id": "C2"}, "refused authorization_not_found no")
	if moved := d.Moved("A1"); moved != 4000 {
		t.Errorf("%d moved", moved)
	}
	d.model.hides(d.key)
}

func TestTools_ACaseOfSeveralApprovals_IsNeverGuessed(t *testing.T) {
	d := newDesk(t)
	d.Order("A", 10000)
	d.Order("B", 10000)
	for i, a := range []struct {
		order string
		cents int64
	}{{"A", 100}, {"A", 200}, {"B", 100}, {"B", 100}} {
		d.Approve(fmt.Sprint("op-secret-", i), a.order, a.cents)
	}
	ambiguous := d.model.want("process_refund", args{"case_id": "case-7"}, "refused ambiguous_case unknown")
	if list, _ := ambiguous["authorizations"].([]any); len(list) != 4 {
		t.Errorf("%v", ambiguous)
	}
	d.model.want("process_refund", args{"case_id": "case-7", "order_id": "A"}, "refused ambiguous_case unknown")
	d.model.want("process_refund", args{"case_id": "case-7", "order_id": "A", "amount_cents": 300},
		"refused ambiguous_case unknown")
	d.model.want("process_refund", args{"case_id": "case-7", "order_id": "A", "amount_cents": 200}, "processed yes")
	// The choice never depends on what was executed already: the same words mean the same.
	d.model.want("process_refund", args{"case_id": "case-7", "order_id": "A", "amount_cents": 200},
		"already_processed yes")
	d.model.want("process_refund", args{"case_id": "case-7", "order_id": "B", "amount_cents": 100},
		"refused ambiguous_case unknown")
	d.model.want("process_refund", args{"case_id": "case-7", "line": 4}, "processed yes")
	d.model.want("process_refund", args{"case_id": "case-7", "line": 4}, "already_processed yes")
	d.model.want("process_refund", args{"case_id": "case-7", "line": 5}, "refused ambiguous_case unknown")
	d.model.want("process_refund", args{"case_id": "case-7", "line": 1, "amount_cents": 200},
		"refused ambiguous_case unknown")
	if a, b := d.Moved("A"), d.Moved("B"); a != 200 || b != 100 {
		t.Errorf("%d and %d moved", a, b)
	}
	d.model.hides(d.key, "op-secret")
}

func TestTools_SeveralCases_HideNoPart(t *testing.T) {
	d := newDesk(t)
	d.Order("A", 10000)
	for _, c := range []string{"C1", "C2"} {
		d.model.want("request_refund",
			args{"case_id": c, "order_id": "A", "amount_cents": 100, "reason_code": "damaged"},
			"approved no")
	}
	d.model.want("request_refund", args{"case_id": "C3", "order_id": "A", "amount_cents": 100, "reason_code": "bored"},
		"escalated no")
	some := d.model.want("process_refunds", args{"case_ids": []string{"C1", "C3", "C2", "C1"}}, "partial_failure yes")
	results, _ := some["partial_results"].([]any)
	failures, _ := some["failures"].([]any)
	if some["attempted"] != 3.0 || len(results) != 2 || len(failures) != 1 ||
		!strings.Contains(some.text("coverage_gap"), "C3") {
		t.Errorf("%v", some)
	}
	d.model.want("process_refunds", args{"case_ids": []string{"C1", "C2"}}, "ok yes")
	d.model.want("process_refunds", args{"case_ids": []string{"C3", "C4"}}, "failed authorization_not_found no")
}

func TestTools_PeopleAreAskedForAndTold(t *testing.T) {
	d := newDesk(t)
	d.Order("A", 10000)
	wish := args{"case_id": "C1", "order_id": "A", "amount_cents": 4000, "reason_code": "damaged",
		"asked_for_human": true}
	if a := d.model.want("request_refund", wish, "escalated no"); a.text("queue") != "people" ||
		a.text("trigger") != "asked_for_human" {
		t.Errorf("%v", a)
	}
	wish["case_id"], wish["asked_for_human"], wish["categories"] = "C2", false, []string{"self_harm", "violence_threat"}
	if a := d.model.want("request_refund", wish, "escalated no"); a.text("queue") != "safety" {
		t.Errorf("%v", a)
	}
	handed := args{"case_id": "C1", "trigger": "outcome_unknown", "summary": "asked twice"}
	first := d.model.want("escalate_to_human", handed, "escalated unknown")
	again := d.model.want("escalate_to_human", handed, "escalated unknown")
	if first.text("due_at") != again.text("due_at") {
		t.Errorf("%v and %v", first, again)
	}
	// A person approves; the agent's own key cannot.
	wish = args{"case_id": "C3", "order_id": "A", "amount_cents": 9000, "reason_code": "damaged"}
	d.model.want("request_refund", wish, "escalated no")
	open := harness.Read[harness.List[map[string]any]](t, d.Client().Get("/v1/escalations?state=open&queue=refunds"))
	if len(open.Data) != 2 || open.Data[0]["subject"] != "request" || open.Data[1]["subject"] != "handoff" {
		t.Fatalf("%v", open)
	}
	path := fmt.Sprint("/v1/escalations/", open.Data[0]["escalation_id"], "/approve")
	if a := d.Client().With(d.key).Post(path, harness.Fields{}); a.Code() != "forbidden" {
		t.Errorf("the agent approves: %d %s", a.Status, a.Body)
	}
	if a := d.Client().Post(path, harness.Fields{"decided_by": "ann"}); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	d.model.want("request_refund", wish, "approved unknown") // whether it was executed since, get_refund tells
	d.model.want("process_refund", args{"case_id": "C3"}, "processed yes")
	d.model.hides(d.key)
}

func TestTools_BadInput_IsRefusedInOneShape(t *testing.T) {
	d := newDesk(t)
	d.Order("A", 10000)
	for _, c := range []struct {
		tool string
		in   args
	}{
		{"process_refund", args{}}, {"process_refund", args{"case_id": ""}},
		{"process_refund", args{"case_id": strings.Repeat("x", 256)}},
		{"process_refund", args{"case_id": "C", "operation_id": "mine"}},
		{"process_refund", args{"case_id": "C", "amount_cents": "4999"}},
		{"process_refund", args{"case_id": "C", "amount_cents": 10.5}}, {"process_refund", args{"Case_ID": "C"}},
		{"process_refunds", args{"case_ids": []string{}}}, {"process_refunds", args{"case_ids": make([]string, 51)}},
		{"request_refund", args{"case_id": "C", "order_id": "A", "reason_code": "damaged"}},
		{"request_refund", args{"case_id": "C", "order_id": "A", "amount_cents": -1, "reason_code": "damaged"}},
		{"request_refund", args{"case_id": "C", "order_id": "A", "amount_cents": 1, "reason_code": "damaged",
			"sentiment": "angry"}},
		{"request_refund", args{"case_id": "C", "order_id": "A", "amount_cents": 1, "reason_code": "damaged",
			"confidence": 0.99}},
		{"find_orders", args{}}, {"escalate_to_human", args{"case_id": "C"}},
	} {
		d.model.want(c.tool, c.in, "refused invalid_arguments unknown")
	}
	d.model.want("request_refund", args{"case_id": "C", "order_id": "nowhere", "amount_cents": 1,
		"reason_code": "damaged"}, "refused order_not_found no")
	d.model.want("request_refund", args{"case_id": "C", "order_id": "A", "amount_cents": 1, "reason_code": "DAMAGED!"},
		"refused invalid_request no")
	d.model.want("escalate_to_human", args{"case_id": "C", "trigger": "bored"}, "refused invalid_request unknown")
	d.model.want("find_orders", args{"order_id": strings.Repeat("x", 64<<10)}, "refused invalid_arguments unknown")
	if _, err := d.model.try(t.Context(), "pay_me", args{}); err == nil {
		t.Error("an unknown tool is called")
	}
	if n := d.Moved("A"); n != 0 {
		t.Errorf("%d moved", n)
	}
	d.model.hides(d.key)
}

// When the service is gone, the tools say so, of the money that it is unknown, and after a while that a person is
// needed.
func TestTools_TheServiceIsGone_NothingComesFromMemory(t *testing.T) {
	d := newDesk(t)
	d.Order("A", 10000)
	d.model.want("request_refund", args{"case_id": "C", "order_id": "A", "amount_cents": 100, "reason_code": "damaged"},
		"approved no")
	d.model.want("process_refund", args{"case_id": "C"}, "processed yes")
	d.service.Servers[0].Kill()
	escalates := false
	for range 12 {
		a := d.model.want("get_refund", args{"case_id": "C"}, "failed service_unavailable unknown")
		escalates = escalates || a.text("next_action") == "escalate_to_human"
	}
	if !escalates {
		t.Error("no answer asks for a person")
	}
	d.model.want("find_orders", args{"order_id": "A"}, "failed service_unavailable unknown")
	d.model.hides(d.key)
}

// Over HTTP each caller brings its own key, replicas are alike, and pages of other origins are refused.
func TestTools_OverHTTP(t *testing.T) {
	d := newDesk(t)
	other := d.service.Tenant(t)
	d.Order("A", 10000)
	endpoints := []string{serveTools(t, d.service.Servers[0].URL), serveTools(t, d.service.Servers[0].URL)}
	one, two := overHTTP(t, endpoints[0], d.key), overHTTP(t, endpoints[1], d.key)
	one.want("request_refund", args{"case_id": "C", "order_id": "A", "amount_cents": 100, "reason_code": "damaged"},
		"approved no")
	two.want("process_refund", args{"case_id": "C"}, "processed yes")
	one.want("process_refund", args{"case_id": "C"}, "already_processed yes")
	stranger := overHTTP(t, endpoints[0], other.NewKey(agentScopes))
	stranger.want("process_refund", args{"case_id": "C"}, "refused authorization_not_found no")
	stranger.want("find_orders", args{"order_id": "A"}, "none_found no")
	stranger.hides(d.key)
	wrong := overHTTP(t, endpoints[0], "rk_not_a_key")
	wrong.want("get_refund", args{"case_id": "C"}, "refused unauthenticated unknown")
	for name, c := range map[string]struct {
		header http.Header
		want   int
	}{
		"no key": {http.Header{}, http.StatusUnauthorized},
		"another origin": {http.Header{"Authorization": {"Bearer " + d.key}, "Origin": {"https://evil.example"}},
			http.StatusForbidden},
		"cross-site": {http.Header{"Authorization": {"Bearer " + d.key}, "Sec-Fetch-Site": {"cross-site"}},
			http.StatusForbidden},
	} {
		req, err := http.NewRequest(http.MethodPost, endpoints[0],
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = c.header
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, c.want)
		}
	}
	one.hides(d.key)
}

// serveTools starts `refundd mcp --addr` and returns its endpoint.
func serveTools(t testing.TB, serverURL string) string {
	t.Helper()
	return spawnTools(t, serverURL).URL
}

// spawnTools starts `refundd mcp --addr`; its URL is that of the protocol.
func spawnTools(t testing.TB, serverURL string) *harness.Server {
	t.Helper()
	p := harness.Spawn(t, "", nil, "mcp", "--server-url", serverURL, "--addr", "127.0.0.1:0", "--admin-addr",
		"127.0.0.1:0")
	line, err := p.Logs.Await(time.Minute, nil, `"msg":"serving tools"`)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Logs.Text())
	}
	var serving struct {
		Addr      string `json:"addr"`
		AdminAddr string `json:"admin_addr"`
	}
	if err := json.Unmarshal([]byte(line), &serving); err != nil {
		t.Fatal(err)
	}
	return &harness.Server{Process: p, URL: "http://" + serving.Addr + "/mcp", AdminURL: "http://" + serving.AdminAddr}
}

// A person in the conversation is asked where the client can, and only then.
func TestTools_Confirm_AsksThePersonInTheConversation(t *testing.T) {
	d := newDesk(t)
	d.Order("A", 10000)
	d.model.want("request_refund",
		args{"case_id": "C", "order_id": "A", "amount_cents": 1999, "reason_code": "damaged"},
		"approved no")
	var mu sync.Mutex
	var questions []string
	says := "decline"
	options := &mcp.ClientOptions{}
	options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		mu.Lock()
		defer mu.Unlock()
		questions = append(questions, r.Params.Message)
		return &mcp.ElicitResult{Action: says, Content: map[string]any{"confirm": true}}, nil
	}
	asked := connect(t, command(t, d.service.Servers[0].URL, d.key, "--confirm"), options)
	asked.want("process_refund", args{"case_id": "C"}, "refused not_confirmed no")
	if n := d.Moved("A"); n != 0 {
		t.Errorf("%d moved", n)
	}
	mu.Lock()
	says = "accept"
	mu.Unlock()
	asked.want("process_refund", args{"case_id": "C"}, "processed yes")
	asked.want("process_refund", args{"case_id": "C"}, "already_processed yes") // what is done is not asked for again
	if len(questions) != 2 || !strings.Contains(questions[0], "19.99 EUR") {
		t.Errorf("%q", questions)
	}
	asked.hides(d.key)
}
