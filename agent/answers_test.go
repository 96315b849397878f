package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"refundd/client"
	"refundd/test/harness"
)

// approved is a service that knows one approval of every case, and answers its refund as refund says.
func approved(refund http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/authorizations") {
			refund(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"data":[{"operation_id":"K","case_id":"C","order_id":"A","amount_cents":100,"currency":"EUR","approved_by":"ada",
			"state":"open","created_at":"2026-01-02T03:04:05Z","refund":null,"metadata":{}}],"count":1}`)
	}
}

// ask calls a tool and reads its answer.
func (c *conversation) ask(t *testing.T, tool string, in map[string]any) (r Result) {
	t.Helper()
	answer, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(answer.Content[0].(*mcp.TextContent).Text), &r); err != nil {
		t.Fatal(err)
	}
	if answer.IsError != r.failed() {
		t.Errorf("isError %t of %+v", answer.IsError, r)
	}
	return r
}

// What a model is told after each problem of the service's contract: what moved, whether the same call may be repeated
// and what to do now, in the tools' own words.
func TestProcessRefund_TellsEveryProblemOfTheService(t *testing.T) {
	t.Parallel()
	unsaid := []string{ // which no call of a tool can meet
		"not_found", "idempotency_key_required", "method_not_allowed", "request_too_large", "unsupported_media_type", "order_immutable",
		"payment_already_registered", "already_executed", "escalation_not_approvable", "provider_disagrees", "resolution_conflict",
		"webhook_signature_invalid", "too_many_webhook_endpoints",
	}
	for code, advice := range harness.Problems {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			moved := client.MoneyMoved(advice.MoneyMoved)
			if moved == "" {
				moved = client.MoneyMovedUnknown
			}
			c := converse(t, approved(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.Header().Set("Retry-After", "61") // for longer than the client waits
				w.Header().Set("X-Should-Retry", fmt.Sprint(advice.Retryable))
				w.WriteHeader(advice.Status)
				fmt.Fprintf(w, `{"code":%q,"detail":%q,"isRetryable":%t,"money_moved":%q,"next_action":%q,"diagnostic_ref":"ref-1"}`,
					code, canary, advice.Retryable, moved, advice.NextAction)
			}), func(*Tools, *mcp.Server) {})
			want := Result{
				Status: StatusRefused, AmountCents: new(int64(100)), Currency: new("EUR"), MoneyMoved: moved, NextAction: advice.NextAction,
				CaseID: "C", OrderID: "A", Error: words[code], Code: code, IsRetryable: &advice.Retryable,
				RetryAfterSeconds: new(int64(61)), DiagnosticRef: "ref-1",
			}
			if advice.Status >= 500 {
				want.Status = StatusFailed
			}
			if slices.Contains(unsaid, code) {
				want.Code, want.Error = codeToolFailed, "The refund service refused."
			} else if want.Error == "" {
				t.Error("a model is told no word of it")
			}
			got := c.ask(t, "process_refund", map[string]any{"case_id": "C"})
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if call, _ := c.await(t); call.Code != want.Code || call.Status != want.Status {
				t.Errorf("counted as %+v", call)
			}
		})
	}
}

// Words in members that have a fixed set of them are not passed on, whoever said them: the schema of the answers holds
// always.
func TestProcessRefund_PassesNoStrangeWordOn(t *testing.T) {
	t.Parallel()
	const receipt = `{"operation_id":"K","refund_id":"r","order_id":"A","amount_cents":100,"currency":"EUR","state":%q,
		"money_moved":"unknown","status":%q,"replayed":false,"next_action":%q,"created_at":"2026-01-02T03:04:05Z"}`
	for name, c := range map[string]struct {
		status, body string
		want         string
	}{
		"a strange status": {"", fmt.Sprintf(receipt, "succeeded", canary, "none"),
			"failed tool_failed escalate_to_human"},
		"a strange action": {"", fmt.Sprintf(receipt, "reserved", "pending", canary),
			"pending escalate_to_human"},
		"a strange action, refusing": {"422", `{"code":"refund_declined","money_moved":"no","next_action":"` + canary +
			`"}`, "refused refund_declined escalate_to_human"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := converse(t, approved(func(w http.ResponseWriter, _ *http.Request) {
				if c.status != "" {
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusUnprocessableEntity)
				}
				fmt.Fprint(w, c.body)
			}), func(*Tools, *mcp.Server) {})
			for _, r := range []Result{
				s.ask(t, "process_refund", map[string]any{"case_id": "C"}),
				s.ask(t, "process_refunds", map[string]any{"case_ids": []string{"C"}}).parts()[0],
			} {
				if got := strings.Join(strings.Fields(r.Status+" "+r.Code+" "+r.NextAction), " "); got != c.want {
					t.Errorf("says %q, want %q", got, c.want)
				}
			}
		})
	}
}

func (r Result) parts() []Result { return slices.Concat(r.PartialResults, r.Failures) }

// The hints say which tools only read, which move money, and that all may be called again.
func TestTools_AreAnnotated(t *testing.T) {
	t.Parallel()
	c := converse(t, http.NotFound, func(*Tools, *mcp.Server) {})
	tools, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, tool := range tools.Tools {
		a := tool.Annotations
		got[tool.Name] = fmt.Sprintf("reads %t, destroys %t, again %t", a.ReadOnlyHint, *a.DestructiveHint,
			a.IdempotentHint)
	}
	const reads, writes, moves = "reads true, destroys false, again true", "reads false, destroys false, again true",
		"reads false, destroys true, again true"
	want := map[string]string{
		"find_orders": reads, "check_refund": reads, "get_refund": reads, "request_refund": writes, "escalate_to_human": writes,
		"process_refund": moves, "process_refunds": moves,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
