package escalations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pages"
	"refundd/internal/pgtx"
	"refundd/operations"
)

// Handoff is a conversation that an agent hands over.
type Handoff struct {
	TenantID string
	KeyID    string // the API key that hands over
	CaseID   string
	OrderID  *string
	Trigger  Trigger
	Summary  *string // what the agent has to say of it, for people
}

// HandOver puts a case in front of people, and reports whether that is new: for the same trigger there is one at a
// time.
func (d *Desk) HandOver(ctx context.Context, h Handoff) (Escalation, bool, error) {
	p := d.policy.Load()
	id, err := newID()
	if err != nil {
		return Escalation{}, false, err
	}
	var isNew bool
	e, err := pgtx.InTx(ctx, d.pool, func(tx *pgtx.Tx) (e Escalation, err error) {
		e, isNew, err = d.open(ctx, tx, p, Escalation{
			TenantID: h.TenantID, ID: id, Subject: SubjectHandoff, Trigger: h.Trigger, Queue: p.queueOf(h.Trigger),
			CaseID:  &h.CaseID,
			OrderID: h.OrderID, Summary: h.Summary, Evidence: []byte(`{}`), OpenedBy: h.KeyID,
		})
		return e, err
	})
	if err == nil && isNew {
		d.log.Info("case handed over", slog.String("tenant_id", h.TenantID), slog.String("case_id", h.CaseID),
			slog.String("trigger", string(h.Trigger)), slog.String("queue", e.Queue),
			slog.String("escalation_id", e.ID))
	}
	return e, isNew, err
}

// Verdict is a person's decision.
type Verdict struct {
	TenantID     string
	KeyID        string // the API key that decides
	EscalationID string
	DecidedBy    *string // the name that stands beside the key
	Note         *string
}

// Approve approves a request: it mints the authorization in the transaction that closes the case. Again it answers the
// same. What is no open request, what the order cannot cover any more, and what the requester's own key asks for is
// ErrNotApprovable.
func (d *Desk) Approve(ctx context.Context, v Verdict) (Escalation, error) {
	return d.close(ctx, v, StateApproved,
		func(ctx context.Context, tx pgx.Tx, e Escalation, refundable int64) (*string, error) {
			if e.Subject != SubjectRequest || e.OpenedBy == v.KeyID || *e.AmountCents > refundable {
				return nil, ErrNotApprovable
			}
			by := v.KeyID
			if v.DecidedBy != nil {
				by = *v.DecidedBy
			}
			f := Facts{AmountCents: *e.AmountCents, Currency: *e.Currency}
			return mint(ctx, tx, e.TenantID, f, *e.CaseID, *e.OrderID, by, deref(e.ReasonCode))
		})
}

// Decline ends a request or a handed-over case without an approval. Again it answers the same. An operation's
// escalation ends with its operation: ErrNotApprovable.
func (d *Desk) Decline(ctx context.Context, v Verdict) (Escalation, error) {
	return d.close(ctx, v, StateDeclined, func(_ context.Context, _ pgx.Tx, e Escalation, _ int64) (*string, error) {
		if e.Subject == SubjectOperation {
			return nil, ErrNotApprovable
		}
		return nil, nil
	})
}

// close ends a case once. It locks the order, where there is one, and then the case, and decides on what it then
// reads.
func (d *Desk) close(ctx context.Context, v Verdict, to State,
	decide func(context.Context, pgx.Tx, Escalation, int64) (*string, error),
) (Escalation, error) {
	var moved bool
	e, err := pgtx.InTx(ctx, d.pool, func(tx *pgtx.Tx) (Escalation, error) {
		moved = false
		seen, err := find(ctx, tx, v.TenantID, v.EscalationID, false)
		if err != nil {
			return seen, err
		}
		var order lockedOrder // of a case without one, or with one that does not exist, nothing
		if seen.OrderID != nil {
			if order, err = lockOrder(ctx, tx, v.TenantID, *seen.OrderID); err != nil &&
				!errors.Is(err, operations.ErrOrderNotFound) {
				return seen, err
			}
		}
		e, err := find(ctx, tx, v.TenantID, v.EscalationID, true)
		switch {
		case err != nil:
			return e, err
		case e.State == to:
			return e, nil
		case e.State != StateOpen:
			return e, ErrNotApprovable
		}
		operationID, err := decide(ctx, tx, e, order.Refundable)
		if err != nil {
			return e, err
		}
		moved = true
		return end(ctx, tx, v, to, operationID)
	})
	if err == nil && moved {
		d.log.Info("escalation decided", slog.String("tenant_id", v.TenantID), slog.String("escalation_id", e.ID),
			slog.String("state", string(e.State)), slog.String("key_id", v.KeyID))
	}
	return e, err
}

