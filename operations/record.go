package operations

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/batch"
	"refundd/internal/pgtx"
	"refundd/ledger"
)

// recorded is what tx 2 made of a fact: the operation as it stands now, and whether this fact is what moved it there.
type recorded struct {
	operation Operation
	change    change
	moved     bool
	err       error
}

// errHeld reports an order, or an operation, that somebody else holds: nothing was recorded.
var errHeld = errors.New("somebody else holds the order")

// recordAll is tx 2 in company, where nobody waits for a lock.
func (e *Engine) recordAll(ctx context.Context, facts []*fact) []batch.Result[recorded] {
	results := e.recordKeys(ctx, facts, false)
	for i, r := range results {
		// the name of a provider's refund, by somebody who is about to record it: whose is not known
		if pgtx.StaysLocked(r.Err) {
			results[i].Err = errHeld
		}
	}
	return results
}

// recordPatiently is tx 2 of facts of one order that somebody else held.
func (e *Engine) recordPatiently(ctx context.Context, facts []*fact) []batch.Result[recorded] {
	return e.recordKeys(ctx, facts, true)
}

// recordKeys records facts until each has its answer: of one key, one at a time. They belong to operations, not to
// callers: no caller's deadline ends it.
func (e *Engine) recordKeys(ctx context.Context, facts []*fact, wait bool) []batch.Result[recorded] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchDeadline)
	defer cancel()
	return inRounds(facts, func(f *fact) operationKey { return f.lease.key() },
		func(facts []*fact) []batch.Result[recorded] {
			return apart(e, facts, func(facts []*fact) ([]batch.Result[recorded], error) {
				return e.recordOnce(ctx,
					facts, wait)
			})
		}, func(_, _ *fact, _ batch.Result[recorded]) (none batch.Result[recorded], alike bool) {
			return none, false
		})
}

func (e *Engine) recordOnce(ctx context.Context, facts []*fact, wait bool) ([]batch.Result[recorded], error) {
	results, err := pgtx.Kept(ctx, e.config.Pool, func(tx *pgtx.Tx) ([]batch.Result[recorded], error) {
		return e.tx2(ctx, tx, facts, wait)
	})
	if len(facts) == 1 && pgtx.Constraint(err) == "refund_operations_provider_refund_key" {
		facts[0].disown()
		return e.recordOnce(ctx, facts, wait)
	}
	failpoint("record.committed")
	for i, f := range facts {
		if err == nil && results[i].Err == nil && f.disowned && f.silent {
			results[i].Out.err = refuse(ErrProviderDisagrees, &results[i].Out.operation)
		}
	}
	return results, err
}

// disown takes a fact back that names another operation's refund at the provider: it stays the call that it was, and
// proves nothing. A person's decision on such books needs an override.
func (f *fact) disown() {
	f.disowned = true
	if f.source == sourceHuman {
		f.silent = !f.override
		f.result.ProviderRefundID = ""
		f.detail = merged(f.detail, detailShows, string(errorNotOurs))
		return
	}
	f.kind, f.result = errorNotOurs, ProviderResult{RequestID: f.result.RequestID}
}

// tx2 locks the orders and then the operations, reads them anew, decides, and writes what changes: states, transfers
// and history, or nothing of them. It is two messages, of which the second commits.
func (e *Engine) tx2(ctx context.Context, tx *pgtx.Tx, facts []*fact, wait bool) ([]batch.Result[recorded], error) {
	held, err := e.lockForRecord(ctx, tx, facts, wait)
	if err != nil {
		return nil, err
	}
	results := make([]batch.Result[recorded], len(facts))
	changes := newChangeRows(len(facts))
	var postings []ledger.Posting
	var events []Event
	for i, f := range facts {
		r, err := held.row(f)
		if err != nil {
			results[i].Err = err
			continue
		}
		orderKey := r.ledgerEntry().OrderKey
		c := r.decide(*f, held.remainders[orderKey])
		for _, p := range c.postings {
			held.remainders[orderKey] -= p.Change()
		}
		postings = append(postings, c.postings...)
		results[i].Out = recorded{operation: c.apply(r.Operation, held.at), change: c, moved: r.State != c.state}
		changes.add(r, *f, c, e.nextCheck(c.next, r.attempts, *f))
		events = append(events, f.events(r, c, held.at)...)
	}
	b := &pgx.Batch{}
	changes.queue(b, held.at, e.config.ProviderTimeout)
	ledger.Post(b, held.at, postings)
	if err := e.queueEvents(b, events); err != nil {
		return nil, err
	}
	failpoint("record.uncommitted")
	if err := tx.CommitWith(ctx, b); err != nil {
		return nil, fmt.Errorf("record outcomes: %w", err)
	}
	return results, nil
}

