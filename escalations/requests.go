package escalations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
	"refundd/operations"
)

// Request asks for a refund to be approved. Nothing that sounds, feels or guesses is part of it.
type Request struct {
	TenantID      string
	KeyID         string // the API key that asks
	CaseID        string
	OrderID       string
	AmountCents   int64 // minor units of the order's currency
	ReasonCode    string
	AskedForHuman bool
	Categories    []Category
}

// Answer is the decision of a request.
type Answer struct {
	Decision
	CaseID      string
	OrderID     string
	AmountCents int64 // minor units
	Currency    string
	OperationID *string // approved: the authorization's id
	Escalation  *Escalation
	CreatedAt   time.Time
	Replayed    bool // an earlier request was told so
	Preview     bool // nothing was stored
}

// Decide decides a request, and stores the decision with what follows of it: an authorization, or an escalation. The
// same request again is answered the first decision; a wish for a person and a category are never answered by an older
// decision that lacked them. Errors are operations.ErrOrderNotFound and those of transactions.
func (d *Desk) Decide(ctx context.Context, r Request) (Answer, error) {
	p := d.policy.Load()
	a, err := pgtx.InTx(ctx, d.pool, func(tx *pgtx.Tx) (Answer, error) { return d.decide(ctx, tx, p, r) })
	if err == nil {
		d.logDecision(r, a)
	}
	return a, err
}

// Preview answers what Decide would, and stores nothing.
func (d *Desk) Preview(ctx context.Context, r Request) (Answer, error) {
	p := d.policy.Load()
	return pgtx.InTx(ctx, d.pool, func(tx *pgtx.Tx) (Answer, error) {
		f, first, err := facts(ctx, tx, r)
		if err != nil {
			return Answer{}, err
		}
		if first != nil && first.answers(r) {
			a, err := d.answered(ctx, tx, r, *first)
			a.Preview = true
			return a, err
		}
		return Answer{
			Decision: p.Decide(f), CaseID: r.CaseID, OrderID: r.OrderID, AmountCents: r.AmountCents, Currency: f.Currency,
			Preview: true,
		}, nil
	})
}

// logDecision is the one event of a decision.
func (d *Desk) logDecision(r Request, a Answer) {
	d.log.Info("refund request decided", slog.String("tenant_id", r.TenantID), slog.String("case_id", r.CaseID),
		slog.Bool("approved", a.Approved), slog.String("rule", a.Rule), slog.String("trigger", string(a.Trigger)),
		slog.String("queue", a.Queue), slog.String("policy_version", a.PolicyVersion), slog.Bool("replayed",
			a.Replayed))
}

func (d *Desk) decide(ctx context.Context, tx pgx.Tx, p *Policy, r Request) (Answer, error) {
	if err := lockCase(ctx, tx, r.TenantID, r.CaseID); err != nil {
		return Answer{}, err
	}
	f, first, err := facts(ctx, tx, r)
	if err != nil {
		return Answer{}, err
	}
	if first != nil && first.answers(r) {
		return d.answered(ctx, tx, r, *first)
	}
	a := Answer{Decision: p.Decide(f), CaseID: r.CaseID, OrderID: r.OrderID, AmountCents: r.AmountCents,
		Currency: f.Currency}
	if a.Approved {
		by := "policy:" + p.Version
		if a.OperationID, err = mint(ctx, tx, r.TenantID, f, r.CaseID, r.OrderID, by, r.ReasonCode); err != nil {
			return Answer{}, err
		}
	} else if err = d.escalate(ctx, tx, p, r, f, &a, first != nil); err != nil {
		return Answer{}, err
	}
	if first == nil {
		a.CreatedAt, err = store(ctx, tx, r, f, a)
	}
	return a, err
}

// escalate opens the case of a request. One that an older decision stands beside, for the same amount, is handed over:
// what was approved may be executed meanwhile, and a person is asked for all the same.
func (d *Desk) escalate(ctx context.Context, tx pgx.Tx, p *Policy, r Request, f Facts, a *Answer, again bool) error {
	id, err := newID()
	if err != nil {
		return err
	}
	asked, err := json.Marshal(map[string]any{"asked": f.asked(r)})
	if err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	e := Escalation{
		TenantID: r.TenantID, ID: id, Subject: SubjectRequest, Trigger: a.Trigger, Queue: a.Queue, CaseID: &r.CaseID,
		OrderID: &r.OrderID, AmountCents: &r.AmountCents, Currency: &f.Currency, ReasonCode: &r.ReasonCode,
		Evidence: asked, OpenedBy: r.KeyID,
	}
	if a.Rule != "" {
		e.Rule = &a.Rule
	}
	if again && !f.Repeated {
		e.Subject = SubjectHandoff
	}
	opened, isNew, err := d.open(ctx, tx, p, e)
	a.Escalation, a.CreatedAt, a.Replayed = &opened, opened.CreatedAt, !isNew
	if opened.State == StateApproved {
		a.OperationID = opened.OperationID
	}
	return err
}

