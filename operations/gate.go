package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/batch"
	"refundd/internal/pgtx"
)

// maySend is the gate in front of every request to the provider. A process that was suspended past its lease walks away, by
// the monotonic clock or the wall clock; a key that somebody else works on, or that the provider may have forgotten by the
// time the call ends, is not sent. Leases that arrive while the gate is asked share its next statement.
func (e *Engine) maySend(ctx context.Context, l Lease) (bool, error) {
	open, err := inCompany(ctx, e.asks, l.key().lane(), l)
	return open && l.alive(e.config.Lease), err
}

// askAll answers leases from one statement: whether their keys are reserved, theirs, and sure to be known to the provider
// when a call ends.
func (e *Engine) askAll(ctx context.Context, leases []Lease) []batch.Result[bool] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	keys := make([]operationKey, len(leases))
	for i, l := range leases {
		keys[i] = l.key()
	}
	attempts, err := e.sendable(ctx, keys)
	if err != nil {
		return failed[bool](len(leases), err)
	}
	results := make([]batch.Result[bool], len(leases))
	for i, l := range leases {
		n, found := attempts[l.key()]
		results[i].Out = found && n == l.attempts
	}
	return results
}

// sendable answers, of those keys that are reserved and that the provider will still know when a call ends, the attempts.
func (e *Engine) sendable(ctx context.Context, keys []operationKey) (map[operationKey]int, error) {
	tenants, ids := columns(keys)
	open := make(map[operationKey]int, len(keys))
	err := pgtx.Read(ctx, e.config.Pool, func(b *pgx.Batch) {
		b.Queue(`
			SELECT o.tenant_id, o.operation_id, o.attempts
			FROM unnest($1::text[], $2::text[]) AS k (tenant_id, operation_id)
			JOIN refund_operations o ON o.tenant_id = k.tenant_id AND o.operation_id = k.operation_id
			WHERE o.state = 'reserved' AND clock_timestamp() + $3 * interval '1 millisecond' < o.provider_key_expires_at`,
			tenants, ids, (e.config.ProviderTimeout + keyMargin).Milliseconds()).Query(func(rows pgx.Rows) error {
			var key operationKey
			var attempts int
			_, err := pgx.ForEachRow(rows, []any{&key.TenantID, &key.OperationID, &attempts}, func() error {
				open[key] = attempts
				return nil
			})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("ask whether to send: %w", err)
	}
	return open, nil
}

// keyMargin is how much earlier than the provider's documented retention we take its key for forgotten: our clocks differ.
const keyMargin = time.Minute

// alive tells whether the lease has not run out by either of our clocks.
func (l Lease) alive(lease time.Duration) bool {
	now := time.Now()
	return now.Sub(l.taken) < lease && now.Round(0).Sub(l.taken.Round(0)) < lease
}

func (l Lease) key() operationKey {
	return operationKey{l.Operation.TenantID, l.Operation.OperationID}
}
