package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"refundd/escalations"
	"refundd/operations"
)

const escalationsPath = "/v1/escalations"

// handoffBody is what POST /v1/escalations says.
type handoffBody struct {
	CaseID  *string `json:"case_id"`
	OrderID *string `json:"order_id"`
	Trigger *string `json:"trigger"`
	Summary *string `json:"summary"`
}

// verdictBody is what a decision may say.
type verdictBody struct {
	DecidedBy *string `json:"decided_by"`
	Note      *string `json:"note"`
}

// escalation is a case on the wire; every member is always present.
type escalation struct {
	EscalationID  string              `json:"escalation_id"`
	Subject       escalations.Subject `json:"subject"`
	Trigger       escalations.Trigger `json:"trigger"`
	Queue         string              `json:"queue"`
	State         escalations.State   `json:"state"`
	CaseID        *string             `json:"case_id"`
	OrderID       *string             `json:"order_id"`
	AmountCents   *int64              `json:"amount_cents"`
	Currency      *string             `json:"currency"`
	ReasonCode    *string             `json:"reason_code"`
	OperationID   *string             `json:"operation_id"`
	Rule          *string             `json:"rule"`
	PolicyVersion string              `json:"policy_version"`
	Summary       *string             `json:"summary"`
	Evidence      jsontext.Value      `json:"evidence"`
	OpenedBy      string              `json:"opened_by"`
	Owner         *string             `json:"owner"`
	DueAt         timestamp           `json:"due_at"`
	Overdue       bool                `json:"overdue"`
	CreatedAt     timestamp           `json:"created_at"`
	ClosedAt      *timestamp          `json:"closed_at"`
	ClosedBy      *string             `json:"closed_by"`
	DecidedBy     *string             `json:"decided_by"`
	Note          *string             `json:"note"`
}

func escalationOf(e escalations.Escalation) escalation {
	return escalation{
		EscalationID: e.ID, Subject: e.Subject, Trigger: e.Trigger, Queue: e.Queue, State: e.State, CaseID: e.CaseID,
		OrderID: e.OrderID, AmountCents: e.AmountCents, Currency: e.Currency, ReasonCode: e.ReasonCode,
		OperationID: e.OperationID, Rule: e.Rule,
		PolicyVersion: e.PolicyVersion, Summary: e.Summary, Evidence: e.Evidence, OpenedBy: e.OpenedBy, Owner: e.Owner,
		DueAt: timestamp(e.DueAt), Overdue: e.Overdue, CreatedAt: timestamp(e.CreatedAt), ClosedAt: optionalTime(e.ClosedAt),
		ClosedBy: e.ClosedBy, DecidedBy: e.DecidedBy, Note: e.Note,
	}
}

const maxSummary = 4000

// handoffTriggers are those that a caller may hand over for.
var handoffTriggers = []escalations.Trigger{
	escalations.TriggerAskedForHuman, escalations.TriggerToolFailure, escalations.TriggerUnknown, escalations.TriggerOther,
}

func readHandoff(in *input) escalations.Handoff {
	b := body[handoffBody](in)
	h := escalations.Handoff{
		TenantID: in.tenant(), KeyID: in.x.principal.KeyID,
		CaseID:  in.requiredText("/case_id", b.CaseID, maxID),
		Trigger: escalations.Trigger(in.requiredText("/trigger", b.Trigger, maxID)),
		Summary: in.text("/summary", b.Summary, maxSummary),
		OrderID: b.OrderID,
	}
	if b.OrderID != nil {
		in.bodyOrderID(b.OrderID)
	}
	if b.Trigger != nil && !slices.Contains(handoffTriggers, h.Trigger) &&
		!slices.Contains(escalations.Categories(), escalations.Category(h.Trigger)) {
		in.blame("/trigger", faultInvalid)
	}
	return h
}

// handedOver is a case, and whether this call opened it.
type handedOver struct {
	escalation escalations.Escalation
	opened     bool
}

func (s *server) handOver(ctx context.Context, h escalations.Handoff) (handedOver, error) {
	e, opened, err := s.desk.HandOver(ctx, h)
	return handedOver{e, opened}, err
}

func showHandedOver(h handedOver) reply {
	rep := showEscalation(h.escalation)
	if h.opened {
		rep.status, rep.location = http.StatusCreated, escalationsPath+"/"+h.escalation.ID
	}
	return rep
}

func showEscalation(e escalations.Escalation) reply {
	return reply{status: http.StatusOK, body: new(escalationOf(e))}
}

func readEscalationKey(in *input) operationKey {
	return operationKey{in.tenant(), in.uuid("escalation_id")}
}

func (s *server) escalation(ctx context.Context, k operationKey) (escalations.Escalation, error) {
	return s.desk.Get(ctx, k.tenantID, k.operationID)
}

func readVerdict(in *input) escalations.Verdict {
	id := in.uuid("escalation_id")
	b := optionalBody[verdictBody](in)
	return escalations.Verdict{
		TenantID: in.tenant(), KeyID: in.x.principal.KeyID, EscalationID: id,
		DecidedBy: in.text("/decided_by", b.DecidedBy, maxName), Note: in.text("/note", b.Note, maxReason),
	}
}

// taking names who looks at a case.
type taking struct {
	escalations.Verdict
	owner string
}

func readTaking(in *input) taking {
	id := in.uuid("escalation_id")
	b := body[struct {
		Owner *string `json:"owner"`
	}](in)
	v := escalations.Verdict{TenantID: in.tenant(), KeyID: in.x.principal.KeyID, EscalationID: id}
	return taking{v, in.requiredText("/owner", b.Owner, maxName)}
}

func (s *server) take(ctx context.Context, t taking) (escalations.Escalation, error) {
	return s.desk.Take(ctx, t.Verdict, t.owner)
}

// escalationQuery asks for a page of cases.
type escalationQuery struct {
	tenantID string
	filter   escalations.Filter
	page     operations.Page
}

func readEscalationQuery(in *input) escalationQuery {
	q := in.query("queue", "state", "sort", "limit", "cursor", "created_after", "created_before")
	query := escalationQuery{tenantID: in.tenant(), page: in.page(q)}
	if queue, ok := q["queue"]; ok {
		in.blame("query:queue", textFault(queue, maxID))
		query.filter.Queue = &queue
	}
	if name, ok := q["state"]; ok {
		state := escalations.State(name)
		if !slices.Contains(escalations.States(), state) {
			in.blame("query:state", faultInvalid)
		}
		query.filter.State = &state
	}
	if sort, ok := q["sort"]; ok {
		query.filter.Due = true
		if sort != "due_at" || query.filter.State != nil && *query.filter.State != escalations.StateOpen {
			in.blame("query:sort", faultInvalid)
		}
	}
	return query
}

func (s *server) escalations(ctx context.Context, q escalationQuery) (listed[escalations.Escalation], error) {
	rows, next, err := s.desk.List(ctx, q.tenantID, q.filter, q.page)
	return listed[escalations.Escalation]{rows, next}, err
}

func showEscalations(l listed[escalations.Escalation]) reply { return showList(l, escalationOf) }
