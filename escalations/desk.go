package escalations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/operations"
)

// Why a case cannot be decided.
var (
	// ErrNotFound reports an escalation that the tenant does not have.
	ErrNotFound = errors.New("escalation not found")
	// ErrNotApprovable reports an escalation that this decision does not fit: it is no request, it is decided
	// otherwise, the order cannot cover it any more, or the approver is the requester.
	ErrNotApprovable = errors.New("escalation not approvable")
)

// Config is what a Desk needs.
type Config struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger // optional
	Policy *Policy      // optional: NoPolicy approves nothing
}

// Desk decides requests and keeps the queue. Its methods may be called at once from any number of goroutines.
type Desk struct {
	pool   *pgxpool.Pool
	log    *slog.Logger
	policy atomic.Pointer[Policy]
}

// New returns a desk, or the fault of its configuration.
func New(c Config) (*Desk, error) {
	if c.Pool == nil {
		return nil, errors.New("configure escalations: no database pool")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Policy == nil {
		c.Policy = NoPolicy()
	}
	d := &Desk{pool: c.Pool, log: c.Logger}
	d.policy.Store(c.Policy)
	return d, nil
}

// SetPolicy puts another policy in force, for every decision that begins after it.
func (d *Desk) SetPolicy(p *Policy) {
	old := d.policy.Swap(p)
	d.log.Info("policy in force", slog.String("policy_version", p.Version),
		slog.String("policy_version_before", old.Version))
}

// Subject is what an escalation is about.
type Subject string

// The subjects.
const (
	SubjectRequest   Subject = "request"   // a refund that was asked for: it can be approved
	SubjectOperation Subject = "operation" // an operation that needs attention: resolving it closes the escalation
	SubjectHandoff   Subject = "handoff"   // a conversation that an agent handed over
)

// State is where an escalation stands.
type State string

// The states.
const (
	StateOpen     State = "open"
	StateApproved State = "approved" // its authorization was minted
	StateDeclined State = "declined" // a person ended it
	StateClosed   State = "closed"   // its operation was settled
)

// States returns all states.
func States() []State { return []State{StateOpen, StateApproved, StateDeclined, StateClosed} }

// Escalation is a case in front of people.
type Escalation struct {
	TenantID      string
	ID            string
	Subject       Subject
	Trigger       Trigger
	Queue         string
	State         State
	CaseID        *string
	OrderID       *string
	AmountCents   *int64 // minor units
	Currency      *string
	ReasonCode    *string
	OperationID   *string // SubjectOperation: what it is about; SubjectRequest: what its approval minted
	Rule          *string
	PolicyVersion string
	Summary       *string
	Evidence      []byte // a JSON object: what was asked, tried and found by the time the case was opened
	OpenedBy      string // the API key, or the part of the service
	Owner         *string
	DueAt         time.Time
	Overdue       bool // open, and due before now
	CreatedAt     time.Time
	ClosedAt      *time.Time
	ClosedBy      *string // the API key that decided, or the part of the service
	DecidedBy     *string // the name that the key gave
	Note          *string
}

const escalationColumns = `
	e.tenant_id, e.escalation_id::text AS id, e.subject, e.trigger, e.queue, e.state, e.case_id, e.order_id,
	e.amount_cents, e.currency, e.reason_code, e.operation_id, e.rule, e.policy_version, e.summary, e.evidence,
	e.opened_by, e.owner, e.due_at, e.state = 'open' AND e.due_at < clock_timestamp() AS overdue, e.created_at,
	e.closed_at, e.closed_by, e.decided_by, e.decision_note AS note`

// collect reads rows of escalationColumns.
func collect(rows pgx.Rows, err error) ([]Escalation, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByNameLax[Escalation])
}

func one(found []Escalation, err error) (Escalation, error) {
	switch {
	case err != nil:
		return Escalation{}, err
	case len(found) == 0:
		return Escalation{}, ErrNotFound
	default:
		return found[0], nil
	}
}