// events is the history that a fact writes: the attempt, and the transition if there is one.
func (f *fact) events(r reservation, c change, at time.Time) []Event {
	if f.silent || f.hinted && r.State == c.state {
		return nil // an event that tells nothing new leaves no trace
	}
	o := r.Operation
	attempt := Event{
		TenantID: o.TenantID, OperationID: o.OperationID, Kind: string(f.source), Attempt: f.lease.attempt(),
		Layer: optional(f.lease.layer), Actor: optional(f.lease.attemptedFor), ProviderRequestID: optional(f.result.RequestID),
		Detail: f.detail, CreatedAt: at,
	}
	if f.kind != "" {
		attempt.ErrorKind = ptrTo(string(f.kind))
		attempt.Detail = merged(f.detail, detailShown, f.shown, detailReason, string(f.reason))
	} else {
		attempt.Detail = merged(f.detail, "outcome", string(f.result.Outcome), "decline_code", f.result.DeclineCode)
	}
	if c.stale {
		attempt.Detail = merged(attempt.Detail, "stale", "true")
	}
	attempt.Detail = merged(attempt.Detail, callersAttempt, ordinal(f.lease.number), detailRef, f.lease.ref)
	if r.State == c.state {
		return []Event{attempt}
	}
	from, to := r.State, c.state
	return []Event{attempt, {
		TenantID: o.TenantID, OperationID: o.OperationID, Kind: "transition", FromState: &from, ToState: &to,
		Attempt: f.lease.attempt(), Actor: optional(f.lease.attemptedFor), Detail: merged(nil, "failure_code",
			deref(c.failureCode)),
		CreatedAt: at,
	}}
}

// Details of an attempt.
const (
	callersAttempt = "refund_attempt" // its number in its caller's layer
	detailRef      = "diagnostic_ref" // of the call that made it
	detailShows    = "provider_shows" // of a person's decision: what the look before it brought
	detailReason   = "reason"         // why the provider gave no outcome, where a person can put that right
	detailShown    = "refunds_shown"  // ids, amounts and outcomes, where that is contradictory
)

