package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/batch"
	"refundd/internal/clocks"
	"refundd/internal/pgtx"
)

// maySend is the gate in front of every request to the provider: it answers whether the request may be sent, and the
// moment after which no byte of it is written. A key that somebody else works on, or that the provider may have
// forgotten by the time the call ends, is not sent. What is found here need not hold any more when the connection to
// the provider is there: the moment goes with the request. A process that was suspended past its lease walks away, by
// the monotonic clock or the wall clock; and nothing is written later than last_send_ended says, since the listing's
// lag is counted from there if the process ends before it says better.
func (e *Engine) maySend(ctx context.Context, l Lease) (notAfter clocks.Moment, open bool, err error) {
	open, err = inCompany(ctx, e.gate, l.key().lane(), l)
	notAfter = clocks.Earliest(l.lastSend, l.taken.Add(e.config.Lease))
	return notAfter, open && !notAfter.Passed(), err
}

// checkLeases answers leases from one statement, which those that arrive meanwhile share: whether their keys are
// reserved, theirs, and sure to be known to the provider when a call ends.
func (e *Engine) checkLeases(ctx context.Context, leases []Lease) []batch.Result[bool] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	return apart(e, leases, func(leases []Lease) ([]batch.Result[bool], error) {
		keys := make([]operationKey, len(leases))
		for i, l := range leases {
			keys[i] = l.key()
		}
		attempts, err := e.sendable(ctx, keys)
		if err != nil {
			return nil, err
		}
		results := make([]batch.Result[bool], len(leases))
		for i, l := range leases {
			latest, found := attempts[l.key()]
			results[i].Out = found && latest == l.attempts
		}
		return results, nil
	})
}

// sendable reads the attempts of those keys that are reserved and that the provider will still know when a call ends.
func (e *Engine) sendable(ctx context.Context, keys []operationKey) (map[operationKey]int, error) {
	tenants, ids := columns(keys)
	open := make(map[operationKey]int, len(keys))
	err := pgtx.ReadKept(ctx, e.config.Pool, func(b *pgx.Batch) {
		b.Queue(`
			SELECT o.tenant_id, o.operation_id, o.attempts
			FROM unnest($1::text[], $2::text[]) AS k (tenant_id, operation_id)
			JOIN refund_operations o ON o.tenant_id = k.tenant_id AND o.operation_id = k.operation_id
			WHERE o.state = 'reserved' AND clock_timestamp() + $3 * interval '1 millisecond' < o.provider_key_expires_at`,
			tenants, ids, (e.config.ProviderTimeout + keyMargin).Milliseconds(),
		).Query(func(rows pgx.Rows) error {
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

// keyMargin is how much earlier than the provider's documented retention we take its key for forgotten: our clocks
// differ.
const keyMargin = time.Minute

// alive tells whether the lease has not run out by either of our clocks.
func (l Lease) alive(lease time.Duration) bool { return !l.taken.Add(lease).Passed() }

func (l Lease) key() operationKey {
	return operationKey{l.Operation.TenantID, l.Operation.OperationID}
}
