package agent

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What follows is the only specification that a model reads: when to call each tool, what its answers mean, and what
// not to do after one that did not come.

const instructions = `Refunds are approved first (request_refund) and then executed (process_refund). Calling either ` +
	`of them again with the same arguments is always safe: a refund is executed at most once. There is no key to ` +
	`invent; never start another case to get around an answer. money_moved says whether money moved: yes, no or ` +
	`unknown. Unknown means unknown: tell nobody that a refund failed or succeeded before get_refund says so. An answer ` +
	`with isError says in next_action what to do: retry_same_operation (the same call again), wait_then_get ` +
	`(get_refund, later), fix_request (the arguments are wrong), request_authorization (request_refund), ` +
	`ask_for_identifier (ask the customer which one is meant), escalate_to_human. If a person is wished for, call ` +
	`escalate_to_human at once.`

const afterSilence = ` If no answer comes, or the call times out, the refund may have been executed: call get_refund ` +
	`with the same case_id, or this tool again with the same arguments. Never change an argument to try again.`

var (
	findOrders = &mcp.Tool{
		Name: "find_orders", Title: "Find orders",
		Description: `Finds orders by order_id, or by the customer's e-mail or id. Call it first, when the order is not ` +
			`known for certain. It returns ALL orders that match, with match_count. Several matches have next_action ` +
			`ask_for_identifier: ask the customer which order is meant and never pick one yourself. status none_found means ` +
			`that the search worked and there is none; an answer with isError means that the search itself failed, which says ` +
			`nothing about the customer.`,
		InputSchema: object(`"order_id":{"type":"string","minLength":1,"maxLength":255},
			"customer_email":{"type":"string","minLength":1,"maxLength":255},
			"customer_id":{"type":"string","minLength":1,"maxLength":255}`),
		OutputSchema: resultSchema, Annotations: reads("Find orders"),
	}
	checkRefund = &mcp.Tool{
		Name: "check_refund", Title: "Preview a refund",
		Description: `Tells what an order can still give back (refundable_cents) and whether the policy would approve this ` +
			`refund (would_approve) or put it in front of a person (would_escalate). It stores nothing, approves nothing and ` +
			`moves nothing. amount_cents is a whole number of the currency's smallest unit (4999 is 49.99 in USD, and 4999 ` +
			`yen) and must be given: there is no default.`,
		InputSchema: object(wish, "case_id", "order_id", "amount_cents", "reason_code"), OutputSchema: resultSchema,
		Annotations: reads("Preview a refund"),
	}
	requestRefund = &mcp.Tool{
		Name: "request_refund", Title: "Ask for a refund to be approved",
		Description: `Asks for a refund to be approved. It moves no money: approved means that process_refund may execute ` +
			`it now; escalated means that a person decides (queue, due_at), so tell the customer that, and do not ask again ` +
			`with other words, another amount or another case. Asked again with the same arguments it gives the first ` +
			`decision (replayed true). Set asked_for_human if the customer wishes for a person, and name every category that ` +
			`applies. amount_cents is a whole number of the currency's smallest unit and must be given.` + afterSilence,
		InputSchema: object(wish, "case_id", "order_id", "amount_cents", "reason_code"), OutputSchema: resultSchema,
		Annotations: writes("Ask for a refund to be approved", false),
	}
	processRefund = &mcp.Tool{
		Name: "process_refund", Title: "Execute an approved refund",
		Description: `Executes the refund that was approved in a case. It takes the case and nothing else; order_id, ` +
			`amount_cents or line only tell several approvals of one case apart. processed: the money moved now. ` +
			`already_processed: an earlier call moved it, once; this is its receipt, and not an error. pending: the outcome ` +
			`is not known yet; wait, then call get_refund. ambiguous_case: this call moved nothing; the answer lists the ` +
			`approvals, each with a line that selects it.` + afterSilence,
		InputSchema: object(pick, "case_id"), OutputSchema: resultSchema,
		Annotations: writes("Execute an approved refund", true),
	}
	processRefunds = &mcp.Tool{
		Name: "process_refunds", Title: "Execute the approved refunds of several cases",
		Description: `Executes the approved refunds of up to 50 cases, each as process_refund does. status is ok, ` +
			`partial_failure or failed. partial_results are the cases that were refunded or are pending, failures those that ` +
			`were not or of which it is not known, coverage_gap names them and alternatives says what to do about each: ` +
			`report them all, never only those that went well.` + afterSilence,
		InputSchema: object(`"case_ids":{"type":"array","minItems":1,"maxItems":50,
			"items":{"type":"string","minLength":1,"maxLength":255}}`, "case_ids"),
		OutputSchema: resultSchema, Annotations: writes("Execute the approved refunds of several cases", true),
	}
	getRefund = &mcp.Tool{
		Name: "get_refund", Title: "Look a refund up",
		Description: `Tells how the refund of a case stands now. Call it after a call that gave no answer, and after ` +
			`pending. succeeded: the money moved. failed: it did not, or it came back. reserved, pending: not known yet, ask ` +
			`again later. needs_attention: people find out; do not promise anything. not_executed: approved, and nobody ` +
			`executed it so far.`,
		InputSchema: object(pick, "case_id"), OutputSchema: resultSchema, Annotations: reads("Look a refund up"),
	}
	escalateToHuman = &mcp.Tool{
		Name: "escalate_to_human", Title: "Hand a case over to a person",
		Description: `Puts a case in front of a person, who gets what was asked, tried and found so far. Call it when the ` +
			`customer wishes for a person, when a category applies, when an answer says next_action escalate_to_human, or ` +
			`when no outcome can be learned. Say in summary what the customer wants and what was tried, for people to read. ` +
			`Called again it is the same case.`,
		InputSchema: object(`"case_id":{"type":"string","minLength":1,"maxLength":255},
			"order_id":{"type":"string","maxLength":255},
			"trigger":{"enum":["asked_for_human","violence_threat","self_harm","fraud_allegation","legal_or_regulatory",
				"harassment","tool_failure","outcome_unknown","other"]},
			"summary":{"type":"string","maxLength":4000}`, "case_id", "trigger"),
		OutputSchema: resultSchema, Annotations: writes("Hand a case over to a person", false),
	}
)

