package harness

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Advice is what a code tells the caller.
type Advice struct {
	Status     int
	Retryable  bool
	MoneyMoved string // unknown: `no` on a route that names no operation; "" as the operation's
	NextAction string
}

// Problems is the table of the contract's codes, written down a second time on purpose.
var Problems = map[string]Advice{
	"malformed_request":          {400, false, "unknown", "fix_request"},
	"idempotency_key_required":   {400, false, "unknown", "fix_request"},
	"webhook_signature_invalid":  {400, false, "unknown", "fix_request"},
	"unauthenticated":            {401, false, "unknown", "escalate_to_human"},
	"forbidden":                  {403, false, "unknown", "escalate_to_human"},
	"order_not_found":            {404, false, "no", "fix_request"},
	"not_found":                  {404, false, "no", "fix_request"},
	"authorization_not_found":    {404, false, "no", "request_authorization"},
	"refund_not_found":           {404, true, "unknown", "retry_same_operation"},
	"method_not_allowed":         {405, false, "unknown", "fix_request"},
	"request_too_large":          {413, false, "unknown", "fix_request"},
	"unsupported_media_type":     {415, false, "unknown", "fix_request"},
	"operation_in_progress":      {409, true, "unknown", "retry_same_operation"},
	"invalid_request":            {422, false, "unknown", "fix_request"},
	"too_many_matches":           {422, false, "unknown", "fix_request"},
	"operation_id_conflict":      {422, false, "no", "escalate_to_human"},
	"authorization_mismatch":     {422, false, "no", "request_authorization"},
	"authorization_expired":      {422, false, "no", "request_authorization"},
	"authorization_revoked":      {422, false, "no", "request_authorization"},
	"amount_exceeds_refundable":  {422, false, "no", "request_authorization"},
	"currency_mismatch":          {422, false, "no", "fix_request"},
	"order_immutable":            {422, false, "no", "fix_request"},
	"payment_already_registered": {422, false, "no", "fix_request"},
	"already_executed":           {422, false, "", "wait_then_get"},
	"refund_declined":            {422, false, "no", "request_authorization"},
	"escalation_not_approvable":  {422, false, "no", "escalate_to_human"},
	"operation_needs_attention":  {422, false, "unknown", "escalate_to_human"},
	"provider_disagrees":         {422, false, "unknown", "escalate_to_human"},
	"resolution_conflict":        {422, false, "unknown", "escalate_to_human"},
	"too_many_webhook_endpoints": {422, false, "no", "fix_request"},
	"rate_limited":               {429, true, "unknown", "retry_same_operation"},
	"internal":                   {500, true, "unknown", "retry_same_operation"},
	"overloaded":                 {503, true, "unknown", "retry_same_operation"},
	"database_unavailable":       {503, true, "unknown", "retry_same_operation"},
	"provider_unavailable":       {503, true, "no", "retry_same_operation"},
	"deadline_exceeded":          {504, true, "unknown", "wait_then_get"},
}

// waits are the codes whose answer says how long to wait.
var waits = map[string]bool{
	"operation_in_progress": true, "rate_limited": true, "overloaded": true, "database_unavailable": true, "provider_unavailable": true,
}

// pointed are the codes whose answer points to what is wrong with the request.
var pointed = map[string]bool{"malformed_request": true, "idempotency_key_required": true, "invalid_request": true}

// problemFaults holds a problem against the table.
func (x exchange) problemFaults() error {
	p, err := decode[Problem](x.answer)
	if err != nil {
		return err
	}
	advice, known := Problems[p.Code]
	if !known {
		return fmt.Errorf("code %q is not in the table", p.Code)
	}
	h := x.answer.Header
	var faults []error
	differ := func(what string, got, want any) {
		if got != want {
			faults = append(faults, fmt.Errorf("%s: %s is %v, want %v", p.Code, what, got, want))
		}
	}
	differ("media type", h.Get("Content-Type"), "application/problem+json")
	differ("type", p.Type, "urn:refundd:problem:"+p.Code)
	differ("HTTP status", x.answer.Status, advice.Status)
	differ("status", p.Status, advice.Status)
	differ("isRetryable", p.IsRetryable, advice.Retryable)
	differ("X-Should-Retry", h.Get("X-Should-Retry"), strconv.FormatBool(advice.Retryable))
	differ("next_action", p.NextAction, advice.NextAction)
	differ("diagnostic_ref", p.DiagnosticRef, h.Get("Request-Id"))
	differ("has field errors", len(p.Errors) > 0, pointed[p.Code])
	if want := x.moved(p.Code, advice.MoneyMoved); !slices.Contains(want, p.MoneyMoved) {
		differ("money_moved", p.MoneyMoved, want)
	}
	differ("says what is refundable", p.RefundableCents != nil, p.Code == "amount_exceeds_refundable")
	if p.RetryAfterSeconds != nil {
		differ("Retry-After", h.Get("Retry-After"), strconv.Itoa(*p.RetryAfterSeconds))
	}
	differ("says how long to wait", p.RetryAfterSeconds != nil || p.Code == "deadline_exceeded" ||
		p.Code == "internal" || p.Code == "refund_not_found",
		waits[p.Code] || p.Code == "deadline_exceeded" || p.Code == "internal" || p.Code == "refund_not_found")
	return errors.Join(faults...)
}

// moved is what a code may say of money on this route: one thing, but where the operation's own row decides.
func (x exchange) moved(code, table string) []string {
	path := x.request.URL.EscapedPath()
	approvals := strings.HasPrefix(path, "/v1/authorizations/")
	below := approvals || strings.HasPrefix(path, "/v1/refunds/")
	names := below || path == "/v1/refunds" && x.request.Method == http.MethodPost
	switch {
	case table == "", // a refund that needed no approval may hold the key
		approvals && slices.Contains([]string{"authorization_not_found", "order_not_found", "currency_mismatch"}, code):
		return []string{"yes", "no", "unknown"}
	case code == "provider_unavailable" && strings.HasSuffix(path, "/resolve"):
		return []string{"unknown"}
	case code == "not_found" && below, code == "method_not_allowed" && path == "/v1/refunds":
		// whether such a request names an operation is a matter of taste; neither is untrue
		return []string{"no", "unknown"}
	case table == "unknown" && !names:
		return []string{"no"}
	}
	return []string{table}
}