func end(ctx context.Context, tx pgx.Tx, v Verdict, to State, operationID *string) (Escalation, error) {
	e, err := one(collect(tx.Query(ctx,
		`UPDATE escalations e SET state = $3, closed_at = clock_timestamp(), closed_by = $4, decided_by = $5,
			decision_note = $6, operation_id = coalesce($7, e.operation_id)
		WHERE e.tenant_id = $1 AND e.escalation_id = $2::text::uuid AND e.state = 'open' RETURNING `+escalationColumns,
		v.TenantID, v.EscalationID, to, v.KeyID, v.DecidedBy, v.Note, operationID)))
	if err != nil {
		return e, fmt.Errorf("end escalation: %w", err)
	}
	return e, nil
}

// Take names who looks at a case; the last one who takes it has it.
func (d *Desk) Take(ctx context.Context, v Verdict, owner string) (Escalation, error) {
	return pgtx.InTx(ctx, d.pool, func(tx *pgtx.Tx) (Escalation, error) {
		e, err := one(collect(tx.Query(ctx, `UPDATE escalations e SET owner = $3
			WHERE e.tenant_id = $1 AND e.escalation_id = $2::text::uuid AND e.state = 'open'
				RETURNING `+escalationColumns,
			v.TenantID, v.EscalationID, owner)))
		if !errors.Is(err, ErrNotFound) {
			return e, err
		}
		if e, err = find(ctx, tx, v.TenantID, v.EscalationID, false); err == nil {
			err = ErrNotApprovable
		}
		return e, err
	})
}

// Get returns one case, or ErrNotFound.
func (d *Desk) Get(ctx context.Context, tenantID, id string) (Escalation, error) {
	return pgtx.InTx(ctx, d.pool, func(tx *pgtx.Tx) (Escalation, error) { return find(ctx, tx, tenantID, id, false) })
}

func find(ctx context.Context, tx pgx.Tx, tenantID, id string, lock bool) (Escalation, error) {
	locking := ""
	if lock {
		locking = " FOR UPDATE"
	}
	e, err := one(collect(tx.Query(ctx, `SELECT `+escalationColumns+` FROM escalations e
		WHERE e.tenant_id = $1 AND e.escalation_id = $2::text::uuid`+locking, tenantID, id)))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return e, fmt.Errorf("find escalation: %w", err)
	}
	return e, err
}

// Filter selects cases; nil selects all.
type Filter struct {
	Queue *string
	State *State
	Due   bool // open cases alone, the one that is due first in front
}

// List returns a page of cases, newest first (their ids are UUIDv7) unless they are asked for as they are due, and the
// next page's cursor, empty at the end. A case's due_at never changes, so that a cursor holds while cases come and go.
func (d *Desk) List(ctx context.Context, tenantID string, f Filter, p operations.Page) ([]Escalation, string, error) {
	w := pages.Where{Args: []any{tenantID, p.Limit + 1}}
	w.And("e.tenant_id = $1")
	if f.Queue != nil {
		w.And("e.queue = ?", *f.Queue)
	}
	if f.State != nil {
		w.And("e.state = ?", *f.State)
	}
	if f.Due {
		w.And("e.state = 'open'")
	}
	w.Between("e.created_at", p.CreatedAfter, p.CreatedBefore)
	if p.Cursor != "" {
		last, ok := pages.IDOf(p.Cursor)
		if !ok {
			return nil, "", operations.ErrInvalidCursor
		}
		w.And(after(f), last)
	}
	var found []Escalation
	err := pgtx.Query(ctx, d.pool, func(rows pgx.Rows) (err error) {
		found, err = collect(rows, nil)
		return err
	}, `SELECT `+escalationColumns+` FROM escalations e WHERE `+w.String()+`
		ORDER BY `+order(f)+` LIMIT $2`, w.Args...)
	if err != nil {
		return nil, "", fmt.Errorf("list escalations: %w", err)
	}
	page, next := pages.Cut(found, p.Limit, func(e Escalation) string { return pages.CursorOf(e.ID) })
	return page, next, nil
}

func order(f Filter) string {
	if f.Due {
		return "e.due_at, e.escalation_id"
	}
	return "e.escalation_id DESC"
}

// after is the condition of the cases behind a cursor's.
func after(f Filter) string {
	if f.Due {
		return `(e.due_at, e.escalation_id) > (SELECT l.due_at, l.escalation_id FROM escalations l
			WHERE l.tenant_id = $1 AND l.escalation_id = ?::text::uuid)`
	}
	return "e.escalation_id < ?::text::uuid"
}
