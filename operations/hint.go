package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"refundd/internal/clocks"
	"refundd/internal/pgtx"
)

// Why a provider's event is not read.
var (
	// ErrEventUnsigned reports an event whose signature is not its provider's, or is of another time.
	ErrEventUnsigned = errors.New("event is not signed by its provider")
	// ErrEventMalformed reports an event that its provider signed, and that is not what it documents.
	ErrEventMalformed = errors.New("event is malformed")
)

// Hint is where a provider's event says that something happened. What it says happened is not believed: it may be old,
// come twice, or before what it follows. The zero Hint hints at nothing.
type Hint struct {
	Account     string // of the provider; empty for our own
	Refunds     []HintedRefund
	PaymentRefs []string // where no refund is named: their payment
}

// HintedRefund is a refund that an event names, and whose it says it is.
type HintedRefund struct{ ProviderRefundID, TenantID, OperationID string }

// Heeded is what became of a hint.
type Heeded string

// The ends of a hint.
const (
	HeededNotOurs   Heeded = "not_ours"  // no operation here is meant
	HeededUnchanged Heeded = "unchanged" // the books say what the rows say, or nothing that is proof
	HeededApplied   Heeded = "applied"   // at least one operation moved
)

// ActorProvider works where a provider's event made us look.
const ActorProvider = "provider_event"

// hintTries is how often a hint is looked after where the operation moves meanwhile.
const hintTries = 3

// Heed looks at the provider's books where h hints, and records what they prove. It takes no lease and waits for none,
// so that it may come during our own call: proof counts whatever the lease, and what is no proof is left to whoever
// works on the operation. An error tells that the hint may not have been heeded, and is to come again.
func (e *Engine) Heed(ctx context.Context, provider string, h Hint) (Heeded, error) {
	if e.providers[provider] == nil {
		return HeededUnchanged, &Refusal{Err: ErrProviderUnavailable, RetryAfter: e.config.BreakerOpen}
	}
	meant, err := e.meant(ctx, provider, h)
	if err != nil {
		return HeededUnchanged, err
	}
	result := HeededNotOurs
	for _, l := range meant {
		if l.account != h.Account {
			continue // another account's refund that bears our marks
		}
		moved, err := e.heed(ctx, l)
		switch {
		case err != nil:
			return result, err
		case moved:
			result = HeededApplied
		case result == HeededNotOurs:
			result = HeededUnchanged
		}
	}
	return result, nil
}

// heed looks one operation up and records what is shown, and tells whether it moved. Where it moved meanwhile, it looks
// anew: what was seen before may be older than what was recorded.
func (e *Engine) heed(ctx context.Context, l Lease) (bool, error) {
	for range hintTries {
		f := e.lookup(ctx, l)
		f.hinted = true
		switch {
		case f.unreachable():
			return false, &Refusal{Err: ErrProviderUnavailable, Operation: &l.Operation,
				RetryAfter: e.config.BreakerOpen}
		case f.contradictory():
			return false, e.hasten(ctx, l.key())
		case f.kind != "":
			return false, nil
		}
		failpoint("hint.looked")
		r := e.offer(ctx, f)
		switch {
		case r.err != nil:
			return false, r.err
		case f.is(OutcomePending) && r.operation.State == StateFailed:
			return false, e.hasten(ctx, l.key()) // its last word is to come, and nobody may be looking for it any more
		case r.operation.State == l.State || r.moved:
			return r.moved, nil
		}
		l.Operation, l.State = r.operation, r.operation.State
	}
	return false, e.hasten(ctx, l.key())
}

// hasten makes an operation due: reconciliation, which takes its lease, records what is no proof.
func (e *Engine) hasten(ctx context.Context, k operationKey) error {
	err := pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE refund_operations SET next_check_at = least(next_check_at, clock_timestamp())
			WHERE tenant_id = $1 AND operation_id = $2`, k.TenantID, k.OperationID)
		return err
	})
	if err != nil {
		return fmt.Errorf("make operation due: %w", err)
	}
	return nil
}

// hintedMost is how many operations of a payment are looked up for one event; reconciliation looks up the others in its
// time.
const hintedMost = 20

// meant are the operations that h means, as holders of no lease: by the name of a refund that is recorded, by its
// marks, or all of a payment that have no end.
func (e *Engine) meant(ctx context.Context, provider string, h Hint) ([]Lease, error) {
	taken := clocks.Now()
	var names, tenants, ids []string
	for _, r := range h.Refunds {
		if !isName(r.ProviderRefundID) || !isName(r.TenantID) || !isName(r.OperationID) {
			continue // no operation has such names
		}
		names, tenants, ids = append(names, r.ProviderRefundID), append(tenants, r.TenantID), append(ids, r.OperationID)
	}
	var found []Lease
	err := e.query(ctx, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Lease, error) {
			l := Lease{taken: taken, attemptedFor: ActorProvider}
			var name string
			err := l.scan(row, func(attempts int) int { return attempts }, &name)
			l.attempts = 0 // nobody's token
			if l.Operation.ProviderRefundID == nil && name != "" {
				l.Operation.ProviderRefundID = &name // to be read by it where the listing lags
			}
			return l, err
		})
		return err
	}, `
		WITH c AS MATERIALIZED (SELECT clock_timestamp() AS at), lag AS (SELECT $6 * interval '1 millisecond' AS lag),
		old AS (SELECT $7::float8 * interval '1 millisecond' AS age),
		meant AS (
			SELECT q.tenant_id, q.operation_id, n.name FROM unnest($2::text[]) AS n (name)
			JOIN refund_operations q ON q.provider = $1 AND q.provider_refund_id = n.name AND n.name <> ''
			UNION
			SELECT q.tenant_id, q.operation_id, k.name
				FROM unnest($2::text[], $3::text[], $4::text[]) AS k (name, tenant_id, operation_id)
			JOIN refund_operations q
				ON q.tenant_id = k.tenant_id AND q.operation_id = k.operation_id AND q.provider = $1
			UNION
			SELECT q.tenant_id, q.operation_id, '' FROM unnest($5::text[]) AS p (ref)
			JOIN orders r ON r.provider = $1 AND r.provider_payment_ref = p.ref
			JOIN refund_operations q ON q.tenant_id = r.tenant_id AND q.order_id = r.order_id
				AND q.state IN ('reserved', 'pending', 'needs_attention'))
		SELECT `+leaseColumns+`, m.name FROM c, lag, old, meant m
		JOIN refund_operations o ON o.tenant_id = m.tenant_id AND o.operation_id = m.operation_id
		ORDER BY o.created_at DESC, o.tenant_id, o.operation_id LIMIT $8`,
		provider, names, tenants, ids, h.PaymentRefs, e.config.ListingLag.Milliseconds(), e.config.ReservedAge.Milliseconds(), hintedMost)
	if err != nil {
		return nil, fmt.Errorf("find what an event means: %w", err)
	}
	return found, nil
}
