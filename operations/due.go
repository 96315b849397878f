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

// Claim says which of the due operations to take: those of one provider that reconciliation may look at, leased by
// nobody, and due before a time. Claims that overlap get other operations.
type Claim struct {
	Provider string
	Before   time.Time
	Settled  bool // those that have an end or a human, which are looked at now and then; else those that have neither
	Newest   bool // those that are due for the shortest time; else for the longest
	Limit    int
	// nothing was heard of the provider yet: where it refuses our credentials, leases are given back unused
	Probe bool
}

// ClaimDue takes the leases that c says.
func (e *Engine) ClaimDue(ctx context.Context, c Claim) ([]Lease, error) {
	order := "q.next_check_at"
	if c.Newest {
		order += " DESC"
	}
	return e.take(ctx, Lease{attemptedFor: ActorReconciliation, probe: c.Probe}, `
		q.provider = $7 AND q.next_check_at < $8 AND q.lease_until <= c.at AND `+c.states("q")+`
		ORDER BY `+order+` LIMIT $9
		FOR NO KEY UPDATE OF q SKIP LOCKED`, c.Provider, c.Before, c.Limit)
}

// states is the condition of an index, refund_operations_due_idx or refund_operations_recheck_idx. A settled operation
// stays due until its re-check window ends, by its next_check_at.
func (c Claim) states(table string) string {
	states := `'reserved', 'pending'`
	if c.Settled {
		states = `'needs_attention', 'succeeded', 'failed'`
	}
	return fmt.Sprintf(`%[1]s.state IN (%[2]s) AND %[1]s.next_check_at < 'infinity'`, table, states)
}

// Due answers a page of the operations that ClaimDue would take, the longest due first, without taking them. What is
// looked at meanwhile is due after the time before, and in no later page.
func (e *Engine) Due(ctx context.Context, c Claim, after *Lease) ([]Lease, error) {
	key, since := operationKey{}, pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	if after != nil {
		key, since = after.key(), after.due
	}
	taken := clocks.Now()
	var due []Lease
	err := pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) error {
		rows, err := tx.Query(ctx, `
			WITH c AS MATERIALIZED (SELECT clock_timestamp() AS at),
				lag AS (SELECT $6 * interval '1 millisecond' AS lag),
			old AS (SELECT $7::float8 * interval '1 millisecond' AS age)
			SELECT `+leaseColumns+` FROM c, lag, old, refund_operations o
			WHERE o.provider = $1 AND o.next_check_at < $2 AND o.lease_until <= c.at AND `+c.states("o")+`
				AND (o.next_check_at, o.tenant_id, o.operation_id) > ($3, $4, $5)
			ORDER BY o.next_check_at, o.tenant_id, o.operation_id LIMIT $8`,
			c.Provider, c.Before, since, key.TenantID, key.OperationID, e.config.ListingLag.Milliseconds(),
			e.config.ReservedAge.Milliseconds(), c.Limit)
		if err != nil {
			return err
		}
		due, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Lease, error) {
			l := Lease{taken: taken, attemptedFor: ActorReconciliation, probe: c.Probe}
			// no taking of a lease has counted itself yet
			err := l.scan(row, func(attempts int) int { return attempts })
			return l, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read due operations: %w", err)
	}
	return due, nil
}

// Providers names those that are configured.
func (e *Engine) Providers() []string { return e.providerNames }

// Strangers names the providers of operations that are due before a time and that nobody here can ask.
func (e *Engine) Strangers(ctx context.Context, before time.Time) (names []string, err error) {
	err = pgtx.Read(ctx, e.config.Pool, func(b *pgx.Batch) {
		names = nil
		for _, c := range []Claim{{}, {Settled: true}} {
			b.Queue(providersOf(c)+`
				SELECT named.provider FROM named WHERE named.provider <> ALL (coalesce($1::text[], '{}')) AND EXISTS (
					SELECT FROM refund_operations o WHERE o.provider = named.provider AND o.next_check_at < $2
						AND o.lease_until <= clock_timestamp() AND `+c.states("o")+`)`, e.providerNames,
				before).Query(func(rows pgx.Rows) error {
				found, err := pgx.CollectRows(rows, pgx.RowTo[string])
				names = append(names, found...)
				return err
			})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read unknown providers: %w", err)
	}
	return names, nil
}

// providersOf begins a statement that reads the providers that have operations of a kind, as "named", and a null: it
// leaps from one name to the next in the index, however many operations each has.
func providersOf(c Claim) string {
	return `
		WITH RECURSIVE named AS (
			(SELECT o.provider FROM refund_operations o WHERE o.provider IS NOT NULL AND ` + c.states("o") + `
				ORDER BY o.provider LIMIT 1)
			UNION ALL
			SELECT (SELECT o.provider FROM refund_operations o WHERE o.provider > named.provider
				AND ` + c.states("o") + `
				ORDER BY o.provider LIMIT 1)
			FROM named WHERE named.provider IS NOT NULL
		)`
}

// MostCounted is how many due operations of a provider and a kind are counted; there may be more.
const MostCounted = 10000

// QueueDue queues the counting of what is due by now: found is told of each provider, once for what has no end and once
// for what is looked at now and then.
func QueueDue(b *pgx.Batch, found func(provider string, count int64)) {
	for _, c := range []Claim{{}, {Settled: true}} {
		b.Queue(providersOf(c)+`
			SELECT named.provider, (SELECT count(*) FROM (
				SELECT FROM refund_operations o WHERE o.provider = named.provider
					AND o.next_check_at <= clock_timestamp()
					AND o.lease_until <= clock_timestamp() AND `+c.states("o")+` LIMIT $1) due)
			FROM named WHERE named.provider IS NOT NULL`, MostCounted).Query(func(rows pgx.Rows) error {
			var provider string
			var count int64
			_, err := pgx.ForEachRow(rows, []any{&provider, &count}, func() error {
				found(provider, count)
				return nil
			})
			return err
		})
	}
}
