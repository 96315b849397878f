package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

// round is what an endpoint is sent at once: no two events of one operation.
type round struct {
	messages []outgoing
	parked   []place // fresh events behind an earlier one of their operation that waits
	until    int64   // the position that the fresh events of this round reach
	again    bool    // nothing is to be sent, and there is more to look at
}

// place is an event in the log.
type place struct {
	position    int64
	operationID string
}

// outgoing is a message and what became of it.
type outgoing struct {
	message
	place
	queued   int // attempts before this one, of a delivery that has a row
	isQueued bool
	attempt  attempt
}

// target is an endpoint under its lock.
type target struct {
	url      string
	types    []string
	keys     [][]byte
	position int64
	failures int
	active   bool // neither disabled nor deleted
	now      time.Time
	overdue  bool // it took nothing for giveUpAfter
	room     int  // messages that it is sent at once
}

const giveUpAfter time.Duration = 72 * time.Hour

// errLeaseLost reports an endpoint that somebody else serves by now.
var errLeaseLost = errors.New("the endpoint's lease was lost")

// nextRound records what became of a round, and returns the next one, empty where the lease was given back.
//
// Its commit waits for no disk: what is lost with a server is the end of what was recorded, so that a few messages are
// sent again, under their ids, in the order in which they were. Positions of events and leases are durable, by
// transactions of their own.
func (c *Courier) nextRound(ctx context.Context, l lease, done round, goOn bool) (round, error) {
	var disabled Reason
	next, err := inTurn(ctx, c, pgtx.Loosely, func(tx *pgtx.Tx) (round, error) {
		t, err := lockTarget(ctx, tx, l)
		if err != nil {
			return round{}, err
		}
		v := done.verdict(t)
		disabled = v.disable
		if err := record(ctx, tx, l, done, t, v); err != nil {
			return round{}, fmt.Errorf("record deliveries: %w", err)
		}
		var next round
		if goOn && t.active && v.disable == "" && v.pause == 0 && (v.failures > 0) == l.Failing {
			t.room, t.position = v.room(), v.position
			if next, err = c.plan(ctx, tx, l, t); err != nil {
				return round{}, fmt.Errorf("plan deliveries: %w", err)
			}
		}
		keep := len(next.messages) > 0 || next.again
		return next, move(ctx, tx, l, v, keep)
	})
	if err == nil && disabled != "" {
		c.log.Warn("webhook endpoint disabled", slog.String("tenant_id", l.TenantID),
			slog.String("endpoint_id", l.EndpointID), slog.String("because", string(disabled)))
	}
	return next, err
}

// lockTarget locks the endpoint, if the lease still is ours.
func lockTarget(ctx context.Context, tx pgx.Tx, l lease) (target, error) {
	var t target
	var secret, oldSecret []byte
	err := tx.QueryRow(ctx, `SELECT e.url, e.event_types, e.secret,
			CASE WHEN e.old_secret_until > clock_timestamp() THEN e.old_secret END,
			e.position, e.failures, e.disabled_at IS NULL AND e.deleted_at IS NULL, clock_timestamp(),
			coalesce(e.failing_since <= clock_timestamp() - $4::interval, false)
		FROM webhook_endpoints e
		WHERE e.tenant_id = $1 AND e.endpoint_id = $2::text::uuid AND e.lease = $3 FOR NO KEY UPDATE NOWAIT`,
		l.TenantID, l.EndpointID, l.Number, giveUpAfter).
		Scan(&t.url, &t.types, &secret, &oldSecret, &t.position, &t.failures, &t.active, &t.now, &t.overdue)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, errLeaseLost
	}
	if err != nil {
		return t, fmt.Errorf("lock webhook endpoint: %w", err)
	}
	t.keys = [][]byte{secret}
	if oldSecret != nil {
		t.keys = append(t.keys, oldSecret)
	}
	return t, nil
}

// verdict is what a round says of its endpoint.
type verdict struct {
	position int64 // up to which everything was taken, or has a row
	failures int
	pause    time.Duration
	disable  Reason
}

