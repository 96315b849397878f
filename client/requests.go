package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Categories of a request that always go to people. See the service's openapi.yaml.
const (
	CategoryViolenceThreat    = "violence_threat"
	CategorySelfHarm          = "self_harm"
	CategoryFraudAllegation   = "fraud_allegation"
	CategoryLegalOrRegulatory = "legal_or_regulatory"
	CategoryHarassment        = "harassment"
)

// ApprovalRequest asks for a refund to be approved, by policy or by a person.
type ApprovalRequest struct {
	CaseID        string   `json:"case_id"`
	OrderID       string   `json:"order_id"`
	AmountCents   int64    `json:"amount_cents"` // minor units of the order's currency
	ReasonCode    string   `json:"reason_code"`
	AskedForHuman bool     `json:"asked_for_human,omitzero"`
	Categories    []string `json:"categories,omitempty"`
}

// Decisions of a request.
const (
	DecisionApproved  = "approved"
	DecisionEscalated = "escalated"
)

// Decision is what the policy said of a request, with what follows of it.
type Decision struct {
	Decision      string     `json:"decision"` // DecisionApproved or DecisionEscalated
	Replayed      bool       `json:"replayed"` // an earlier request of the case was told so
	Preview       bool       `json:"preview"`  // nothing was stored
	CaseID        string     `json:"case_id"`
	OrderID       string     `json:"order_id"`
	AmountCents   int64      `json:"amount_cents"`
	Currency      string     `json:"currency"`
	Rule          *string    `json:"rule"`
	Trigger       *string    `json:"trigger"` // why it goes to a person
	Queue         *string    `json:"queue"`
	PolicyVersion string     `json:"policy_version"`
	OperationID   *string    `json:"operation_id"` // of the authorization, once there is one
	EscalationID  *string    `json:"escalation_id"`
	DueAt         *time.Time `json:"due_at"` // by when a person looks
	NextAction    string     `json:"next_action"`
}

// RequestRefund asks for a refund to be approved. Asked again, the first decision is the answer.
func (c *Client) RequestRefund(ctx context.Context, r ApprovalRequest) (Decision, error) {
	return c.requestRefund(ctx, r, "/v1/refund-requests")
}

// PreviewRefund returns what RequestRefund would decide. It stores nothing.
func (c *Client) PreviewRefund(ctx context.Context, r ApprovalRequest) (Decision, error) {
	return c.requestRefund(ctx, r, "/v1/refund-requests?preview=true")
}

func (c *Client) requestRefund(ctx context.Context, r ApprovalRequest, path string) (Decision, error) {
	q := &call{method: http.MethodPost, path: path}
	return send(ctx, c, q, r, func(d Decision) bool {
		return d.CaseID == r.CaseID && d.OrderID == r.OrderID && d.Decision != ""
	})
}

// Handoff hands a case over to people.
type Handoff struct {
	CaseID  string `json:"case_id"`
	OrderID string `json:"order_id,omitempty"`
	Trigger string `json:"trigger"` // asked_for_human, a category, tool_failure, outcome_unknown or other
	Summary string `json:"summary,omitempty"`
}

// Escalation is a case in front of people.
type Escalation struct {
	EscalationID string     `json:"escalation_id"`
	Subject      string     `json:"subject"` // request, operation or handoff
	Trigger      string     `json:"trigger"`
	Queue        string     `json:"queue"`
	State        string     `json:"state"` // open, approved, declined or closed
	CaseID       *string    `json:"case_id"`
	OrderID      *string    `json:"order_id"`
	AmountCents  *int64     `json:"amount_cents"`
	Currency     *string    `json:"currency"`
	OperationID  *string    `json:"operation_id"`
	Owner        *string    `json:"owner"`
	DueAt        time.Time  `json:"due_at"`
	Overdue      bool       `json:"overdue"`
	CreatedAt    time.Time  `json:"created_at"`
	ClosedAt     *time.Time `json:"closed_at"`
}

// HandOver puts a case in front of people. For the same trigger, a case that is open already is the answer.
func (c *Client) HandOver(ctx context.Context, h Handoff) (Escalation, error) {
	q := &call{method: http.MethodPost, path: "/v1/escalations"}
	return send(ctx, c, q, h, func(e Escalation) bool {
		return e.EscalationID != "" && e.CaseID != nil && *e.CaseID == h.CaseID
	})
}

// Verdict is a person's decision; the API key stands beside the name.
type Verdict struct {
	DecidedBy string `json:"decided_by,omitempty"`
	Note      string `json:"note,omitempty"`
}

// ApproveEscalation approves a request that waits for a person, which mints its authorization.
func (c *Client) ApproveEscalation(ctx context.Context, escalationID string, v Verdict) (Escalation, error) {
	return c.decide(ctx, escalationID, "approve", v)
}

// DeclineEscalation ends a case without an approval.
func (c *Client) DeclineEscalation(ctx context.Context, escalationID string, v Verdict) (Escalation, error) {
	return c.decide(ctx, escalationID, "decline", v)
}

func (c *Client) decide(ctx context.Context, escalationID, act string, v Verdict) (Escalation, error) {
	q := &call{method: http.MethodPost, path: "/v1/escalations/" + url.PathEscape(escalationID) + "/" + act}
	return send(ctx, c, q, v, func(e Escalation) bool { return e.EscalationID == escalationID })
}

// EscalationQuery selects a page of cases. The zero value asks for the newest ones.
type EscalationQuery struct {
	Queue  string
	State  string
	Cursor string
}

// Escalations returns a page of cases.
func (c *Client) Escalations(ctx context.Context, f EscalationQuery) (Page[Escalation], error) {
	v := url.Values{}
	setText(v, "queue", f.Queue)
	setText(v, "state", f.State)
	setText(v, "cursor", f.Cursor)
	return get[Page[Escalation]](ctx, c, &call{method: http.MethodGet, path: withQuery("/v1/escalations", v)}, nil)
}
