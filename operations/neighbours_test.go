package operations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"refundd/operations"
)

// asFastAsEver is how long a refund takes at most that waits for nobody, on a busy machine.
const asFastAsEver = 2 * time.Second

// another makes an order of another tenant and returns a request for a refund of it.
func (b *bundle) another(operationID string) operations.Request {
	b.t.Helper()
	b.exec(`INSERT INTO tenants (tenant_id, require_authorization) VALUES ('calm', false) ON CONFLICT DO NOTHING`)
	b.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents) VALUES ('calm', $1, 'USD', 100)`,
		operationID)
	return operations.Request{TenantID: "calm", OperationID: operationID, OrderID: operationID, AmountCents: 10}
}

// calm refunds for another tenant, ten times, and expects that none has to wait.
func (b *bundle) calm(name string) {
	b.t.Helper()
	for i := range 10 {
		r := b.another(fmt.Sprintf("%s-%d", name, i))
		began := time.Now()
		expect(b.t, b.submit(r), operations.StatusProcessed)
		if d := time.Since(began); d > asFastAsEver {
			b.t.Errorf("%s: another tenant's refund took %v", name, d)
		}
	}
}

func TestA80_LockedOrders_CostNobodyElse(t *testing.T) {
	b := newBundle(t)
	holder := b.rival()
	var stuck []<-chan error
	background := func(act func(ctx context.Context) error) {
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		go func() { done <- act(ctx) }()
		stuck = append(stuck, done)
	}
	for i := range 10 {
		id := fmt.Sprint("P", i)
		b.order(id, 10000)
		var approved []operations.Request
		for n := range 4 {
			approved = append(approved, b.approve(fmt.Sprintf("%s-%d", id, n), id, 1))
		}
		holder.exec(`SELECT FROM orders WHERE order_id = $1 FOR UPDATE`, id)
		for _, r := range approved {
			background(func(ctx context.Context) error { _, err := b.Submit(ctx, r); return err })
		}
	}
	for i := range 40 {
		background(func(ctx context.Context) error {
			_, _, err := b.Authorize(ctx, approval(fmt.Sprint("A", i), "P0", 1))
			return err
		})
		background(func(ctx context.Context) error {
			_, _, err := b.RegisterOrder(ctx, operations.Registration{
				OrderKey: operations.OrderKey{TenantID: tenant, OrderID: "P1"}, CapturedCents: ptr(int64(20000)),
			})
			return err
		})
	}
	b.untilBlocked(3)
	for range 5 {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := b.db.Pool.Ping(t.Context()); err != nil || time.Since(began) > asFastAsEver {
			t.Errorf("a connection took %v: %v", time.Since(began), err)
		}
		b.calm(fmt.Sprint("locked", time.Now().UnixNano()))
	}
	holder.commit()
	for _, done := range stuck {
		switch err := <-done; {
		case err == nil, errors.Is(err, operations.ErrDatabaseUnavailable), errors.Is(err, operations.ErrOverloaded):
		default:
			t.Errorf("who waited is answered %v", err)
		}
	}
}

func TestA79_ARowThatCanNotBeRead_CostsItsOwnCallerAnAnswer(t *testing.T) {
	b := newBundle(t)
	b.free()
	b.order("P", 1000000)
	bad := operations.Request{TenantID: tenant, OperationID: "bad", OrderID: "P", AmountCents: 1}
	expect(t, b.submit(bad), operations.StatusProcessed)
	// What no constraint of ours lets in, as a schema that was changed by hand would.
	b.exec(`ALTER DOMAIN metadata DROP CONSTRAINT metadata_check`)
	b.exec(`UPDATE refund_operations SET metadata = '{"score": {"a": 5}}' WHERE operation_id = 'bad'`)
	done := make(chan struct{})
	var asked <-chan outcome
	go func() {
		defer close(done)
		for range 100 {
			if o := b.submit(bad); o.err == nil {
				t.Errorf("the row was read: %+v", o.receipt)
			}
		}
	}()
	var all []<-chan outcome
	for i := range 320 {
		all = append(all, b.start(t.Context(), b.another(fmt.Sprint("C", i))))
	}
	for _, asked = range all {
		expect(t, wait(t, asked), operations.StatusProcessed)
	}
	<-done
}

func TestA87_WhatATriggerDoesToOneRow_CostsItsOwnCallerAlone(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]string{
		"Swallows":      `RETURN NULL`,
		"Connection":    `RAISE EXCEPTION 'no' USING ERRCODE = '08006'`,
		"Serialization": `RAISE EXCEPTION 'no' USING ERRCODE = '40001'`,
		"ReadOnly":      `RAISE EXCEPTION 'no' USING ERRCODE = '25006'`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			b.order("P", 10000)
			b.exec(`CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF NEW.reason = 'bad' THEN ` + act + `; END IF; RETURN NEW; END $$;
				CREATE TRIGGER acts BEFORE INSERT ON refund_operations FOR EACH ROW EXECUTE FUNCTION act()`)
			g := b.gate()
			var all []<-chan outcome
			for i := range 60 {
				r := b.approve(fmt.Sprint("K", i), "P", 10)
				if i == 30 {
					r.Reason = ptr("bad")
				}
				all = append(all, b.start(t.Context(), r))
			}
			b.until("all wait", func() bool { return b.Waiting() == 60 })
			g.open()
			for i, done := range all {
				got := wait(t, done)
				if i == 30 {
					if got.err == nil {
						t.Error("the bad one succeeded")
					}
					continue
				}
				expect(t, got, operations.StatusProcessed)
			}
			if got := b.moved("P"); got != 590 {
				t.Errorf("moved %d, want 590", got)
			}
			if n := b.count(`SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`); n > 150 {
				t.Errorf("%d transactions were rolled back", n)
			}
		})
	}
}

func TestA59_OutcomesOfLockedOrders_CostOthersNothing(t *testing.T) {
	p := newPaying(t, func(c *operations.Config) { c.Lease = 20 * time.Second })
	pay := func(order string, i int) operations.Request {
		p.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
			VALUES ($1, $2, 'USD', 10000, 'simulator', $3) ON CONFLICT DO NOTHING`, tenant, order, "payment-"+order)
		return p.approve(fmt.Sprintf("%s-%d", order, i), order, 10)
	}
	p.fault("hang", 2, 400)
	first, second := p.start(t.Context(), pay("L0", 0)), p.start(t.Context(), pay("L1", 0))
	p.until("both are reserved", func() bool { return p.count(`SELECT count(*) FROM refund_operations`) == 2 })
	holder := p.rival()
	holder.lock("L0")
	holder.lock("L1")
	p.untilBlocked(1)
	for i := range 10 {
		began := time.Now()
		expect(t, p.submit(pay(fmt.Sprint("F", i), 0)), operations.StatusProcessed)
		if d := time.Since(began); d > asFastAsEver {
			t.Errorf("a refund of another order took %v", d)
		}
	}
	holder.commit()
	expect(t, wait(t, first), operations.StatusProcessed)
	expect(t, wait(t, second), operations.StatusProcessed)
}