// ordinal is a caller's number as a detail; what it did not say stays out.
func ordinal(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// attempt is the number of a lease's taking; nil where none was taken.
func (l Lease) attempt() *int {
	if l.attempts == 0 {
		return nil
	}
	return &l.attempts
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// merged adds pairs of names and values to a detail; empty values say nothing.
func merged(detail map[string]string, pairs ...string) map[string]string {
	m := make(map[string]string, len(detail)+len(pairs)/2)
	for k, v := range detail {
		m[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m[pairs[i]] = pairs[i+1]
		}
	}
	return m
}

// locked is what tx 2 holds, and decides on.
type locked struct {
	remainders map[OrderKey]int64           // of the orders
	ours       map[operationKey]struct{}    // operations that are locked
	rows       map[operationKey]reservation // as they stand
	at         time.Time                    // by the database's clock, after the locks
}

// row is the row that a fact is about, if we hold it and its order.
func (l *locked) row(f *fact) (reservation, error) {
	key := f.lease.key()
	r, found := l.rows[key]
	_, ours := l.ours[key]
	_, order := l.remainders[f.lease.Operation.ledgerEntry().OrderKey]
	switch {
	case !found:
		return r, fmt.Errorf("record %s: its operation is gone", key.OperationID)
	case !ours || !order:
		return r, errHeld
	}
	return r, nil
}

// lockForRecord locks orders, then operations, both sorted, and reads in a new statement, against the clock read after
// the locks, what is to be decided on. Unless it waits, it leaves out what somebody else holds.
func (e *Engine) lockForRecord(ctx context.Context, tx pgx.Tx, facts []*fact, wait bool) (*locked, error) {
	keys := make([]operationKey, len(facts))
	orders := make(map[OrderKey]struct{}, len(facts))
	taken := make([]time.Time, len(facts))
	for i, f := range facts {
		keys[i], taken[i] = f.lease.key(), f.lease.takenAt
		orders[f.lease.Operation.ledgerEntry().OrderKey] = struct{}{}
	}
	orderKeys := make([]OrderKey, 0, len(orders))
	for k := range orders {
		orderKeys = append(orderKeys, k)
	}
	tenants, ids := columns(keys)
	l := &locked{
		remainders: make(map[OrderKey]int64, len(orders)), ours: make(map[operationKey]struct{}, len(facts)),
		rows: make(map[operationKey]reservation, len(facts)),
	}
	b := &pgx.Batch{}
	ledger.Lock(b, orderKeys, wait, func(locked []Order) {
		for _, o := range locked {
			l.remainders[o.OrderKey] = o.Remainder()
		}
	})
	skip := " SKIP LOCKED"
	if wait {
		skip = ""
	}
	b.Queue(`SELECT o.tenant_id, o.operation_id FROM unnest($1::text[], $2::text[]) AS k (tenant_id, operation_id)
		JOIN refund_operations o ON o.tenant_id = k.tenant_id AND o.operation_id = k.operation_id
		ORDER BY o.tenant_id, o.operation_id FOR NO KEY UPDATE OF o`+skip, tenants,
		ids).Query(func(rows pgx.Rows) error {
		var k operationKey
		_, err := pgx.ForEachRow(rows, []any{&k.TenantID, &k.OperationID}, func() error {
			l.ours[k] = struct{}{}
			return nil
		})
		return err
	})
	b.Queue(`
		WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at)
		SELECT `+operationColumns+`, clock.at, o.attempts, o.doubted_decline,
			o.lease_until > clock.at,
			clock.at + $4 * interval '1 millisecond' < o.provider_key_expires_at,
			coalesce(o.last_send_ended + $5 * interval '1 millisecond' < k.taken_at, true),
			o.created_at < clock.at - CASE o.state WHEN 'pending' THEN $7::float8 ELSE $6::float8 END * interval '1 millisecond',
			coalesce(o.settled_at < clock.at - $8 * interval '1 millisecond', false),
			(SELECT coalesce(max(t.seq), 0) FROM ledger_transfers t
			 WHERE t.tenant_id = o.tenant_id AND t.operation_id = o.operation_id)
		FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS k (tenant_id, operation_id, taken_at)
		JOIN refund_operations o ON o.tenant_id = k.tenant_id AND o.operation_id = k.operation_id
		CROSS JOIN clock`,
		tenants, ids, taken, (e.config.ProviderTimeout + keyMargin).Milliseconds(), e.config.ListingLag.Milliseconds(),
		e.config.ReservedAge.Milliseconds(), e.config.PendingAge.Milliseconds(), e.config.RecheckFor.Milliseconds(),
	).Query(func(found pgx.Rows) error {
		read, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (reservation, error) {
			var r reservation
			err := row.Scan(append(r.targets(), &l.at, &r.attempts, &r.doubted, &r.leased, &r.keyAlive, &r.lagOver,
				&r.tooOld,
				&r.recheckOver, &r.lastSeq)...)
			return r, err
		})
		for _, r := range read {
			l.rows[operationKey{r.TenantID, r.OperationID}] = r
		}
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock for record: %w", err)
	}
	return l, nil
}

// changeRows are the columns of the rows to update.
type changeRows struct {
	tenants, ids, states                 []string
	failures, providerRefunds, doubts    []*string
	freed, sent, sends, settled, cleared []bool
	books                                []int32
	notSent                              []int32
	next                                 []int64 // milliseconds; negative = never
}

func newChangeRows(n int) *changeRows {
	return &changeRows{tenants: make([]string, 0, n), ids: make([]string, 0, n), states: make([]string, 0, n)}
}

// add notes what becomes of a row. The lease is given back if it is still ours; only then does the attempt count as one
// that sent nothing, and as an absolute number, so that a transaction that is run again counts it once.
func (u *changeRows) add(r reservation, f fact, c change, next time.Duration) {
	ours := f.lease.attempts == r.attempts
	if !ours && r.State == c.state {
		return
	}
	u.tenants, u.ids, u.states = append(u.tenants, r.TenantID), append(u.ids, r.OperationID),
		append(u.states, string(c.state))
	u.failures, u.doubts = append(u.failures, c.failureCode), append(u.doubts, c.doubted)
	u.providerRefunds = append(u.providerRefunds, c.providerRefundID)
	u.freed = append(u.freed, ours && !c.resend)
	u.sent = append(u.sent, ours && f.source == sourceRefund)
	u.sends = append(u.sends, ours && c.resend)
	moved := r.State != c.state
	ended := c.state == StateSucceeded || c.state == StateFailed
	u.settled, u.cleared = append(u.settled, moved && ended), append(u.cleared, moved && !ended)
	notSent := int32(-1)
	if ours && c.notSent {
		notSent = int32(f.lease.notSent + 1)
	}
	u.notSent = append(u.notSent, notSent)
	u.books = append(u.books, int32(c.books))
	u.next = append(u.next, next.Milliseconds())
}

// queue queues the update of the rows.
func (u *changeRows) queue(b *pgx.Batch, at time.Time, callDeadline time.Duration) {
	if len(u.tenants) == 0 {
		return
	}
	b.Queue(`
		WITH changed AS (
		UPDATE refund_operations o SET
			state = u.state, failure_code = u.failure_code, doubted_decline = u.doubted_decline,
			provider_refund_id = u.provider_refund_id,
			settled_at = CASE WHEN u.settled THEN $14::timestamptz WHEN u.cleared THEN NULL ELSE o.settled_at END,
			lease_until = CASE WHEN u.freed THEN $14::timestamptz ELSE o.lease_until END,
			last_send_ended = CASE WHEN u.sends THEN $14::timestamptz + $15 * interval '1 millisecond'
				WHEN u.sent THEN $14::timestamptz ELSE o.last_send_ended END,
			not_sent = CASE WHEN u.not_sent >= 0 THEN u.not_sent ELSE o.not_sent END,
			contradicted_at = CASE WHEN u.cleared OR u.books = $17 THEN NULL
				WHEN u.books = $18 THEN coalesce(o.contradicted_at, $14::timestamptz) ELSE o.contradicted_at END,
			next_check_at = CASE WHEN u.next < 0 THEN 'infinity'
				ELSE $14::timestamptz + u.next * interval '1 millisecond' END
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bool[], $8::bool[],
			$9::bool[],
			$10::bool[], $11::bool[], $12::int[], $13::bigint[], $16::int[])
			AS u (tenant_id, operation_id, state, failure_code, doubted_decline, provider_refund_id, freed, sent, sends,
				settled, cleared, not_sent, next, books)
		WHERE o.tenant_id = u.tenant_id AND o.operation_id = u.operation_id
		RETURNING 1)
		SELECT expect_rows('operations changed', (SELECT count(*) FROM changed), $19)`,
		u.tenants, u.ids, u.states, u.failures, u.doubts, u.providerRefunds, u.freed, u.sent, u.sends,
		u.settled, u.cleared, u.notSent, u.next, at, callDeadline.Milliseconds(), u.books, booksAgree, booksContradict,
		len(u.tenants))
}
