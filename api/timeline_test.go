package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
)

// timeline is a refund's history, each entry in one line: money as its kind and accounts, events as what they say.
// Times rise, and only attempts that the provider answered have its name of the exchange.
func (p *provided) timeline(t *testing.T, operationID string) []string {
	t.Helper()
	a := p.do(t, "GET", "/v1/refunds/"+operationID+"/events?limit=100", "")
	wantAnswer(t, a, 200, "next_cursor=null")
	data, _ := a.body["data"].([]any)
	var lines []string
	var last string
	for _, d := range data {
		e := d.(map[string]any)
		if at := e["at"].(string); at < last || at < "2020" {
			t.Errorf("an entry of %s after one of %s", at, last)
		} else {
			last = at
		}
		if transfer, ok := e["transfer"].(map[string]any); ok {
			lines = append(lines, fmt.Sprint(transfer["kind"], " ", transfer["debit_account"], "→",
				transfer["credit_account"]))
			continue
		}
		lines = append(lines, eventLine(e["event"].(map[string]any)))
	}
	return lines
}

func eventLine(e map[string]any) string {
	words := []string{e["kind"].(string), fmt.Sprint(e["attempt"])}
	if e["to_state"] != nil {
		words = append(words, fmt.Sprint(e["from_state"], "→", e["to_state"]))
	}
	words = append(words, fmt.Sprint("by ", e["actor"]))
	for _, name := range []string{"layer", "error_kind"} {
		if e[name] != nil {
			words = append(words, e[name].(string))
		}
	}
	if e["provider_request_id"] != nil {
		words = append(words, "answered")
	}
	detail := e["detail"].(map[string]any)
	names := make([]string, 0, len(detail))
	for name := range detail {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "diagnostic_ref" { // which is another one each time
			detail[name] = "…"
		}
		words = append(words, fmt.Sprint(name, "=", detail[name]))
	}
	return strings.ReplaceAll(strings.Join(words, " "), "<nil>", "null")
}

func TestTimeline_ShowsAttemptsTransitionsAndMoney(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.fault(t, `{"mode":"error_after","count":1}`)
	p.fault(t, `{"mode":"fail_later","delay_ms":3000,"count":1}`)
	p.refund(t, "A", header("Refund-Attempt-Layer", "agent_loop"), header("Refund-Attempt", "1"))
	p.fault(t, `{"mode":"lookup_down","count":1}`)
	wantAnswer(t, p.reconcile(t, "A"), 200, "state=reserved")
	p.later(t, "A")
	wantAnswer(t, p.refund(t, "A", header("Refund-Attempt-Layer", "mine"), header("Refund-Attempt", "2")), 201)
	eventually(t, "it fails", func() bool { return p.reconcile(t, "A").text("state") == "failed" })
	got := p.timeline(t, "A")
	// How often it was looked up until it failed is a matter of time.
	got = slices.DeleteFunc(got, func(line string) bool {
		return strings.HasPrefix(line, "lookup") && strings.HasSuffix(line, "by operator answered outcome=succeeded")
	})
	for i, line := range got {
		words := strings.Fields(line)
		if i > 7 && words[1] != "customer→merchant" {
			words[1] = "n"
		}
		got[i] = strings.Join(words, " ")
	}
	want := []string{
		"hold merchant→in_transit",
		"transition 1 null→reserved by caller agent_loop diagnostic_ref=… refund_attempt=1",
		"refund 1 by caller agent_loop unknown answered refund_attempt=1",
		"lookup 2 by operator unknown answered",
		"settle in_transit→customer",
		"lookup 3 by caller other answered diagnostic_ref=… outcome=succeeded refund_attempt=2",
		"transition 3 reserved→succeeded by caller",
		"reversal customer→merchant",
		"lookup n by operator answered decline_code=expired_or_canceled_card outcome=declined",
		"transition n succeeded→failed by operator failure_code=late_failure",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("timeline:\n%s", d)
	}
}