// room is how many messages an endpoint is sent at once: one, as long as it fails.
func (v verdict) room() int {
	if v.failures > 0 {
		return 1
	}
	return roundSize
}

// patience is how long one event is tried, nil where it is the endpoint that is given up: then it waits.
func (v verdict) patience() *time.Duration {
	if v.disable != "" {
		return nil
	}
	return new(giveUpAfter)
}

func (r round) verdict(t target) verdict {
	v := verdict{position: max(t.position, r.until), failures: t.failures}
	var taken, refused, interrupted bool
	for _, m := range r.messages {
		switch m.attempt.result {
		case "":
			interrupted = true
			if !m.isQueued { // it is sent again from the log, with what came behind it
				v.position = min(v.position, m.position-1)
			}
		case ResultDelivered:
			taken = true
		case ResultGone:
			v.disable = Gone
		default:
			refused = true
		}
	}
	switch {
	case taken:
		v.failures = 0
	case refused || v.disable != "":
		v.failures++
		v.pause = backoff(v.failures, time.Second, time.Minute)
		if t.overdue && v.disable == "" {
			v.disable = Unreachable
		}
	case interrupted:
		v.pause = time.Millisecond // nobody goes on here
	}
	return v
}

// backoff doubles with every failure up to a limit, less up to a quarter by chance.
func backoff(failures int, first, most time.Duration) time.Duration {
	d := most
	if n := failures - 1; n < 30 {
		d = min(first<<max(n, 0), most)
	}
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// The time between two attempts of one delivery.
const (
	firstRetry = 5 * time.Second
	lastRetry  = 6 * time.Hour
)

// outage is how many failures in a row speak of the endpoint rather than of what it was sent: once it is back, all
// that waits is due.
const outage = 3

// record writes what was not taken at once, and what became of what was not before.
func record(ctx context.Context, tx pgx.Tx, l lease, r round, t target, v verdict) error {
	var fresh, known deliveryRows
	for _, m := range r.messages {
		switch {
		case m.attempt.result == "":
		case m.isQueued:
			known.add(m)
		case m.attempt.result != ResultDelivered:
			fresh.add(m)
		}
	}
	for _, p := range r.parked {
		fresh.add(outgoing{place: p})
	}
	b := &pgx.Batch{}
	if len(fresh.positions) > 0 {
		b.Queue(`INSERT INTO webhook_deliveries (tenant_id, endpoint_id, position, operation_id, attempts,
			first_attempt_at,
				last_attempt_at, last_result, last_status, next_attempt_at)
			SELECT $1, $2::text::uuid, r.position, r.operation, CASE WHEN r.result IS NULL THEN 0 ELSE 1 END,
				CASE WHEN r.result IS NOT NULL THEN $9::timestamptz END, CASE WHEN r.result IS NOT NULL
					THEN $9::timestamptz END,
				r.result, r.status, $9::timestamptz + r.wait
			FROM unnest($3::bigint[], $4::text[], $5::text[], $6::int[], $7::interval[], $8::bool[])
				AS r (position, operation, result, status, wait, delivered)
			ON CONFLICT (tenant_id, endpoint_id, position) DO NOTHING`, fresh.args(l, t)...)
	}
	if len(known.positions) > 0 {
		b.Queue(`UPDATE webhook_deliveries d SET attempts = d.attempts + 1, last_result = r.result,
			last_status = r.status,
				last_attempt_at = $9::timestamptz, first_attempt_at = coalesce(d.first_attempt_at, $9::timestamptz),
				next_attempt_at = $9::timestamptz + r.wait,
				state = CASE WHEN r.delivered THEN 'delivered' WHEN r.late THEN 'given_up' ELSE 'queued' END,
				ended_at = CASE WHEN r.delivered OR r.late THEN $9::timestamptz END
			FROM (SELECT r.*, coalesce(q.first_attempt_at <= $9::timestamptz - $10::interval, false) AS late
				FROM unnest($3::bigint[], $4::text[], $5::text[], $6::int[], $7::interval[], $8::bool[])
					AS r (position, operation, result, status, wait, delivered)
				CROSS JOIN LATERAL (SELECT q.first_attempt_at FROM webhook_deliveries q
					WHERE q.tenant_id = $1 AND q.endpoint_id = $2::text::uuid
						AND q.position = r.position OFFSET 0) AS q) AS r
			WHERE d.tenant_id = $1 AND d.endpoint_id = $2::text::uuid AND d.position = r.position
				AND d.state = 'queued'`,
			append(known.args(l, t), v.patience())...)
	}
	if t.failures >= outage && v.failures == 0 {
		b.Queue(`UPDATE webhook_deliveries SET next_attempt_at = $3 WHERE tenant_id = $1
			AND endpoint_id = $2::text::uuid
			AND state = 'queued' AND next_attempt_at > $3`, l.TenantID, l.EndpointID, t.now)
	}
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}

// deliveryRows are the columns of deliveries.
type deliveryRows struct {
	positions  []int64
	operations []string
	results    []*string
	statuses   []*int32
	waits      []time.Duration
	delivered  []bool
}

func (d *deliveryRows) add(m outgoing) {
	d.positions, d.operations = append(d.positions, m.position), append(d.operations, m.operationID)
	var result *string
	var status *int32
	var wait time.Duration
	if r := string(m.attempt.result); r != "" {
		result, wait = &r, backoff(m.queued+1, firstRetry, lastRetry)
	}
	if m.attempt.status != 0 {
		status = new(int32(m.attempt.status))
	}
	d.results, d.statuses, d.waits = append(d.results, result), append(d.statuses, status), append(d.waits, wait)
	d.delivered = append(d.delivered, m.attempt.result == ResultDelivered)
}

func (d *deliveryRows) args(l lease, t target) []any {
	return []any{l.TenantID, l.EndpointID, d.positions, d.operations, d.results, d.statuses, d.waits,
		d.delivered, t.now}
}

// move notes how far the endpoint is, and keeps the lease for one more round or gives it back.
func move(ctx context.Context, tx pgx.Tx, l lease, v verdict, keep bool) error {
	_, err := tx.Exec(ctx, `UPDATE webhook_endpoints e SET position = $4, failures = $5,
			failing_since = CASE WHEN $5 > 0 THEN coalesce(e.failing_since, clock_timestamp()) END,
			paused_until = CASE WHEN $6::interval > '0' THEN clock_timestamp() + $6::interval ELSE e.paused_until END,
			disabled_at = CASE WHEN $7::text IS NOT NULL THEN coalesce(e.disabled_at, clock_timestamp())
				ELSE e.disabled_at END,
			disabled_because = coalesce(e.disabled_because, $7::text),
			lease_until = clock_timestamp() + CASE WHEN $8 THEN $9::interval ELSE '0' END,
			due_at = coalesce((`+soonest+`), 'infinity')
		WHERE e.tenant_id = $1 AND e.endpoint_id = $2::text::uuid AND e.lease = $3`,
		l.TenantID, l.EndpointID, l.Number, v.position, v.failures, v.pause, optional(v.disable), keep, leaseTime)
	if err != nil {
		return fmt.Errorf("move webhook endpoint: %w", err)
	}
	return nil
}

// soonest is when a delivery is due that waits for no earlier one.
const soonest = `SELECT d.next_attempt_at FROM webhook_deliveries d
	WHERE d.tenant_id = $1 AND d.endpoint_id = $2::text::uuid AND d.state = 'queued' AND ` + first + `
	ORDER BY d.next_attempt_at LIMIT 1`

// first tells a queued delivery d whose operation has no earlier one.
const first = `NOT EXISTS (SELECT FROM webhook_deliveries p
	WHERE p.tenant_id = d.tenant_id AND p.endpoint_id = d.endpoint_id AND p.operation_id = d.operation_id
		AND p.state = 'queued' AND p.position < d.position OFFSET 0)`

func optional(r Reason) *string {
	if r == "" {
		return nil
	}
	return new(string(r))
}
