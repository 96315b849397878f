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

// admission is the gate's answer.
type admission struct {
	open     bool
	notAfter clocks.Moment // of an open gate: no byte is written later
}

// maySend is the gate in front of every request to the provider. A process that was suspended past its lease walks away, by
// the monotonic clock or the wall clock; a key that somebody else works on, or that the provider may have forgotten by the
// time the call ends, is not sent. Leases that arrive while the gate is asked share its next statement. What is found here
// need not hold any more when the connection to the provider is there: notAfter goes with the request.
func (e *Engine) maySend(ctx context.Context, l Lease) (admission, error) {
	a, err := inCompany(ctx, e.asks, l.key().lane(), l)
	return admission{a.open && l.alive(e.config.Lease), clocks.Earliest(a.notAfter, l.taken.Add(e.config.Lease))}, err
}

// askAll answers leases from one statement: whether their keys are reserved, theirs, and sure to be known to the provider
// when a call ends.
func (e *Engine) askAll(ctx context.Context, leases []Lease) []batch.Result[admission] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	return apart(e, leases, func(leases []Lease) ([]batch.Result[admission], error) {
		keys := make([]operationKey, len(leases))
		for i, l := range leases {
			keys[i] = l.key()
		}
		asked := clocks.Now()
		found, err := e.sendable(ctx, keys)
		if err != nil {
			return nil, err
		}
		results := make([]batch.Result[admission], len(leases))
		for i, l := range leases {
			s, open := found[l.key()]
			results[i].Out = admission{open && s.attempts == l.attempts, asked.Add(s.keyLeft)}
		}
		return results, nil
	})
}

// sendable is what the gate reads of a key.
type sendable struct {
	attempts int
	keyLeft  time.Duration // until the provider may have forgotten it, less the margin
}

// sendable reads those of keys that are reserved and that the provider will still know when a call ends.
func (e *Engine) sendable(ctx context.Context, keys []operationKey) (map[operationKey]sendable, error) {
	tenants, ids := columns(keys)
	open := make(map[operationKey]sendable, len(keys))
	err := pgtx.Read(ctx, e.config.Pool, func(b *pgx.Batch) {
		b.Queue(`
			WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at)
			SELECT o.tenant_id, o.operation_id, o.attempts,
				-- an expiry may lie at infinity: a day is for ever here
				least(o.provider_key_expires_at - $4 * interval '1 millisecond', clock.at + interval '1 day') - clock.at
			FROM unnest($1::text[], $2::text[]) AS k (tenant_id, operation_id)
			CROSS JOIN clock
			JOIN refund_operations o ON o.tenant_id = k.tenant_id AND o.operation_id = k.operation_id
			WHERE o.state = 'reserved' AND clock.at + $3 * interval '1 millisecond' < o.provider_key_expires_at`,
			tenants, ids, (e.config.ProviderTimeout + keyMargin).Milliseconds(), keyMargin.Milliseconds(),
		).Query(func(rows pgx.Rows) error {
			var key operationKey
			var s sendable
			_, err := pgx.ForEachRow(rows, []any{&key.TenantID, &key.OperationID, &s.attempts, &s.keyLeft}, func() error {
				open[key] = s
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
func (l Lease) alive(lease time.Duration) bool { return !l.taken.Add(lease).Passed() }

func (l Lease) key() operationKey {
	return operationKey{l.Operation.TenantID, l.Operation.OperationID}
}
