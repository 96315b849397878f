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

// BenchmarkWebhooks prints how fast events that wait are delivered, and what refunds of another tenant are slowed down by it,
// side by side: a round without, a round with. It runs once, whatever b.N.
func BenchmarkWebhooks(b *testing.B) {
	b.Setenv("REFUNDD_WEBHOOK_ALLOW_PRIVATE", "true")
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer receiver.Close()
	c := compare(b, durable(b), bench.Scale{})
	c.duration, c.warmup = *duration, *warmup
	c.exec(b, `INSERT INTO tenants (tenant_id) VALUES ('hooks')`)
	c.exec(b, `INSERT INTO orders (tenant_id, order_id, currency, captured_cents) VALUES ('hooks', 'P', 'EUR', 1000000)`)
	c.exec(b, `INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency, state, settled_at)
		SELECT 'hooks', 'op-' || i, encode(sha256('{"amount_cents": 1, "order_id": "P"}'), 'hex'), gen_random_uuid(), 'P', 1, 'EUR', 'succeeded', now() FROM generate_series(1, $1::int) AS i`,
		queuedEvents)
	c.exec(b, `INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents, currency)
		SELECT 'hooks', 'op-' || i, 1, 'refund', 'merchant', 'customer', 1, 'EUR' FROM generate_series(1, $1::int) AS i`, queuedEvents)
	c.exec(b, `UPDATE orders SET refunded_cents = $1 WHERE tenant_id = 'hooks'`, queuedEvents)
	c.exec(b, `INSERT INTO webhook_streams (tenant_id) VALUES ('hooks')`)
	c.exec(b, `INSERT INTO webhook_endpoints (tenant_id, endpoint_id, url, secret, position)
		VALUES ('hooks', gen_random_uuid(), $1, decode(repeat('ab', 32), 'hex'), 0)`, receiver.URL)
	c.round(b, c.refundd, "new", 64, 0)
	c.results = nil

	var without, with, ratios, alone, beside []float64
	var service, postgres []float64 // microseconds of CPU for each delivery
	for range *rounds {
		drained := c.drain(b)
		used := c.round(b, c.refundd, "new", 1, 1).Cost // next to nothing else is asked of it
		alone = append(alone, drained())
		deliveries := alone[len(alone)-1] * c.duration.Seconds()
		service = append(service, float64(used.Service.Microseconds())/deliveries)
		postgres = append(postgres, float64(used.Postgres.Microseconds())/deliveries)
		without = append(without, c.round(b, c.refundd, "new", 64, 0).PerSecond())
		drained = c.drain(b)
		with = append(with, c.round(b, c.refundd, "new", 64, 0).PerSecond())
		beside = append(beside, drained())
		ratios = append(ratios, with[len(with)-1]/without[len(without)-1]) // neighbours in time: the machine's mood is the same
	}
	c.check(b)
	fmt.Fprintf(os.Stdout, "%d events drain, alone\t%.0f/s\nbeside refunds of 64 connections\t%.0f/s\n", queuedEvents, median(alone), median(beside))
	fmt.Fprintf(os.Stdout, "CPU per delivery\t%.0f µs of the service, %.0f µs of Postgres\n", median(service), median(postgres))
	fmt.Fprintf(os.Stdout, "refunds without\t%.0f/s\nwith\t%.0f/s\nratio\t%.2f\tat least 0.90\n",
		median(without), median(with), median(ratios))
}

func (c *comparison) exec(b *testing.B, sql string, args ...any) {
	b.Helper()
	if _, err := c.db.Owner.Exec(b.Context(), sql, args...); err != nil {
		b.Fatal(err)
	}
}

// drain queues events; what it returns waits until they were delivered, and tells how many of them were in a second.
func (c *comparison) drain(b *testing.B) (rate func() float64) {
	b.Helper()
	c.exec(b, `INSERT INTO webhook_events (tenant_id, type, operation_id, settled_at, created_at)
		SELECT 'hooks', 'refund.succeeded', 'op-' || i, now(), now() FROM generate_series(1, $1::int) AS i`, queuedEvents)
	began, done := time.Now(), make(chan float64, 1)
	go func() {
		for left := 1; left > 0; time.Sleep(20 * time.Millisecond) {
			err := c.db.Owner.QueryRow(b.Context(), `SELECT (SELECT count(*) FROM webhook_events WHERE position IS NULL)
				+ s.last_position - e.position FROM webhook_streams s JOIN webhook_endpoints e USING (tenant_id)`).Scan(&left)
			if err != nil {
				b.Error(err)
				break
			}
		}
		done <- queuedEvents / time.Since(began).Seconds()
	}()
	return func() float64 { return <-done }
}
