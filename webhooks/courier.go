package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/internal/clocks"
	"refundd/internal/pgtx"
)

// CourierConfig is what a Courier needs.
type CourierConfig struct {
	Outbox     *Outbox
	Body       func(Event) ([]byte, error) // what a message says
	Rate       int                         // messages per second, which leaves the machine to refunds; 0 sets no limit
	Registerer prometheus.Registerer       // optional: where its metrics go
	Resolver   *net.Resolver               // optional: finds the addresses of names
}

// Courier brings events to endpoints.
type Courier struct {
	box      *Outbox
	log      *slog.Logger
	body     func(Event) ([]byte, error)
	client   *http.Client
	turns    chan struct{}
	pace     pace
	attempts *prometheus.CounterVec
}

// NewCourier returns a courier, or the fault of its configuration; it works while Run does.
func NewCourier(c CourierConfig) (*Courier, error) {
	if c.Outbox == nil || c.Body == nil {
		return nil, errors.New("configure webhooks: a courier needs an outbox and what its messages say")
	}
	o := c.Outbox
	k := &Courier{
		box: o, log: o.log, body: c.Body, client: newClient(c.Resolver, o.allowPrivate, atOnce),
		turns: make(chan struct{}, turns), pace: newPace(c.Rate),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refundd_webhook_attempts_total", Help: "Messages sent to webhook endpoints, by result.",
		}, []string{"result"}),
	}
	for _, r := range Results() {
		k.attempts.WithLabelValues(string(r))
	}
	if c.Registerer != nil {
		if err := c.Registerer.Register(k.attempts); err != nil {
			return nil, fmt.Errorf("configure webhooks: %w", err)
		}
	}
	return k, nil
}

const (
	roundSize = 64  // messages to one endpoint that works, of which the outcome is recorded together
	atOnce    = 16  // of these on their way at the same time
	workers   = 256 // endpoints that work, served at once
	// endpoints that fail, tried at once, each with one message, apart from the others
	doubters = 64
	// connections to the database that all of them share: the others are for requests
	turns     = 2
	pollEvery = 200 * time.Millisecond // while there is nothing to do
	longRest  = 500 * time.Millisecond // with an endpoint's lease in hand, for what all endpoints were sent
	restAfter = time.Second            // a fault of the database
	lockRest  = 250 * time.Millisecond // until an endpoint that somebody has locked is tried again
	turnTime  = 2 * time.Second        // after which an endpoint gives way to others that wait
	leaseTime = 20 * time.Second       // what is begun within sendLimit, an attempt and its recording take less
	sendLimit = 5 * time.Second        // of the lease, after which no message is begun
	farewell  = time.Second            // for what is on its way when Run is told to end
)

// Run delivers until ctx ends. What is on its way then has a moment to arrive; else it is sent again by another
// courier.
func (c *Courier) Run(ctx context.Context) error {
	cut, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(farewell, cutOff) })()
	var lanes sync.WaitGroup
	lanes.Go(func() { c.serve(ctx, cut, false, workers) })
	lanes.Go(func() { c.serve(ctx, cut, true, doubters) })
	lanes.Wait()
	return ctx.Err()
}

