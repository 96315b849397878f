package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"refundd/internal/pgtx"
)

// Lease is the right to work on one operation for a while. Every taking of it adds one to the operation's attempts, and that
// number is its token: what a holder finds counts for less once somebody else has taken the lease.
type Lease struct {
	Operation    Operation // as it was when the lease was taken
	State        State
	layer        string
	number       int // of the attempt in that layer; 0 where its caller says none
	attempts     int
	notSent      int  // earlier attempts that were recorded as not sent
	sends        bool // nothing was ever sent: the holder sends without looking first
	paymentRef   string
	providerKey  string
	takenAt      time.Time          // by the database's clock
	due          pgtype.Timestamptz // since when
	lagLeft      time.Duration      // until the provider's listing shows all that was ever sent
	taken        time.Time          // by ours, before the statement that took it
	attemptedFor string             // who works: a caller's request, reconciliation, a human
}

// leaseColumns reads a leased operation o of an order p, for scanLease.
const leaseColumns = operationColumns + `, o.attempts, o.not_sent, o.not_sent = o.attempts - 1 AND o.state = 'reserved',
	p.provider_payment_ref, o.provider_key, c.at, o.next_check_at,
	CASE WHEN o.last_send_ended + lag.lag > c.at
		THEN (extract(epoch FROM least(o.last_send_ended + lag.lag, c.at + interval '1 day') - c.at) * 1000000000)::bigint
		ELSE 0 END`

func (e *Engine) scanLease(taken time.Time, layer, who string) func(pgx.CollectableRow) (Lease, error) {
	return func(row pgx.CollectableRow) (Lease, error) {
		l := Lease{taken: taken, layer: layer, attemptedFor: who}
		o := &l.Operation
		err := row.Scan(append(o.targets(), &l.attempts, &l.notSent, &l.sends, &l.paymentRef, &l.providerKey, &l.takenAt, &l.due,
			&l.lagLeft)...)
		l.State = o.State
		return l, err
	}
}

// takeLease is the statement that takes leases of the operations that picked selects. Where every earlier attempt was
// recorded as not sent, the provider can not know the key yet: its expiry begins anew, and the holder may send at once.
const takeLease = `
	WITH c AS MATERIALIZED (SELECT clock_timestamp() AS at),
	retention AS (SELECT * FROM unnest($1::text[], $2::bigint[]) AS r (provider, ms)),
	lag AS (SELECT $5 * interval '1 millisecond' AS lag),
	picked AS MATERIALIZED (%s)
	UPDATE refund_operations o SET
		attempts = o.attempts + 1,
		lease_until = c.at + $3 * interval '1 millisecond',
		provider_key_expires_at = CASE WHEN o.state = 'reserved' AND o.not_sent = o.attempts
			THEN c.at + coalesce((SELECT r.ms FROM retention r WHERE r.provider = o.provider), 0) * interval '1 millisecond'
			ELSE o.provider_key_expires_at END,
		last_send_ended = CASE WHEN o.state = 'reserved' AND o.not_sent = o.attempts
			THEN c.at + $4 * interval '1 millisecond' ELSE o.last_send_ended END
	FROM c, lag, picked, orders p
	WHERE o.tenant_id = picked.tenant_id AND o.operation_id = picked.operation_id
		AND p.tenant_id = o.tenant_id AND p.order_id = o.order_id
	RETURNING ` + leaseColumns

// takeOne takes the lease of one operation, or answers nil where it is not free. A lease that was freed less than rest ago
// counts as taken.
func (e *Engine) takeOne(ctx context.Context, key operationKey, states []State, rest time.Duration, layer, who string) (*Lease, error) {
	leases, err := e.take(ctx, layer, who, `
		SELECT q.tenant_id, q.operation_id FROM refund_operations q, c
		WHERE q.tenant_id = $6 AND q.operation_id = $7 AND q.provider IS NOT NULL AND q.state = ANY ($8::text[])
			AND q.lease_until <= c.at - $9 * interval '1 millisecond'
		FOR NO KEY UPDATE OF q`, key.TenantID, key.OperationID, stateNames(states), rest.Milliseconds())
	if len(leases) == 0 || err != nil {
		return nil, err
	}
	return &leases[0], nil
}

// ClaimDue takes the leases of up to limit operations that reconciliation may look at: without an end or within their
// re-check window, leased by nobody, and due before the time before. Other claims that overlap get other operations.
func (e *Engine) ClaimDue(ctx context.Context, before time.Time, limit int) ([]Lease, error) {
	return e.take(ctx, "", ActorReconciliation, `
		SELECT o.tenant_id, o.operation_id FROM refund_operations o, c
		WHERE o.provider IS NOT NULL AND o.next_check_at < $6 AND o.lease_until <= c.at AND `+dueStates+`
		ORDER BY o.next_check_at LIMIT $7
		FOR NO KEY UPDATE OF o SKIP LOCKED`, before, limit)
}

// dueStates are those of refunds. A settled one stays due until its re-check window ends, by its next_check_at.
const dueStates = `o.state IN ('reserved', 'pending', 'needs_attention', 'succeeded', 'failed')`

func (e *Engine) take(ctx context.Context, layer, who, picked string, args ...any) ([]Lease, error) {
	taken := time.Now()
	args = append([]any{
		e.providerNames, e.retentions, e.config.Lease.Milliseconds(), e.config.ProviderTimeout.Milliseconds(),
		e.config.ListingLag.Milliseconds(),
	}, args...)
	var leases []Lease
	err := pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(takeLease, picked), args...)
		if err != nil {
			return err
		}
		leases, err = pgx.CollectRows(rows, e.scanLease(taken, layer, who))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	return leases, nil
}

func stateNames(states []State) []string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return names
}