// open stores a new escalation, or returns the one that says the same already, and reports whether it is new.
func (d *Desk) open(ctx context.Context, tx pgx.Tx, p *Policy, e Escalation) (Escalation, bool, error) {
	opened, err := collect(tx.Query(ctx, `
		INSERT INTO escalations AS e (tenant_id, escalation_id, subject, trigger, queue, case_id, order_id,
			amount_cents,
			currency, reason_code, operation_id, rule, policy_version, summary, evidence, opened_by, due_at)
		SELECT $1, $2::text::uuid, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, `+evidence+`, $16,
			clock_timestamp() + $17::interval
		ON CONFLICT DO NOTHING RETURNING `+escalationColumns,
		e.TenantID, e.ID, e.Subject, e.Trigger, e.Queue, e.CaseID, e.OrderID, e.AmountCents, e.Currency, e.ReasonCode,
		e.OperationID, e.Rule, p.Version, e.Summary, e.Evidence, e.OpenedBy, p.within(e.Queue)))
	if err != nil {
		return Escalation{}, false, fmt.Errorf("open escalation: %w", err)
	}
	if len(opened) == 1 {
		return opened[0], true, nil
	}
	same, err := one(collect(tx.Query(ctx, `SELECT `+escalationColumns+` FROM escalations e
		WHERE e.tenant_id = $1 AND e.subject = $2 AND CASE e.subject
			WHEN 'request' THEN e.case_id = $3 AND e.order_id = $4 AND e.amount_cents = $5
			WHEN 'operation' THEN e.operation_id = $6 AND e.state = 'open'
			ELSE e.case_id = $3 AND e.trigger = $7 AND e.state = 'open' END`,
		e.TenantID, e.Subject, e.CaseID, e.OrderID, e.AmountCents, e.OperationID, e.Trigger)))
	if err != nil {
		return Escalation{}, false, fmt.Errorf("find open escalation: %w", err)
	}
	return same, false, nil
}

// evidence is what the books show of the case $6 and the order $7 of tenant $1 when a case is opened, beside what was
// asked: nobody has to start again.
const evidence = `$15::jsonb || jsonb_build_object(
	'approvals', coalesce((
		SELECT jsonb_agg(jsonb_build_object('operation_id', a.operation_id, 'order_id', a.order_id,
			'amount_cents', a.amount_cents,
			'currency', a.currency, 'approved_by', a.approved_by, 'state', coalesce(o.state, 'open')) ORDER BY a.created_at)
		FROM (SELECT * FROM refund_authorizations WHERE tenant_id = $1 AND case_id = $6
			AND amount_cents > 0 LIMIT 50) a
		LEFT JOIN refund_operations o ON o.tenant_id = a.tenant_id AND o.operation_id = a.operation_id), '[]'),
	'operations', coalesce((
		SELECT jsonb_agg(jsonb_build_object('operation_id', o.operation_id, 'amount_cents', o.amount_cents, 'state', o.state))
		FROM (SELECT * FROM refund_operations WHERE tenant_id = $1 AND order_id = $7
			AND state IN ('reserved', 'pending', 'needs_attention') LIMIT 50) o), '[]'))`

// OnEvents opens an escalation for every operation that reaches needs_attention, and closes it when the operation
// leaves that state, in the transaction that says so. It is the engine's hook.
func (d *Desk) OnEvents(b *pgx.Batch, events []operations.Event) error {
	for _, ev := range events {
		switch {
		case ev.ToState == nil:
		case *ev.ToState == operations.StateNeedsAttention:
			if err := d.openOperation(b, ev); err != nil {
				return err
			}
		case ev.FromState != nil && *ev.FromState == operations.StateNeedsAttention:
			closeOperation(b, ev)
		}
	}
	return nil
}

func (d *Desk) openOperation(b *pgx.Batch, ev operations.Event) error {
	p := d.policy.Load()
	id, err := newID()
	if err != nil {
		return err
	}
	b.Queue(`
		INSERT INTO escalations (tenant_id, escalation_id, subject, trigger, queue, case_id, order_id, amount_cents,
			currency,
			operation_id, policy_version, evidence, opened_by, due_at)
		SELECT o.tenant_id, $3::text::uuid, 'operation', $4, $5, a.case_id, o.order_id, o.amount_cents, o.currency,
			o.operation_id, $6,
			jsonb_build_object('cause', $7::text), 'refundd', clock_timestamp() + $8::interval
		FROM refund_operations o
		LEFT JOIN refund_authorizations a ON a.tenant_id = o.tenant_id AND a.operation_id = o.operation_id
		WHERE o.tenant_id = $1 AND o.operation_id = $2
		ON CONFLICT DO NOTHING`,
		ev.TenantID, ev.OperationID, id, TriggerAttention, p.DefaultQueue, p.Version, ev.Detail["failure_code"],
		p.within(p.DefaultQueue))
	return nil
}

func closeOperation(b *pgx.Batch, ev operations.Event) {
	by := "refundd"
	if ev.Actor != nil {
		by = *ev.Actor
	}
	b.Queue(`UPDATE escalations SET state = 'closed', closed_at = clock_timestamp(), closed_by = $3
		WHERE tenant_id = $1 AND operation_id = $2 AND subject = 'operation' AND state = 'open'`,
		ev.TenantID, ev.OperationID, by)
}
