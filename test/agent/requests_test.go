package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
)

const requestsPath = "/v1/refund-requests"

func wishOf(caseID, order string, cents int64, more ...any) harness.Fields {
	f := harness.Fields{"case_id": caseID, "order_id": order, "amount_cents": cents, "reason_code": "damaged"}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	return f
}

// decision is a decided request on the wire.
type decision struct {
	Decision      string  `json:"decision"`
	Replayed      bool    `json:"replayed"`
	Trigger       *string `json:"trigger"`
	Queue         *string `json:"queue"`
	PolicyVersion string  `json:"policy_version"`
	OperationID   *string `json:"operation_id"`
	EscalationID  *string `json:"escalation_id"`
}

func read(t testing.TB, a harness.Answer) (d decision) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &d); err != nil {
		t.Errorf("%v: %d %s", err, a.Status, a.Body)
	}
	return d
}

// together runs f for 0 to n-1 at once.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() { <-start; f(i) })
	}
	close(start)
	all.Wait()
}

// Each decision, first tried and then made: the trial stores nothing, and says what the decision then is.
func TestRequests_EachDecision_AsItsPreviewSaid(t *testing.T) {
	t.Parallel()
	s := harness.New(t, "--policy", harness.PolicyFile(t))
	d := s.Tenant(t)
	for _, order := range []string{"A", "B", "C", "D", "E", "F", "G", "H"} {
		d.Order(order, 10000)
	}
	d.Approve("K", "H", 9000)
	for _, c := range []struct {
		name, order string
		cents       int64
		more        []any
		want        string
	}{
		{"within the limits", "A", 5000, nil, "approved  "},
		{"a wish for a person", "B", 100, []any{"asked_for_human", true, "categories", []string{"self_harm"}},
			"escalated asked_for_human people"},
		{"a category", "C", 100, []any{"categories", []string{"legal_or_regulatory"}},
			"escalated legal_or_regulatory legal"},
		{"policy is silent", "D", 100, []any{"reason_code", "bored"}, "escalated policy_silent refunds"},
		{"beyond the limit", "E", 5001, nil, "escalated beyond_limit refunds"},
		{"beyond the order's", "H", 100, nil, "escalated beyond_limit refunds"},
	} {
		wish := wishOf("case of "+c.name, c.order, c.cents, c.more...)
		says := func(x decision) string { return fmt.Sprint(x.Decision, " ", text(x.Trigger), " ", text(x.Queue)) }
		before := d.Rows()
		a := d.Client().Post(requestsPath+"?preview=true", wish)
		if got := says(read(t, a)); a.Status != http.StatusOK || got != c.want {
			t.Errorf("%s: preview %d %s, want %s", c.name, a.Status, got, c.want)
		}
		if d.Rows() != before {
			t.Errorf("%s: the preview stored something", c.name)
		}
		a = d.Client().Post(requestsPath, wish)
		first := read(t, a)
		if a.Status != http.StatusCreated || says(first) != c.want ||
			(first.OperationID == nil) == (first.EscalationID == nil) {
			t.Errorf("%s: %d %s", c.name, a.Status, a.Body)
		}
		again := read(t, d.Client().Post(requestsPath, wish))
		if !again.Replayed || says(again) != c.want || text(again.OperationID) != text(first.OperationID) {
			t.Errorf("%s again: %+v", c.name, again)
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// What is felt, guessed or not the tenant's own decides nothing, and stores nothing.
func TestRequests_BadInput_StoresNothing(t *testing.T) {
	t.Parallel()
	s := harness.New(t, "--policy", harness.PolicyFile(t))
	d, other := s.Tenant(t), s.Tenant(t)
	d.Order("A", 10000)
	other.Order("theirs", 10000)
	before := d.Rows()
	good := string(harness.JSON(wishOf("C", "A", 100)))
	for name, c := range map[string]struct{ body, want string }{
		"sentiment":       {strings.Replace(good, "{", `{"sentiment":"angry",`, 1), "malformed_request"},
		"confidence":      {strings.Replace(good, "{", `{"confidence":0.9,`, 1), "malformed_request"},
		"a duplicate":     {strings.Replace(good, "{", `{"case_id":"D",`, 1), "malformed_request"},
		"amount as text":  {strings.Replace(good, "100", `"100"`, 1), "malformed_request"},
		"invalid UTF-8":   {strings.Replace(good, `"C"`, "\"C\xff\"", 1), "malformed_request"},
		"NUL":             {strings.Replace(good, `"C"`, `"C\u0000"`, 1), "malformed_request"},
		"64 KiB and more": {strings.Replace(good, `"C"`, `"`+strings.Repeat("C", 64<<10)+`"`, 1), "request_too_large"},
		"below 64 KiB":    {strings.Replace(good, `"C"`, `"`+strings.Repeat("C", 63<<10)+`"`, 1), "invalid_request"},
		"no amount":       {strings.Replace(good, `"amount_cents":100,`, "", 1), "invalid_request"},
		"no category":     {strings.Replace(good, "{", `{"categories":["rude"],`, 1), "invalid_request"},
		"another's order": {strings.Replace(good, `"A"`, `"theirs"`, 1), "order_not_found"},
	} {
		a := d.Client().Do(harness.Request{Method: http.MethodPost, Path: requestsPath, Body: []byte(c.body)})
		if a.Code() != c.want {
			t.Errorf("%s: %d %.300s, want %s", name, a.Status, a.Body, c.want)
		}
	}
	if d.Rows() != before {
		t.Error("something was stored")
	}
	// Another tenant's case, looked at and decided, is unknown.
	e := read(t, d.Client().Post(requestsPath, wishOf("C", "A", 9000)))
	for _, act := range []string{"approve", "decline"} {
		a := other.Client().Post("/v1/escalations/"+text(e.EscalationID)+"/"+act, harness.Fields{})
		if a.Status != http.StatusNotFound {
			t.Errorf("%s of another's case: %d %s", act, a.Status, a.Body)
		}
	}
}

// The same request twenty times at once on two replicas is decided once.
func TestRequests_TwentyAtOnceOnTwoReplicas_MintOnce(t *testing.T) {
	t.Parallel()
	s := harness.New(t, "--policy", harness.PolicyFile(t))
	s.AddServer(t, "--policy", harness.PolicyFile(t))
	d := s.Tenant(t)
	for round := range 5 {
		order := fmt.Sprint("O", round)
		d.Order(order, 10000)
		answers := make([]decision, 20)
		together(20, func(i int) { answers[i] = read(t, d.At(i%2).Post(requestsPath, wishOf("C", order, 1000))) })
		fresh := 0
		for _, a := range answers {
			if !a.Replayed {
				fresh++
			}
			if text(a.OperationID) != text(answers[0].OperationID) || a.Decision != "approved" {
				t.Errorf("%+v and %+v", a, answers[0])
			}
		}
		if fresh != 1 {
			t.Errorf("%d of 20 are the first", fresh)
		}
	}
}

// A request races an approval that another system registers, and then everything is executed: never beyond the capture.
func TestRequests_RaceARegisteredApproval(t *testing.T) {
	t.Parallel()
	s := harness.New(t, "--policy", harness.PolicyFile(t))
	d := s.Tenant(t)
	for round := range 10 {
		order, operation := fmt.Sprint("O", round), fmt.Sprint("K", round)
		d.Order(order, 6000)
		var asked decision
		together(2, func(i int) {
			if i == 0 {
				asked = read(t, d.Client().Post(requestsPath, wishOf(fmt.Sprint("C", round), order, 5000)))
				return
			}
			a := d.Client().Put(harness.AuthorizationPath(operation),
				harness.Fields{"case_id": fmt.Sprint("C", round), "order_id": order,
					"amount_cents": 5000, "approved_by": "ann"})
			if a.Status != http.StatusCreated {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
		together(2, func(i int) {
			if i == 0 {
				d.Client().Refund(operation, order, 5000)
			} else if asked.OperationID != nil {
				d.Client().Refund(*asked.OperationID, order, 5000)
			}
		})
		if moved := d.Moved(order); moved != 5000 {
			t.Errorf("%d moved of 6000, asked for twice 5000", moved)
		}
	}
}

// An approval races a refund that uses the remainder: in either order one of them moves money, once.
func TestApprove_RacesARefundThatUsesTheRemainder(t *testing.T) {
	t.Parallel()
	s := harness.New(t, "--policy", harness.PolicyFile(t))
	d := s.Tenant(t)
	asker := d.NewKey(agentScopes)
	for round := range 10 {
		order, operation := fmt.Sprint("O", round), fmt.Sprint("K", round)
		d.Order(order, 10000)
		d.Approve(operation, order, 9000)
		e := read(t, d.Client().With(asker).Post(requestsPath, wishOf(order, order, 9000)))
		var approval harness.Answer
		together(2, func(i int) {
			if i == 0 {
				d.Client().Refund(operation, order, 9000)
			} else {
				approval = d.Client().Post("/v1/escalations/"+text(e.EscalationID)+"/approve", harness.Fields{})
			}
		})
		switch {
		case approval.Status == http.StatusOK:
			minted := text(read(t, approval).OperationID)
			if a := d.Client().Refund(minted, order, 9000); a.Code() != "amount_exceeds_refundable" {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		case approval.Code() != "escalation_not_approvable":
			t.Errorf("%d %s", approval.Status, approval.Body)
		}
		if moved := d.Moved(order); moved != 9000 {
			t.Errorf("%d moved", moved)
		}
	}
}

// Nobody approves what their own key asked for, whatever else it may do; two others who approve at once end in one
// approval.
func TestApprove_IsNotTheRequestersOwn(t *testing.T) {
	t.Parallel()
	s := harness.New(t, "--policy", harness.PolicyFile(t))
	s.AddServer(t, "--policy", harness.PolicyFile(t))
	d := s.Tenant(t)
	d.Order("A", 10000)
	e := read(t, d.Client().Post(requestsPath, wishOf("C", "A", 9000)))
	path := "/v1/escalations/" + text(e.EscalationID) + "/approve"
	before := d.Rows()
	if a := d.Client().Post(path, harness.Fields{"decided_by": "ann"}); a.Code() != "escalation_not_approvable" ||
		d.Rows() != before {
		t.Errorf("%d %s, or a row changed", a.Status, a.Body)
	}
	others := []string{d.NewKey(harness.AllScopes), d.NewKey(harness.AllScopes)}
	minted := make([]string, 6)
	together(6, func(i int) {
		a := d.At(i).With(others[i%2]).Post(path, harness.Fields{})
		if a.Status != http.StatusOK {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		minted[i] = text(read(t, a).OperationID)
	})
	for _, id := range minted {
		if id == "" || id != minted[0] {
			t.Errorf("approvals minted %q", minted)
		}
	}
	if a := d.Client().Refund(minted[0], "A", 9000); a.Status != http.StatusCreated {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A person's decision of an operation closes its case, in the same transaction; an approval of the case never was an
// answer.
func TestEscalation_OfAnOperation_EndsWithAPersonsResolution(t *testing.T) {
	t.Parallel()
	s, d, path := needing(t)
	a := d.Client().Post(harness.RefundPath("K")+"/resolve",
		harness.Fields{"outcome": "failed", "evidence": "asked the provider", "override": true})
	if a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	e := harness.Read[map[string]any](t, d.Client().Get(path))
	if e["state"] != "closed" || e["closed_by"] == nil || e["closed_at"] == nil {
		t.Errorf("%v", e)
	}
	s.Audit(t)
}

// SIGHUP under load drops no request; a broken file leaves the policy that is.
func TestPolicy_IsReadAnewUnderLoad(t *testing.T) {
	t.Parallel()
	path := harness.PolicyFile(t)
	s := harness.New(t, "--policy", path)
	d := s.Tenant(t)
	d.Order("A", 10000)
	ask := func(i int) decision {
		a := d.Client().Post(requestsPath+"?preview=true", wishOf(fmt.Sprint("C", i), "A", 100))
		if a.Status != http.StatusOK {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		return read(t, a)
	}
	var load sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					ask(i)
				}
			}
		})
	}
	for i := range 5 {
		version := fmt.Sprint("v", i)
		write(t, path, strings.Replace(harness.Policy, `"test"`, `"`+version+`"`, 1))
		s.Servers[0].Hangup(t)
		for began := time.Now(); ask(i).PolicyVersion != version; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("version %s is not in force", version)
			}
		}
	}
	write(t, path, "version: [")
	s.Servers[0].Hangup(t)
	if _, err := s.Servers[0].Logs.Await(20*time.Second, nil, "policy not read"); err != nil {
		t.Error(err)
	}
	close(done)
	load.Wait()
	if got := ask(0).PolicyVersion; got != "v4" {
		t.Errorf("after a broken file %s is in force", got)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), "next")
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// An operation that needs attention opens a case in `refundd reconcile`, and closes it in serve, while people try to
// decide it.
func TestEscalation_OfAnOperation_EndsWithIt(t *testing.T) {
	t.Parallel()
	s, d, path := needing(t)
	s.Simulator.Refund(d.ProviderKey("K"),
		harness.Fields{"payment_ref": d.Ref("A"), "amount_cents": 1000, "currency": "EUR",
			"metadata": harness.Fields{"tenant_id": d.ID, "operation_id": "K"}})
	s.Due(t)
	together(5, func(i int) {
		if i == 0 {
			d.Client().Post(harness.RefundPath("K")+"/reconcile", harness.Fields{})
			return
		}
		act := []string{"/approve", "/decline"}[i%2]
		if a := d.Client().Post(path+act, harness.Fields{}); a.Code() != "escalation_not_approvable" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	})
	e := harness.Read[map[string]any](t, d.Client().Get(path))
	refund := harness.Read[harness.Refund](t, d.Client().Get(harness.RefundPath("K")))
	if refund.State != "succeeded" || e["state"] != "closed" {
		t.Errorf("the operation is %s, its case %v", refund.State, e)
	}
}

// needing is a service with an operation K of order A that needs attention, and the path of its case.
func needing(t *testing.T) (*harness.Service, *harness.Tenant, string) {
	t.Helper()
	s := harness.NewPaying(t, "--provider-timeout", "700ms", "--lease", "3s", "--listing-lag", "100ms", "--policy",
		harness.PolicyFile(t))
	s.AddServer(t)
	d := s.Tenant(t)
	d.Pay(harness.Payment{OrderID: "A", Cents: 10000})
	d.Approve("K", "A", 1000)
	s.Simulator.Fault("drop_before", harness.Times(1))
	if a := d.Client().Refund("K", "A", 1000); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.Simulator.Heal()
	d.Exec(`UPDATE refund_operations SET provider_key_expires_at = '2000-01-01' WHERE tenant_id = $1`, d.ID)
	time.Sleep(200 * time.Millisecond) // the listing lag
	s.Due(t)
	if r := s.Reconcile(t); r.NeedsAttention != 1 {
		t.Fatalf("%+v", r)
	}
	open := harness.Read[harness.List[map[string]any]](t, d.Client().Get("/v1/escalations?state=open"))
	if len(open.Data) != 1 || open.Data[0]["subject"] != "operation" || open.Data[0]["operation_id"] != "K" {
		t.Fatalf("%v", open.Data)
	}
	return s, d, fmt.Sprint("/v1/escalations/", open.Data[0]["escalation_id"])
}
