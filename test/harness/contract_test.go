package harness

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// judged is what the harness says of an answer to POST /v1/refunds.
func judged(t *testing.T, status int, code, moved, extra string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/v1/refunds", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	advice := Problems[code]
	body := fmt.Sprintf(`{"type":"urn:refundd:problem:%s","title":"T","status":%d,"detail":"D","code":%q,"isRetryable":%v,"money_moved":%q,`+
		`"next_action":%q,"diagnostic_ref":"r"%s}`, code, status, code, advice.Retryable, moved, advice.NextAction,
		extra)
	h := http.Header{
		"Content-Type": {"application/problem+json"}, "Request-Id": {"r"}, "Cache-Control": {"no-store"}, "X-Should-Retry": {fmt.Sprint(advice.Retryable)},
	}
	x := exchange{request: r, answer: Answer{status, h, []byte(body)}}
	if strings.Contains(extra, "retry_after_seconds") {
		h.Set("Retry-After", "1")
	}
	if err := x.faults(false); err != nil {
		return fmt.Errorf("contract: %w", err)
	}
	return x.problemFaults()
}

// TestContract_PinsCodeAndMoneyOfEveryAnswer has one answer that is right, and one for each way to be untrue.
func TestContract_PinsCodeAndMoneyOfEveryAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		status             int
		code, moved, extra string
		says               string // "" where nothing is wrong
	}{
		{"a conflict", 422, "operation_id_conflict", "no", "", ""},
		{"a conflict that knows nothing", 422, "operation_id_conflict", "unknown", "", "contract"},
		{"a person's case that says no", 422, "operation_needs_attention", "no", "", "contract"},
		{"a code of another route", 422, "order_immutable", "no", "", "contract"},
		{"a code of another status", 404, "refund_declined", "no", "", "contract"},
		{"an unauthenticated one that says no", 401, "unauthenticated", "no", "", "contract"},
		{"too much, without what is left", 422, "amount_exceeds_refundable", "no", "", "contract"},
		{"too much", 422, "amount_exceeds_refundable", "no", `,"refundable_cents":0`, ""},
		{"overload", 503, "overloaded", "unknown", `,"retry_after_seconds":1`, ""},
		{"overload that says no", 503, "overloaded", "no", `,"retry_after_seconds":1`, "contract"},
		{"no provider, which says unknown", 503, "provider_unavailable", "unknown", `,"retry_after_seconds":1`,
			"contract"},
	} {
		err := judged(t, c.status, c.code, c.moved, c.extra)
		if (err == nil) != (c.says == "") || err != nil && !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestProblems_MoneyIsComparedExactly has the word that is in another one.
func TestProblems_MoneyIsComparedExactly(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/v1/refunds/k/reconcile", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for moved, right := range map[string]bool{"unknown": true, "no": false, "yes": false, "know": false, "": false} {
		x := exchange{request: r, answer: Answer{409, http.Header{
			"Content-Type": {"application/problem+json"}, "Request-Id": {"r"}, "X-Should-Retry": {"true"}, "Retry-After": {"1"},
		}, []byte(fmt.Sprintf(`{"type":"urn:refundd:problem:operation_in_progress","title":"T","status":409,"detail":"D","code":"operation_in_progress",`+
			`"isRetryable":true,"money_moved":%q,"next_action":"retry_same_operation","retry_after_seconds":1,"diagnostic_ref":"r"}`, moved))}}
		if err := x.problemFaults(); (err == nil) != right {
			t.Errorf("%q: %v", moved, err)
		}
	}
}

// TestContract_EveryProblemOfEveryRouteIsPinned walks the document: nowhere may a code or its money be left open.
func TestContract_EveryProblemOfEveryRouteIsPinned(t *testing.T) {
	t.Parallel()
	doc, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	pinned := 0
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				media := response.Value.Content["application/problem+json"]
				if media == nil {
					continue
				}
				schema := media.Schema.Value
				codes := 0
				for code := range Problems {
					for _, moved := range []string{"yes", "no", "unknown"} {
						if schema.VisitJSON(map[string]any{
							"type": "urn:refundd:problem:" +
								code, "title": "T", "status": float64(Problems[code].Status), "detail": "D",
							"code":        code,
							"isRetryable": true, "money_moved": moved, "next_action": "none", "diagnostic_ref": "r",
							"retry_after_seconds": 1.0, "refundable_cents": 1.0,
						}) == nil {
							codes++
						}
					}
				}
				if codes == 0 || codes > 14 { // of the 99 that there are
					t.Errorf("%s %s %s takes %d of all codes and moneys", method, path, status, codes)
				}
				pinned++
			}
		}
	}
	if pinned < 100 {
		t.Errorf("%d answers", pinned)
	}
}
