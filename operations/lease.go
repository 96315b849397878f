package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"refundd/internal/clocks"
	"refundd/internal/pgtx"
)

// Lease is the right to work on one operation for a while. Every taking of it adds one to the operation's attempts, and
// that number is its token: what a holder finds counts for less once somebody else has taken the lease.
type Lease struct {
	Operation    Operation // as it was when the lease was taken
	State        State
	layer        string
	number       int    // of the attempt in that layer; 0 where its caller says none
	ref          string // names the call that took it up
	attempts     int
	notSent      int  // earlier attempts that were recorded as not sent
	young        bool // a human is not told of it for its age
	lookFirst    bool // a history that was lost may have sent it
	sends        bool // nothing was ever sent, that we know of, and it is young: the holder sends without looking first
	probe        bool // the provider has not answered its holder yet, see Claim
	paymentRef   string
	account      string // of the provider, which took the payment
	providerKey  string
	takenAt      time.Time          // by the database's clock
	due          pgtype.Timestamptz // since when
	lagLeft      time.Duration      // until the provider's listing shows all that was ever sent
	taken        clocks.Moment      // by ours, before the statement that took it
	lastSend     clocks.Moment      // no later than the row's last_send_ended: nothing is written after it
	attemptedFor string             // who works: a caller's request, reconciliation, the API key of a human
	until        pgtype.Timestamptz // by the database's clock
	before       unleased
}

// unleased is what taking a lease changes, as it was before.
type unleased struct{ leaseUntil, keyExpiresAt, lastSendEnded pgtype.Timestamptz }

// leaseColumns reads a leased operation o, for scan.
const leaseColumns = operationColumns + `, o.attempts, o.not_sent, o.created_at >= c.at - old.age, o.look_first,
	(SELECT p.provider_payment_ref FROM orders p WHERE p.tenant_id = o.tenant_id AND p.order_id = o.order_id),
	(SELECT coalesce(p.provider_account, '') FROM orders p WHERE p.tenant_id = o.tenant_id AND p.order_id = o.order_id),
	o.provider_key, c.at, o.next_check_at,
	CASE WHEN o.last_send_ended + lag.lag > c.at
		THEN (extract(epoch FROM least(o.last_send_ended + lag.lag, c.at + interval '1 day') - c.at) * 1000000000)::bigint
		ELSE 0 END`

// scan reads a lease. A reservation that has become old is looked up before it is sent, even for the first time: a
// human may have to decide; so is what a history that was lost may have sent. earlier is how many of its attempts were
// before this one.
func (l *Lease) scan(row pgx.CollectableRow, earlier func(attempts int) int, more ...any) error {
	targets := append(l.Operation.targets(), &l.attempts, &l.notSent, &l.young, &l.lookFirst, &l.paymentRef, &l.account,
		&l.providerKey,
		&l.takenAt, &l.due, &l.lagLeft)
	err := row.Scan(append(targets, more...)...)
	l.State = l.Operation.State
	l.sends = l.young && !l.lookFirst && l.State == StateReserved && l.notSent == earlier(l.attempts)
	return err
}

// takeLease is the statement that takes leases of the operations that picked selects. Where every earlier attempt was
// recorded as not sent, the provider can not know the key yet: its expiry begins anew, and the holder may send at once.
const takeLease = `
	WITH c AS MATERIALIZED (SELECT clock_timestamp() AS at),
	retention AS (SELECT * FROM unnest($1::text[], $2::bigint[]) AS r (provider, ms)),
	lag AS (SELECT $5 * interval '1 millisecond' AS lag),
	old AS (SELECT $6::float8 * interval '1 millisecond' AS age),
	picked AS MATERIALIZED (
		SELECT q.tenant_id, q.operation_id, q.lease_until, q.provider_key_expires_at, q.last_send_ended
		FROM refund_operations q, c WHERE %s)
	UPDATE refund_operations o SET
		attempts = o.attempts + 1,
		lease_until = c.at + $3 * interval '1 millisecond',
		provider_key_expires_at = CASE WHEN o.state = 'reserved' AND o.not_sent = o.attempts
			THEN c.at + coalesce((SELECT r.ms FROM retention r WHERE r.provider = o.provider),
				0) * interval '1 millisecond'
			ELSE o.provider_key_expires_at END,
		last_send_ended = CASE WHEN o.state = 'reserved' AND o.not_sent = o.attempts
			THEN c.at + $4 * interval '1 millisecond' ELSE o.last_send_ended END
	FROM c, lag, old, picked
	WHERE o.tenant_id = picked.tenant_id AND o.operation_id = picked.operation_id
	RETURNING ` + leaseColumns + `, o.lease_until, picked.lease_until, picked.provider_key_expires_at,
		picked.last_send_ended`

// takeOne takes the lease of one operation, or answers nil where it is not free. A lease that was freed less than rest
// ago counts as taken.
func (e *Engine) takeOne(ctx context.Context, key operationKey, states []State, rest time.Duration, layer,
	who string) (*Lease, error) {
	leases, err := e.take(ctx, Lease{layer: layer, attemptedFor: who}, `
		q.tenant_id = $7 AND q.operation_id = $8 AND q.provider IS NOT NULL AND q.state = ANY ($9::text[])
			AND q.lease_until <= c.at - $10 * interval '1 millisecond'
		FOR NO KEY UPDATE OF q`, key.TenantID, key.OperationID, stateNames(states), rest.Milliseconds())
	if len(leases) == 0 || err != nil {
		return nil, err
	}
	return &leases[0], nil
}

// take takes the leases that picked selects, each a copy of proto.
func (e *Engine) take(ctx context.Context, proto Lease, picked string, args ...any) ([]Lease, error) {
	proto.taken = clocks.Now()
	proto.lastSend = proto.taken.Add(e.config.ProviderTimeout)
	args = append([]any{
		e.providerNames, e.retentions, e.config.Lease.Milliseconds(), e.config.ProviderTimeout.Milliseconds(),
		e.config.ListingLag.Milliseconds(), e.config.ReservedAge.Milliseconds(),
	}, args...)
	var leases []Lease
	err := pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(takeLease, picked), args...)
		if err != nil {
			return err
		}
		leases, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Lease, error) {
			l := proto
			err := l.scan(row, func(attempts int) int { return attempts - 1 },
				&l.until, &l.before.leaseUntil, &l.before.keyExpiresAt, &l.before.lastSendEnded)
			return l, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take lease: %w", err)
	}
	return leases, nil
}

// untake makes the row what it was before the lease was taken. It is for a holder that learned nothing and sent
// nothing: its token is used again, so that nothing of its may still be under way. Somebody who took the lease since is
// not disturbed, since no two leases end at the same time.
func (e *Engine) untake(ctx context.Context, l Lease) error {
	err := pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE refund_operations SET attempts = attempts - 1, lease_until = $5, provider_key_expires_at = $6,
				last_send_ended = $7
			WHERE tenant_id = $1 AND operation_id = $2 AND attempts = $3 AND lease_until = $4`,
			l.Operation.TenantID, l.Operation.OperationID, l.attempts, l.until,
			l.before.leaseUntil, l.before.keyExpiresAt, l.before.lastSendEnded)
		return err
	})
	if err != nil {
		return fmt.Errorf("give lease back: %w", err)
	}
	return nil
}

func stateNames(states []State) []string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return names
}