// A storm of retries of one key shares its transactions with others: it costs them the few that tell it, however large
// it is.
func TestAStormOfOneKey_CostsItsNeighboursFewTransactions(t *testing.T) {
	for name, prepare := range map[string]func(*bundle) (storm operations.Request, told func(outcome) bool){
		"Executed": func(b *bundle) (operations.Request, func(outcome) bool) {
			return b.approve("K", "P", 10), func(o outcome) bool { return o.err == nil }
		},
		"Refused": func(*bundle) (operations.Request, func(outcome) bool) {
			return operations.Request{TenantID: tenant, OperationID: "K", OrderID: "P", AmountCents: 10},
				func(o outcome) bool { return errors.Is(o.err, operations.ErrAuthorizationNotFound) }
		},
		"TooMuch": func(b *bundle) (operations.Request, func(outcome) bool) {
			return b.approve("K", "P", 101),
				func(o outcome) bool { return errors.Is(o.err, operations.ErrAmountExceedsRefundable) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			b := newBundle(t, func(c *operations.Config) { c.Registerer = registry })
			b.order("P", 100)
			storm, told := prepare(b)
			const width = 150
			g := b.gate()
			var answers []<-chan outcome
			for range width {
				answers = append(answers, b.start(t.Context(), storm))
			}
			b.until("all wait", func() bool { return b.Waiting() == width })
			before := transactions(t, registry)
			g.open()
			processed := 0
			for _, answer := range answers {
				o := wait(t, answer)
				if !told(o) {
					t.Errorf("told %v", o)
				}
				if o.receipt.Status == operations.StatusProcessed {
					processed++
				}
			}
			if want := map[string]int{"Executed": 1}[name]; processed != want {
				t.Errorf("%d calls processed it, want %d", processed, want)
			}
			if n := transactions(t, registry) - before; n > 3 {
				t.Errorf("%d calls of one key took %d transactions", width, n)
			}
		})
	}
}

// transactions is how many times an engine has begun tx 1.
func transactions(t *testing.T, registry *prometheus.Registry) uint64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "refundd_batch_size" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("no refundd_batch_size")
	return 0
}
