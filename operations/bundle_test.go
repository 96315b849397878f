package operations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/operations"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const tenant = "acme"

// bundle is one parallel test's database, a running engine on it as the service's role, and what the tests say to both.
type bundle struct {
	*operations.Engine
	t  *testing.T
	db *testdb.DB
}

func newBundle(t *testing.T, change ...func(*operations.Config)) *bundle {
	t.Helper()
	t.Parallel()
	db := testdb.New(t, testdb.MaxConns(20))
	b := &bundle{t: t, db: db}
	b.Engine = b.engine(db.Pool, change...)
	b.exec(`INSERT INTO tenants (tenant_id) VALUES ($1)`, tenant)
	return b
}

// onBothRoads runs a test with refunds that are claimed alone where they come alone, and with refunds that never are.
func onBothRoads(t *testing.T, test func(t *testing.T, newBundle func(*testing.T) *bundle)) {
	t.Parallel()
	t.Run("Alone", func(t *testing.T) { test(t, func(t *testing.T) *bundle { return newBundle(t) }) })
	t.Run("InCompany", func(t *testing.T) {
		test(t, func(t *testing.T) *bundle {
			b := newBundle(t)
			b.Accompany()
			return b
		})
	})
}

// engine runs another replica on pool until the test ends.
func (b *bundle) engine(pool *pgxpool.Pool, change ...func(*operations.Config)) *operations.Engine {
	b.t.Helper()
	config := operations.Config{Pool: pool}
	for _, c := range change {
		c(&config)
	}
	e, err := operations.New(config)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.t.Errorf("engine: %v", err)
		}
	})
	return e
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Owner.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) count(sql string, args ...any) int64 {
	b.t.Helper()
	var n int64
	if err := b.db.Owner.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// order makes an order with captured minor units of USD.
func (b *bundle) order(id string, captured int64) {
	b.t.Helper()
	b.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents) VALUES ($1, $2, 'USD', $3)`, tenant, id,
		captured)
}

// approve makes an authorization and returns the request that it allows.
func (b *bundle) approve(operationID, orderID string, amount int64) operations.Request {
	b.t.Helper()
	b.exec(`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency,
		approved_by)
		VALUES ($1, $2, 'case-1', $3, $4, 'USD', 'ann')`, tenant, operationID, orderID, amount)
	return operations.Request{TenantID: tenant, OperationID: operationID, OrderID: orderID, AmountCents: amount}
}

// free lets the tenant refund without authorizations.
func (b *bundle) free() { b.exec(`UPDATE tenants SET require_authorization = false`) }

// moved is the sum of an order's debits, checked against its balance.
func (b *bundle) moved(orderID string) int64 {
	b.t.Helper()
	posted := b.count(`SELECT coalesce(sum(l.amount_cents), 0)::bigint FROM ledger_transfers l
		JOIN refund_operations o USING (tenant_id, operation_id) WHERE o.tenant_id = $1
			AND o.order_id = $2`, tenant, orderID)
	balance := b.count(`SELECT refunded_cents FROM orders WHERE tenant_id = $1 AND order_id = $2`, tenant, orderID)
	claimed := b.count(`SELECT coalesce(sum(amount_cents), 0)::bigint FROM refund_operations
		WHERE tenant_id = $1 AND order_id = $2 AND state = 'succeeded'`, tenant, orderID)
	if posted != balance || posted != claimed {
		b.t.Errorf("order %s: transfers %d, balance %d, operations %d", orderID, posted, balance, claimed)
	}
	if over := b.count(`SELECT over_refunded_cents FROM orders WHERE tenant_id = $1
		AND order_id = $2`, tenant, orderID); over != 0 {
		b.t.Errorf("order %s: a request took %d beyond its capture", orderID, over)
	}
	return posted
}

// outcome is what a Submit in the background came to.
type outcome struct {
	request operations.Request
	receipt operations.Receipt
	err     error
}

func (o outcome) String() string {
	if o.err != nil {
		return o.err.Error()
	}
	return string(o.receipt.Status)
}

func (b *bundle) submit(r operations.Request) outcome {
	b.t.Helper()
	receipt, err := b.Submit(b.t.Context(), r)
	return outcome{r, receipt, err}
}

func (b *bundle) start(ctx context.Context, r operations.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		receipt, err := b.Submit(ctx, r)
		done <- outcome{r, receipt, err}
	}()
	return done
}

func wait(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(30 * time.Second):
		t.Fatal("no answer within 30 s")
		return outcome{}
	}
}

func expect(t *testing.T, got outcome, want operations.Status) {
	t.Helper()
	if got.err != nil || got.receipt.Status != want {
		t.Errorf("refund %s: got %s, want %s", got.request.OperationID, got, want)
	}
}

func expectErr(t *testing.T, got outcome, want error) {
	t.Helper()
	if !errors.Is(got.err, want) {
		t.Errorf("refund %s: got %s, want %v", got.request.OperationID, got, want)
	}
}

// rival is another client of the database in the middle of a transaction.
type rival struct {
	pgx.Tx
	b *bundle
}

func (b *bundle) rival() *rival {
	b.t.Helper()
	tx, err := b.db.Owner.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return &rival{tx, b}
}

func (r *rival) exec(sql string, args ...any) {
	r.b.t.Helper()
	if _, err := r.Exec(r.b.t.Context(), sql, args...); err != nil {
		r.b.t.Fatalf("%s: %v", sql, err)
	}
}

// lock keeps an order from everybody else until the rival's transaction ends.
func (r *rival) lock(orderID string) {
	r.b.t.Helper()
	r.exec(`SELECT FROM orders WHERE tenant_id = $1 AND order_id = $2 FOR NO KEY UPDATE`, tenant, orderID)
}

// claim does what another replica's winning transaction does: the key and the debit.
func (r *rival) claim(q operations.Request) {
	r.b.t.Helper()
	r.exec(`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
		currency,
		state, settled_at) VALUES ($1, $2, $3, gen_random_uuid(), $4, $5, 'USD', 'succeeded', now())`,
		q.TenantID, q.OperationID, operations.Fingerprint(q.OrderID, q.AmountCents), q.OrderID, q.AmountCents)
	r.exec(`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
		amount_cents, currency)
		VALUES ($1, $2, 1, 'refund', 'merchant', 'customer', $3, 'USD')`, q.TenantID, q.OperationID, q.AmountCents)
}

func (r *rival) debit(q operations.Request) {
	r.b.t.Helper()
	r.exec(`UPDATE orders SET refunded_cents = refunded_cents + $3 WHERE tenant_id = $1 AND order_id = $2`,
		q.TenantID, q.OrderID, q.AmountCents)
}

func (r *rival) commit() {
	r.b.t.Helper()
	if err := r.Commit(r.b.t.Context()); err != nil {
		r.b.t.Fatal(err)
	}
}

// untilBlocked waits until n sessions of this database wait for a lock.
func (b *bundle) untilBlocked(n int64) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d sessions wait for a lock", n), func() bool {
		return b.count(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n
	})
}

func (b *bundle) until(what string, met func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// gate keeps tx 1 from beginning until it is opened, so that what is submitted meanwhile shares one batch.
type gate struct {
	b       *bundle
	release func()
	held    <-chan outcome
}

func (b *bundle) gate() *gate {
	b.t.Helper()
	begun, release := b.Hold()
	b.order("gate", 1)
	g := &gate{b: b, release: release, held: b.start(b.t.Context(), b.approve("gate", "gate", 1))}
	<-begun
	return g
}

func (g *gate) open() {
	g.b.t.Helper()
	g.release()
	expect(g.b.t, wait(g.b.t, g.held), operations.StatusProcessed)
}