// serve takes endpoints whose turn it is, those that fail or those that work, as long as ctx lasts and as there are
// workers free.
func (c *Courier) serve(ctx, cut context.Context, failing bool, most int) {
	free := make(chan struct{}, most)
	var busy sync.WaitGroup
	defer busy.Wait()
	for ctx.Err() == nil {
		more, err := c.numberNew(ctx, failing)
		var taken []lease
		if err == nil && c.pace.owed() == 0 {
			taken, err = c.take(ctx, failing, min(most-len(free), c.pace.atOnce()))
		}
		rest := pollEvery
		switch {
		case err != nil && ctx.Err() == nil:
			c.log.Warn("webhooks wait for the database", slog.String("cause", cause(err)))
			rest = restAfter
		case len(taken) > 0 || more:
			rest = 0
		}
		for _, l := range taken {
			free <- struct{}{}
			busy.Go(func() {
				defer func() { <-free }()
				c.visit(ctx, cut, l)
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

// lease is the right to send to an endpoint; the number tells whether it still is ours.
type lease struct {
	TenantID   string
	EndpointID string
	Number     int64
	Failing    bool // it did not take what it was sent last
}

// inTurn runs body when it is its turn, in a transaction of pgtx.InTx or pgtx.Loosely.
func inTurn[T any](ctx context.Context, c *Courier, transaction transaction[T],
	body func(tx *pgtx.Tx) (T, error)) (T, error) {
	c.turns <- struct{}{}
	defer func() { <-c.turns }()
	return transaction(ctx, c.box.pool, body)
}

type transaction[T any] func(context.Context, *pgxpool.Pool, func(tx *pgtx.Tx) (T, error)) (T, error)

// numberNew gives positions to some of the new events, and reports whether there may be more. One of the lanes does
// that.
func (c *Courier) numberNew(ctx context.Context, failing bool) (more bool, err error) {
	if failing {
		return false, nil
	}
	return c.box.number(ctx, nil)
}

// take leases endpoints that have something to be sent, who waited longest first. It is durable: no two couriers ever
// have a lease of the same number, whatever is lost with a server.
func (c *Courier) take(ctx context.Context, failing bool, most int) ([]lease, error) {
	if most <= 0 {
		return nil, nil
	}
	return inTurn(ctx, c, pgtx.InTx, func(tx *pgtx.Tx) ([]lease, error) {
		rows, err := tx.Query(ctx, `
			WITH turn AS MATERIALIZED (
				SELECT e.tenant_id, e.endpoint_id FROM webhook_endpoints e
				CROSS JOIN LATERAL (SELECT s.last_position FROM webhook_streams s
					WHERE s.tenant_id = e.tenant_id OFFSET 0) AS s
				WHERE e.disabled_at IS NULL AND e.deleted_at IS NULL AND (e.failures > 0) = $1
					AND e.lease_until <= clock_timestamp()
					AND e.paused_until <= clock_timestamp()
						AND (e.due_at <= clock_timestamp() OR e.position < s.last_position)
				ORDER BY e.lease_until LIMIT $2 FOR NO KEY UPDATE OF e SKIP LOCKED)
			UPDATE webhook_endpoints e SET lease = e.lease + 1, lease_until = clock_timestamp() + $3::interval
			FROM turn t WHERE e.tenant_id = t.tenant_id AND e.endpoint_id = t.endpoint_id
			RETURNING e.tenant_id, e.endpoint_id::text, e.lease AS number, e.failures > 0 AS failing`, failing, most,
			leaseTime)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowToStructByName[lease])
	})
}

// visit sends to one endpoint, round by round, until nothing is left, it does not take what it is sent, or it is
// others' turn.
func (c *Courier) visit(ctx, cut context.Context, l lease) {
	began := time.Now()
	var done round
	for {
		goOn := c.pace.rest(ctx, longRest) && ctx.Err() == nil && time.Since(began) < turnTime
		moment := clocks.Now()
		next, err := c.nextRound(context.WithoutCancel(ctx), l, done, goOn)
		switch {
		case pgtx.StaysLocked(err) && time.Since(began) < leaseTime:
			time.Sleep(lockRest) // somebody changes the endpoint
			continue
		case err != nil:
			c.log.Warn("webhook deliveries not recorded: they are made again", slog.String("tenant_id", l.TenantID),
				slog.String("endpoint_id", l.EndpointID), slog.String("cause", cause(err)))
			return // the lease runs out
		case len(next.messages) == 0 && !next.again:
			return
		}
		c.pace.sends(len(next.messages))
		c.sendAll(ctx, cut, next, moment.Add(sendLimit))
		done = next
	}
}

// cause says what went wrong in words of ours: an error of the database's may quote what it connects with.
func cause(err error) string {
	for _, known := range []error{errLeaseLost, pgtx.ErrUnavailable, pgtx.ErrDeadline} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if code := pgtx.SQLState(err); code != "" {
		return "SQLSTATE " + code
	}
	return "unexpected"
}

// sendAll sends a round's messages, some of them side by side: they are of different operations. They are begun in
// their order, and no more of them once one was not taken, the round took too long, or ctx has ended: what is left
// comes with the next round.
func (c *Courier) sendAll(ctx, cut context.Context, r round, notAfter clocks.Moment) {
	var begun atomic.Int64
	var over atomic.Bool
	var sending sync.WaitGroup
	for range min(atOnce, len(r.messages)) {
		sending.Go(func() {
			for i := begun.Add(1) - 1; i < int64(len(r.messages)); i = begun.Add(1) - 1 {
				if over.Load() || notAfter.Passed() || ctx.Err() != nil {
					return
				}
				m := &r.messages[i]
				if m.attempt = c.send(cut, m.message); m.attempt.result != ResultDelivered {
					over.Store(true)
				}
			}
		})
	}
	sending.Wait()
}