// asked is what was asked, in words of the contract.
func (f Facts) asked(r Request) map[string]any {
	return map[string]any{
		"amount_cents":             r.AmountCents,
		"currency":                 f.Currency,
		"reason_code":              r.ReasonCode,
		"asked_for_human":          r.AskedForHuman,
		"categories":               append([]Category{}, r.Categories...),
		"approved_in_case_cents":   f.CaseCents,
		"approved_for_order_cents": f.OrderCents,
		"refundable_cents":         f.Refundable,
		"order_age_hours":          int64(f.OrderAge.Hours()),
		"open_operations":          f.OpenOperations,
		"repeated":                 f.Repeated,
	}
}

// lockCase makes the decisions of one case wait for one another, before any order is locked: their sums are of the
// case.
func lockCase(ctx context.Context, tx pgx.Tx, tenantID, caseID string) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 72))`, tenantID, caseID)
	if err != nil {
		return fmt.Errorf("lock case: %w", err)
	}
	return nil
}

// decided is an older decision of the case about the order.
type decided struct {
	AmountCents   int64
	Currency      string
	Decision      string
	Rule          *string
	Trigger       *string
	Queue         *string
	PolicyVersion string
	OperationID   *string
	EscalationID  *string
	CreatedAt     time.Time
	Asked         bool
	Named         []string
}

// answers reports whether an older decision is that of the request: of the same amount, and of all that comes before
// policy.
func (o decided) answers(r Request) bool {
	if o.AmountCents != r.AmountCents || r.AskedForHuman && !o.Asked {
		return false
	}
	for _, c := range r.Categories {
		if !strings.Contains(" "+strings.Join(o.Named, " ")+" ", " "+string(c)+" ") {
			return false
		}
	}
	return true
}

// answered is the first decision, told again.
func (d *Desk) answered(ctx context.Context, tx pgx.Tx, r Request, o decided) (Answer, error) {
	a := Answer{
		Decision: Decision{Approved: o.Decision == "approved", PolicyVersion: o.PolicyVersion, Rule: deref(o.Rule),
			Trigger: Trigger(deref(o.Trigger)), Queue: deref(o.Queue)},
		CaseID: r.CaseID, OrderID: r.OrderID, AmountCents: o.AmountCents, Currency: o.Currency, OperationID: o.OperationID,
		CreatedAt: o.CreatedAt, Replayed: true,
	}
	if o.EscalationID == nil {
		return a, nil
	}
	e, err := find(ctx, tx, r.TenantID, *o.EscalationID, false)
	if err != nil {
		return Answer{}, fmt.Errorf("read the escalation of a request: %w", err)
	}
	a.Escalation = &e
	if e.State == StateApproved {
		a.OperationID = e.OperationID
	}
	return a, nil
}

// facts locks the order, and then reads, in new statements, what may have changed while it waited: the decision that
// there is already, and what a decision is made of.
func facts(ctx context.Context, tx pgx.Tx, r Request) (Facts, *decided, error) {
	f := Facts{AskedForHuman: r.AskedForHuman, Categories: r.Categories, ReasonCode: r.ReasonCode,
		AmountCents: r.AmountCents}
	order, err := lockOrder(ctx, tx, r.TenantID, r.OrderID)
	if err != nil {
		return f, nil, err
	}
	f.Currency, f.Refundable, f.OrderAge = order.Currency, order.Refundable, order.Age
	first, err := firstDecision(ctx, tx, r)
	if err != nil {
		return f, nil, err
	}
	// What was approved and not withdrawn counts, executed or not; a refund that failed gave nothing back.
	const counts = `coalesce(o.state, '') NOT IN ('revoked', 'failed')
		AND NOT (o.state IS NULL AND coalesce(a.expires_at <= clock_timestamp(), false))`
	var approvedBefore bool
	err = tx.QueryRow(ctx, `
		SELECT
			(SELECT coalesce(sum(a.amount_cents), 0)::bigint FROM refund_authorizations a
			 LEFT JOIN refund_operations o ON o.tenant_id = a.tenant_id AND o.operation_id = a.operation_id
			 WHERE a.tenant_id = $1 AND a.case_id = $2 AND a.amount_cents > 0 AND a.currency = $4 AND `+counts+`),
			EXISTS (SELECT FROM refund_authorizations a
			 LEFT JOIN refund_operations o ON o.tenant_id = a.tenant_id AND o.operation_id = a.operation_id
			 WHERE a.tenant_id = $1 AND a.case_id = $2 AND a.amount_cents > 0 AND a.currency <> $4 AND `+counts+`),
			(SELECT coalesce(sum(a.amount_cents), 0)::bigint FROM refund_authorizations a
			 LEFT JOIN refund_operations o ON o.tenant_id = a.tenant_id AND o.operation_id = a.operation_id
			 WHERE a.tenant_id = $1 AND a.order_id = $3 AND a.amount_cents > 0 AND `+counts+`),
			(SELECT count(*) FROM refund_operations WHERE tenant_id = $1 AND order_id = $3
			 AND state IN ('reserved', 'pending', 'needs_attention')),
			EXISTS (SELECT FROM refund_authorizations a
			 LEFT JOIN refund_operations o ON o.tenant_id = a.tenant_id AND o.operation_id = a.operation_id
			 WHERE a.tenant_id = $1 AND a.case_id = $2 AND a.order_id = $3 AND a.amount_cents > 0 AND `+counts+`)`,
		r.TenantID, r.CaseID, r.OrderID, f.Currency).
		Scan(&f.CaseCents, &f.CaseMixed, &f.OrderCents, &f.OpenOperations, &approvedBefore)
	if err != nil {
		return f, nil, fmt.Errorf("read facts: %w", err)
	}
	if f.Repeated = approvedBefore; first != nil {
		f.Repeated = first.AmountCents != r.AmountCents
	}
	return f, first, nil
}

// lockedOrder is an order that nobody else refunds or approves meanwhile.
type lockedOrder struct {
	Currency   string
	Refundable int64         // what it can still give back
	Age        time.Duration // since it was registered, by the database's clock
}

// lockOrder locks an order as the engine does, or returns operations.ErrOrderNotFound.
func lockOrder(ctx context.Context, tx pgx.Tx, tenantID, orderID string) (o lockedOrder, err error) {
	err = tx.QueryRow(ctx, `
		SELECT currency, captured_cents - refunded_cents,
			least(greatest(clock_timestamp() - greatest(created_at, '2000-01-01Z'), interval '0'),
				interval '36500 days')
		FROM orders WHERE tenant_id = $1 AND order_id = $2 FOR NO KEY UPDATE`, tenantID, orderID).
		Scan(&o.Currency, &o.Refundable, &o.Age)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, operations.ErrOrderNotFound
	}
	if err != nil {
		return o, fmt.Errorf("lock order: %w", err)
	}
	return o, nil
}

func firstDecision(ctx context.Context, tx pgx.Tx, r Request) (*decided, error) {
	rows, err := tx.Query(ctx, `
		SELECT amount_cents, currency, decision, rule, trigger, queue, policy_version, operation_id,
			escalation_id::text AS escalation_id, created_at, (facts->>'asked_for_human')::bool AS asked,
			ARRAY(SELECT jsonb_array_elements_text(facts->'categories')) AS named
		FROM refund_requests WHERE tenant_id = $1 AND case_id = $2 AND order_id = $3`, r.TenantID, r.CaseID, r.OrderID)
	if err != nil {
		return nil, fmt.Errorf("read the first decision: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[decided])
	if err != nil {
		return nil, fmt.Errorf("read the first decision: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

// store writes a decision. Its order is locked and its case too: nobody else wrote one meanwhile.
func store(ctx context.Context, tx pgx.Tx, r Request, f Facts, a Answer) (at time.Time, err error) {
	told, err := json.Marshal(f.asked(r))
	if err != nil {
		return at, fmt.Errorf("write facts: %w", err)
	}
	decision, escalation := "approved", (*string)(nil)
	if a.Escalation != nil {
		decision, escalation = "escalated", &a.Escalation.ID
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO refund_requests (tenant_id, case_id, order_id, amount_cents, currency, reason_code, facts, decision,
			rule,
			trigger, queue, policy_version, operation_id, escalation_id, requested_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, $8, nullif($9, ''), nullif($10, ''), nullif($11, ''), $12, $13,
			$14::text::uuid, $15)
		RETURNING created_at`,
		r.TenantID, r.CaseID, r.OrderID, r.AmountCents, f.Currency, r.ReasonCode, told, decision, a.Rule, string(a.Trigger),
		a.Queue, a.PolicyVersion, a.OperationID, escalation, r.KeyID).Scan(&at)
	if err != nil {
		return at, fmt.Errorf("store decision: %w", err)
	}
	return at, nil
}

// mint approves the refund under a new operation id.
func mint(ctx context.Context, tx pgx.Tx, tenantID string, f Facts, caseID, orderID, by,
	reason string) (*string, error) {
	id, err := newID()
	if err != nil {
		return nil, err
	}
	id = "rr-" + id
	_, isNew, err := operations.AuthorizeIn(ctx, tx, operations.Approval{
		TenantID: tenantID, OperationID: id, CaseID: caseID, OrderID: orderID, AmountCents: f.AmountCents,
		Currency:   &f.Currency,
		ApprovedBy: by, Reason: &reason,
	})
	if err == nil && !isNew {
		err = errors.New("the operation id is taken")
	}
	if err != nil {
		return nil, fmt.Errorf("mint authorization: %w", err)
	}
	return &id, nil
}

func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("mint id: %w", err)
	}
	return id.String(), nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
