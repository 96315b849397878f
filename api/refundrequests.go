package api

import (
	"context"
	"net/http"
	"slices"

	"refundd/escalations"
)

// wishBody is what POST /v1/refund-requests says. Mood and confidence are no members: such a body is refused.
type wishBody struct {
	CaseID        *string   `json:"case_id"`
	OrderID       *string   `json:"order_id"`
	AmountCents   *integer  `json:"amount_cents"`
	ReasonCode    *string   `json:"reason_code"`
	AskedForHuman *bool     `json:"asked_for_human"`
	Categories    []*string `json:"categories"`
}

// decision is a decided request on the wire; every member is always present.
type decision struct {
	Decision      string     `json:"decision"`
	Replayed      bool       `json:"replayed"`
	Preview       bool       `json:"preview"`
	CaseID        string     `json:"case_id"`
	OrderID       string     `json:"order_id"`
	AmountCents   int64      `json:"amount_cents"`
	Currency      string     `json:"currency"`
	Rule          *string    `json:"rule"`
	Trigger       *string    `json:"trigger"`
	Queue         *string    `json:"queue"`
	PolicyVersion string     `json:"policy_version"`
	OperationID   *string    `json:"operation_id"`
	EscalationID  *string    `json:"escalation_id"`
	DueAt         *timestamp `json:"due_at"`
	NextAction    string     `json:"next_action"`
}

// wish is a request for an approval, and whether it is only to be tried.
type wish struct {
	escalations.Request
	preview bool
}

func readWish(in *input) wish {
	w := wish{preview: in.preview()}
	b := body[wishBody](in)
	w.Request = escalations.Request{
		TenantID: in.tenant(), KeyID: in.x.principal.KeyID,
		CaseID:      in.requiredText("/case_id", b.CaseID, maxID),
		OrderID:     in.bodyOrderID(b.OrderID),
		AmountCents: in.amount(b.AmountCents),
		ReasonCode:  in.reasonCode(b.ReasonCode),
		Categories:  in.categories(b.Categories),
	}
	w.AskedForHuman = b.AskedForHuman != nil && *b.AskedForHuman
	return w
}

// preview reads the query parameter of that name: true or false.
func (in *input) preview() bool {
	v, ok := in.query("preview")["preview"]
	if ok && v != "true" && v != "false" {
		in.blame("query:preview", faultInvalid)
	}
	return v == "true"
}

const maxReasonCode = 63

// reasonCode is 1 to 63 of a-z 0-9 _ -, as policies write it.
func (in *input) reasonCode(s *string) string {
	code := in.requiredText("/reason_code", s, maxReasonCode)
	for _, c := range []byte(code) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			in.blame("/reason_code", faultInvalid)
			break
		}
	}
	return code
}

func (in *input) categories(named []*string) []escalations.Category {
	known := escalations.Categories()
	if len(named) > len(known) {
		in.blame("/categories", faultTooLong)
	}
	var taken []escalations.Category
	for _, s := range named {
		if s == nil || !slices.Contains(known, escalations.Category(*s)) {
			in.blame("/categories", faultInvalid)
			return nil
		}
		taken = append(taken, escalations.Category(*s))
	}
	return taken
}

func (s *server) decide(ctx context.Context, w wish) (escalations.Answer, error) {
	if w.preview {
		return s.desk.Preview(ctx, w.Request)
	}
	return s.desk.Decide(ctx, w.Request)
}

func showDecision(a escalations.Answer) reply {
	shown := decision{
		Decision: "escalated", Replayed: a.Replayed, Preview: a.Preview, CaseID: a.CaseID, OrderID: a.OrderID,
		AmountCents: a.AmountCents, Currency: a.Currency, Rule: optional(a.Rule),
		Trigger: optional(string(a.Trigger)), Queue: optional(a.Queue),
		PolicyVersion: a.PolicyVersion, OperationID: a.OperationID, NextAction: nextWait,
	}
	if a.Approved || a.OperationID != nil {
		shown.NextAction = nextNone
	}
	if a.Approved {
		shown.Decision = "approved"
	}
	if a.Escalation != nil {
		shown.EscalationID, shown.DueAt = &a.Escalation.ID, new(timestamp(a.Escalation.DueAt))
	}
	rep := reply{status: http.StatusOK, body: &shown, replayed: a.Replayed}
	switch {
	case a.Replayed || a.Preview:
	case a.Escalation != nil:
		rep.status, rep.location = http.StatusCreated, escalationsPath+"/"+a.Escalation.ID
	default:
		rep.status, rep.location = http.StatusCreated, "/v1/authorizations/"+*a.OperationID
	}
	return rep
}

// optional is nil for what says nothing.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
