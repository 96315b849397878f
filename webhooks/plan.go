package webhooks

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// ahead is how many fresh events one round looks at.
const ahead = 64

// plan chooses what the endpoint is sent next: first what is due again, then what is fresh.
func (c *Courier) plan(ctx context.Context, tx pgx.Tx, l lease, t target) (round, error) {
	var due, fresh []candidate
	b := &pgx.Batch{}
	b.Queue(`SELECT `+eventColumns+`, d.attempts, false
		FROM (SELECT d.tenant_id, d.position, d.attempts, d.next_attempt_at FROM webhook_deliveries d
			WHERE d.tenant_id = $1 AND d.endpoint_id = $2::text::uuid AND d.state = 'queued'
				AND d.next_attempt_at <= $3 AND `+first+`
			ORDER BY d.next_attempt_at LIMIT $4) AS d
		JOIN webhook_events ev ON ev.tenant_id = d.tenant_id AND ev.position = d.position
		JOIN refund_operations o ON o.tenant_id = ev.tenant_id AND o.operation_id = ev.operation_id
		ORDER BY d.next_attempt_at`, l.TenantID, l.EndpointID, t.now, t.room).Query(collectCandidates(&due))
	b.Queue(`SELECT `+eventColumns+`, 0, EXISTS (SELECT FROM webhook_deliveries d
			WHERE d.tenant_id = $1 AND d.endpoint_id = $2::text::uuid AND d.operation_id = ev.operation_id
				AND d.state = 'queued' OFFSET 0)
		FROM (SELECT * FROM webhook_events ev WHERE ev.tenant_id = $1 AND ev.position > $3 ORDER BY ev.position
			LIMIT $4) AS ev
		JOIN refund_operations o ON o.tenant_id = ev.tenant_id AND o.operation_id = ev.operation_id
		ORDER BY ev.position`, l.TenantID, l.EndpointID, t.position, ahead).Query(collectCandidates(&fresh))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return round{}, err
	}
	r := round{until: t.position}
	for _, d := range due {
		if err := c.add(&r, t, d, true); err != nil {
			return r, err
		}
	}
	err := c.addFresh(&r, t, fresh)
	return r, err
}

// addFresh takes fresh events in their order, up to the first one that has to wait for this round.
func (c *Courier) addFresh(r *round, t target, fresh []candidate) error {
	ours := map[string]bool{}
	for i, f := range fresh {
		p := place{f.Position, f.Operation.OperationID}
		switch {
		case t.types != nil && !slices.Contains(t.types, string(f.Type)):
		case f.waits:
			r.parked = append(r.parked, p)
		case ours[p.operationID], len(r.messages) >= t.room:
			return nil
		default:
			if err := c.add(r, t, f, false); err != nil {
				return err
			}
			ours[p.operationID] = true
		}
		r.until = f.Position
		r.again = i == ahead-1
	}
	// What was only parked or passed over is noted before the lease is given back.
	r.again = r.again || r.until > t.position
	return nil
}

func (c *Courier) add(r *round, t target, e candidate, queued bool) error {
	body, err := c.body(e.Event)
	if err != nil {
		return fmt.Errorf("write the message of event %s: %w", e.ID, err)
	}
	r.messages = append(r.messages, outgoing{
		message:  message{url: t.url, keys: t.keys, id: e.ID, at: t.now, body: body},
		place:    place{e.Position, e.Operation.OperationID},
		isQueued: queued, queued: e.attempts,
	})
	return nil
}

// candidate is an event that may be sent.
type candidate struct {
	Event
	attempts int
	waits    bool // for an earlier one of its operation
}

func collectCandidates(into *[]candidate) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (candidate, error) {
			var e candidate
			err := row.Scan(append(e.targets(), &e.attempts, &e.waits)...)
			e.Operation.State = e.Type.state()
			return e, err
		})
		return err
	}
}
