package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"refundd/bench"
)

// queuedEvents is how many events wait for an endpoint when a round begins.
const queuedEvents = 10_000

// BenchmarkWebhooks prints how fast events that wait are delivered, what that costs, and what refunds of another tenant
// are slowed down by it: a round without, then one beside a queue that is as long when it begins, in turns. It runs
// once, whatever b.N.
func BenchmarkWebhooks(b *testing.B) {
	b.Setenv("REFUNDD_WEBHOOK_ALLOW_PRIVATE", "true")
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	c := compare(b, durable(b), bench.Scale{})
	c.duration, c.warmup = *duration, *warmup
	c.listen(b, receiver.URL)
	c.round(b, c.refundd, "new", 64, 0)
	c.results = nil

	c.queue(b)
	began, window := time.Now(), c.duration
	c.duration = 30 * time.Second                   // most of what it takes
	used := c.round(b, c.refundd, "new", 1, 1).Cost // next to nothing else is asked of it
	c.duration = window
	for c.queued(b) > 0 {
		time.Sleep(20 * time.Millisecond)
	}
	alone := queuedEvents / time.Since(began).Seconds()
	perDelivery := func(cpu time.Duration) float64 { return float64(cpu.Microseconds()) / (alone * 30) }

	var without, with, ratios, beside []float64
	for range *rounds {
		c.hold(b, true)
		without = append(without, c.round(b, c.refundd, "new", 64, 0).PerSecond())
		c.queue(b)
		c.hold(b, false)
		began := time.Now()
		with = append(with, c.round(b, c.refundd, "new", 64, 0).PerSecond())
		beside = append(beside, float64(queuedEvents-c.queued(b))/time.Since(began).Seconds())
		// neighbours in time: the machine's mood is the same
		ratios = append(ratios, with[len(with)-1]/without[len(without)-1])
	}
	c.hold(b, true)
	c.check(b)
	fmt.Fprintf(os.Stdout, "%d events drain, alone\t%.0f/s\nbeside refunds of 64 connections\t%.0f/s\n", queuedEvents,
		alone, median(beside))
	fmt.Fprintf(os.Stdout, "CPU per delivery\t%.0f µs of the service, %.0f µs of Postgres\n", perDelivery(used.Service),
		perDelivery(used.Postgres))
	fmt.Fprintf(os.Stdout, "refunds without\t%.0f/s\nwith\t%.0f/s\nratios\t%.2f\nmedian\t%.2f\tat least 0.90\n",
		median(without), median(with), ratios, median(ratios))
}

// listen makes a tenant with an endpoint, and refunds to tell it of.
func (c *comparison) listen(b *testing.B, url string) {
	b.Helper()
	c.exec(b, `INSERT INTO tenants (tenant_id) VALUES ('hooks')`)
	c.exec(b, `INSERT INTO orders (tenant_id, order_id, currency, captured_cents)
		VALUES ('hooks', 'P', 'EUR', 1000000)`)
	c.exec(b, `INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
		currency, state, settled_at)
		SELECT 'hooks', 'op-' || i, encode(sha256('{"amount_cents": 1, "order_id": "P"}'), 'hex'), gen_random_uuid(),
			'P', 1, 'EUR', 'succeeded', now() FROM generate_series(1, $1::int) AS i`,
		queuedEvents)
	c.exec(b, `INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
		amount_cents, currency)
		SELECT 'hooks', 'op-' || i, 1, 'refund', 'merchant', 'customer', 1, 'EUR'
			FROM generate_series(1, $1::int) AS i`, queuedEvents)
	c.exec(b, `UPDATE orders SET refunded_cents = $1 WHERE tenant_id = 'hooks'`, queuedEvents)
	c.exec(b, `INSERT INTO webhook_streams (tenant_id) VALUES ('hooks')`)
	c.exec(b, `INSERT INTO webhook_endpoints (tenant_id, endpoint_id, url, secret, position)
		VALUES ('hooks', gen_random_uuid(), $1, decode(repeat('ab', 32), 'hex'), 0)`, url)
}

func (c *comparison) exec(b *testing.B, sql string, args ...any) {
	b.Helper()
	if _, err := c.db.Owner.Exec(b.Context(), sql, args...); err != nil {
		b.Fatal(err)
	}
}

// queue fills the queue.
func (c *comparison) queue(b *testing.B) {
	b.Helper()
	c.exec(b, `INSERT INTO webhook_events (tenant_id, type, operation_id, settled_at, created_at)
		SELECT 'hooks', 'refund.succeeded', 'op-' || i, now(), now() FROM generate_series(1, $1::int) AS i`,
		queuedEvents-c.queued(b))
}

// queued is how many events were not delivered yet.
func (c *comparison) queued(b *testing.B) (left int) {
	b.Helper()
	err := c.db.Owner.QueryRow(b.Context(), `SELECT (SELECT count(*) FROM webhook_events WHERE position IS NULL
		AND tenant_id = 'hooks')
		+ s.last_position - e.position FROM webhook_streams s JOIN webhook_endpoints e USING (tenant_id)`).Scan(&left)
	if err != nil {
		b.Fatal(err)
	}
	return left
}

// hold keeps deliveries back, or lets them go on.
func (c *comparison) hold(b *testing.B, back bool) {
	b.Helper()
	c.exec(b, `UPDATE webhook_endpoints SET disabled_at = CASE WHEN $1 THEN now() END, disabled_because = CASE WHEN $1
		THEN 'requested' END`, back)
	time.Sleep(time.Second) // for what is on its way
}