func TestTimeline_ShowsAPersonsEvidence(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.lost(t, "A", `{"mode":"error_before","count":1}`)
	p.fault(t, `{"mode":"lookup_down"}`)
	wantAnswer(t, p.resolve(t, "A",
		`{"outcome":"failed","evidence":"T-77: <none>","override":true,"resolved_by":"ada"}`), 200)
	var actor string
	if err := p.db.Owner.QueryRow(t.Context(),
		`SELECT key_id FROM api_keys WHERE tenant_id = $1`, tenant).Scan(&actor); err != nil {
		t.Fatal(err)
	}
	got := p.timeline(t, "A")
	want := []string{
		"hold merchant→in_transit",
		"transition 1 null→reserved by caller diagnostic_ref=…",
		"refund 1 by caller unknown answered",
		"lookup 2 by operator not_found answered",
		"transition 2 reserved→needs_attention by operator failure_code=provider_key_expired",
		"release in_transit→merchant",
		"human 3 by " + actor + " decline_code=resolved_failed evidence=T-77: <none> outcome=declined override=true provider_shows=unknown resolved_by=ada",
		"transition 3 needs_attention→failed by " + actor + " failure_code=resolved_failed",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("timeline:\n%s", d)
	}

	p.behave(t)
	p.lost(t, "B", `{"mode":"error_before","count":1}`)
	wantAnswer(t, p.resolve(t, "B", `{"outcome":"succeeded","evidence":"e"}`), 200)
	if got := p.timeline(t, "B"); !slices.Contains(got,
		"human 3 by "+actor+" evidence=e outcome=succeeded provider_shows=not_found") {
		t.Errorf("timeline without a name: %q", got)
	}
}

func TestProvidersWords_AppearNowhere(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{
		`{"mode":"error_before","code":"` + canary +
			`"}`, `{"mode":"error_before","status":401}`, `{"mode":"error_after","status":503}`,
		`{"mode":"drop_after"}`, `{"mode":"refuse","code":"` + canary + `"}`, `{"mode":"decline","code":"` + canary +
			`"}`,
		`{"mode":"decline"}`, `{"mode":"fail_later","code":"` + canary + `"}`, `{"mode":"lookup_down","code":"` +
			canary + `"}`,
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			p := startProvided(t, operations.Config{})
			p.paid(t, "A")
			p.fault(t, fault)
			for range 2 { // every answer is held against the canary
				p.refund(t, "A")
				p.later(t, "A")
				p.reconcile(t, "A")
				p.resolve(t, "A", `{"outcome":"failed","evidence":"e"}`)
			}
			p.do(t, "GET", "/v1/refunds/A", "")
			p.do(t, "GET", "/v1/refunds", "")
			p.timeline(t, "A")
			var rows int
			err := p.db.Owner.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM operation_events e
				WHERE e::text LIKE $1)
				+ (SELECT count(*) FROM refund_operations o WHERE o::text LIKE $1)`, "%"+canary+"%").Scan(&rows)
			if err != nil || rows != 0 {
				t.Errorf("%d rows have the provider's words (%v)", rows, err)
			}
		})
	}
}

// stub is a provider that answers what a test has it answer.
type stub struct {
	result operations.ProviderResult
	err    error
}

func (s stub) Refund(context.Context, operations.ProviderRequest) (operations.ProviderResult, error) {
	return s.result, s.err
}

func (s stub) Lookup(context.Context, operations.ProviderRequest) (operations.ProviderResult, error) {
	return s.result, s.err
}

func TestProvidersNames_ThatAreNone_NeitherStopARecordNorShow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refundID, requestID string
		err                 error
		state               string
	}{
		"request, NUL":       {"re_1", "req\x00", nil, "succeeded"},
		"request, no text":   {"re_1", "\xff", nil, "succeeded"},
		"request, too long":  {"re_1", strings.Repeat("r", 256), nil, "succeeded"},
		"request, a message": {"re_1", "not " + canary, nil, "succeeded"},
		"refund, NUL":        {"re\x00", "req_1", nil, "reserved"},
		"refund, too long":   {strings.Repeat("r", 256), "req_1", nil, "reserved"},
		"error": {"", "", &operations.ProviderError{Kind: operations.ErrorUnknown, RequestID: "a " +
			canary, Cause: errors.New(canary)}, "reserved"},
		"another error": {"", "", errors.New(canary), "reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := operations.ProviderResult{Outcome: operations.OutcomeSucceeded, ProviderRefundID: c.refundID,
				RequestID: c.requestID}
			s := startWith(t, operations.Config{Providers: map[string]operations.ProviderSetup{
				"simulator": {Provider: stub{result, c.err}, KeyRetention: 24 * time.Hour, MaxKeyLength: 255},
			}})
			p := &provided{service: s}
			p.paid(t, "A")
			p.refund(t, "A")
			wantAnswer(t, p.do(t, "GET", "/v1/refunds/A", ""), 200, "state="+c.state)
			for _, line := range p.timeline(t, "A") {
				if strings.HasPrefix(line, "refund") && strings.Contains(line, "answered") != (c.requestID == "req_1") {
					t.Errorf("timeline: %s", line)
				}
			}
			p.checkSecrets(t)
		})
	}
}