const wish = `"case_id":{"type":"string","minLength":1,"maxLength":255,
		"description":"The conversation's case, the same throughout."},
	"order_id":{"type":"string","minLength":1,"maxLength":255},
	"amount_cents":{"type":"integer","minimum":1,"maximum":9007199254740991,
		"description":"In the currency's smallest unit."},
	"reason_code":{"type":"string","minLength":1,"maxLength":63,"description":"Such as damaged, not_received, late."},
	"asked_for_human":{"type":"boolean","description":"The customer explicitly wishes for a person."},
	"categories":{"type":"array","maxItems":5,"items":{"enum":["violence_threat","self_harm","fraud_allegation",
		"legal_or_regulatory","harassment"]}}`

const pick = `"case_id":{"type":"string","minLength":1,"maxLength":255},
	"order_id":{"type":"string","minLength":1,"maxLength":255,"description":"Only to tell several approvals apart."},
	"amount_cents":{"type":"integer","minimum":1,"maximum":9007199254740991,
		"description":"Only to tell several approvals apart."},
	"line":{"type":"integer","minimum":1,
		"description":"The line of an approval that an answer listed; its order_id and amount_cents may stand beside it."}`

// object is the schema of a tool's arguments (JSON Schema 2020-12).
func object(properties string, required ...string) json.RawMessage {
	names, err := json.Marshal(append([]string{}, required...))
	if err != nil {
		panic(err) // strings only
	}
	return json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` + properties +
		`},"required":` + string(names) + `}`)
}

func reads(title string) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{Title: title, ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: new(false),
		OpenWorldHint: new(false)}
}

// writes annotates a tool that changes something; called again it changes nothing more.
func writes(title string, money bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{Title: title, IdempotentHint: true, DestructiveHint: new(money),
		OpenWorldHint: new(false)}
}

// confirmationSchema asks one question.
var confirmationSchema = json.RawMessage(`{"type":"object","required":["confirm"],
	"properties":{"confirm":{"type":"boolean","title":"Refund"}}}`)

// resultSchema is the schema of every answer, of those with isError too.
var resultSchema = json.RawMessage(`{
	"type": "object",
	"required": ["status", "refund_id", "amount_cents", "currency", "money_moved", "replayed", "next_action"],
	"additionalProperties": false,
	"$defs": {
		"text": {"type": ["string", "null"]},
		"count": {"type": "integer", "minimum": 0},
		"results": {"type": "array", "items": {"$ref": "#"}}
	},
	"properties": {
		"status": {"enum": ["found", "none_found", "would_approve", "would_escalate", "approved", "escalated", "not_executed",
			"processed", "already_processed", "pending", "reserved", "succeeded", "needs_attention", "ok", "partial_failure",
			"refused", "failed"]},
		"refund_id": {"$ref": "#/$defs/text"},
		"amount_cents": {"type": ["integer", "null"]},
		"currency": {"$ref": "#/$defs/text"},
		"money_moved": {"enum": ["yes", "no", "unknown"]},
		"replayed": {"type": "boolean"},
		"next_action": {"enum": ["none", "retry_same_operation", "wait_then_get", "fix_request", "request_authorization",
			"escalate_to_human", "ask_for_identifier"]},
		"case_id": {"type": "string"},
		"order_id": {"type": "string"},
		"refundable_cents": {"type": "integer"},
		"trigger": {"type": "string"},
		"queue": {"type": "string"},
		"due_at": {"type": "string"},
		"matches": {"type": "array", "items": {"type": "object", "additionalProperties": false,
			"required": ["order_id", "currency", "captured_cents", "refundable_cents", "registered_at"],
			"properties": {"order_id": {"type": "string"}, "currency": {"type": "string"}, "captured_cents": {"type": "integer"},
				"refundable_cents": {"type": "integer"}, "customer_id": {"type": "string"}, "customer_name": {"type": "string"},
				"registered_at": {"type": "string"}}}},
		"match_count": {"$ref": "#/$defs/count"},
		"authorizations": {"type": "array", "items": {"type": "object", "additionalProperties": false,
			"required": ["line", "order_id", "amount_cents", "currency", "state"],
			"properties": {"line": {"type": "integer"}, "order_id": {"type": "string"}, "amount_cents": {"type": "integer"},
				"currency": {"type": "string"}, "state": {"enum": ["open", "executed", "revoked", "expired"]}}}},
		"attempted": {"$ref": "#/$defs/count"},
		"partial_results": {"$ref": "#/$defs/results"},
		"failures": {"$ref": "#/$defs/results"},
		"coverage_gap": {"type": "string"},
		"alternatives": {"type": "array", "items": {"type": "string"}},
		"error": {"type": "string"},
		"code": {"type": "string"},
		"isRetryable": {"type": "boolean"},
		"retry_after_seconds": {"type": "integer", "minimum": 0},
		"diagnostic_ref": {"type": "string"}
	}
}`)
