package operations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/operations"
	"refundd/reconcile"
)

// mostRows is how many rows a node of a look-up's plan may look at: more than a page, a search's most matches, or all
// that is held; far less than an order, a customer, a case or a state has.
const mostRows = 600

// walked are the indexes that may be read from end to end: they hold what has no end yet, or what is wrong, and nothing
// else.
var walked = map[string]bool{"refund_operations_held_idx": true, "orders_over_refunded_idx": true,
	"refund_operations_contradicted_idx": true}

// tiny are the tables that do not grow with the refunds.
var tiny = map[string]bool{"tenants": true, "api_keys": true, "restores": true}

// fill makes tables that are large as the planner sees it: three tenants, of which acme has most; an order of 3,000
// refunds, a customer of 3,000 orders, a case of 5,000 approvals; some 5,000 failed refunds, and few that have no end.
var fill = []string{
	`INSERT INTO tenants (tenant_id) VALUES ('small-1'), ('small-2')`,

	`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents, provider, provider_payment_ref,
		customer_id, customer_email, created_at)
	SELECT CASE n / 2 % 10 WHEN 9 THEN 'small-1' WHEN 8 THEN 'small-2' ELSE 'acme' END, 'order-' || n, 'USD', 1000000,
		10000,
		CASE WHEN n % 2 = 0 THEN 'simulator' END, CASE WHEN n % 2 = 0 THEN 'payment-' || n END,
		customer, customer || '@example.com', now() - (n * 7919 % 20000) * interval '1 minute'
	FROM generate_series(1, 20000) AS n,
		LATERAL (SELECT CASE WHEN n <= 4000 THEN 'busy' ELSE 'customer-' || n % 5000 END AS customer) AS c`,

	`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
		state,
		provider, provider_key, provider_refund_id, provider_key_expires_at, attempts, last_send_ended, next_check_at,
		failure_code, created_at, settled_at)
	SELECT p.tenant_id, 'op-' || n, lpad(to_hex(n), 64, '0'), CASE WHEN s.state <> 'revoked' THEN gen_random_uuid() END,
		p.order_id, 1 + n % 9, 'USD', s.state,
		p.provider, p.tenant_id || ':op-' || n, CASE WHEN s.state IN ('succeeded', 'pending') THEN 're-' || n END,
		t.at + interval '1 day', 1, t.at, CASE WHEN s.ended THEN 'infinity' ELSE '-infinity' END::timestamptz,
		CASE s.state WHEN 'failed' THEN 'card_declined' END, t.at, CASE WHEN s.ended THEN t.at END
	FROM generate_series(1, 57000) AS n JOIN orders p ON p.order_id = 'order-' || 1 + n % 20000
		AND p.provider IS NOT NULL,
		LATERAL (SELECT now() - (n * 7919 % 60000) * interval '1 minute' AS at) AS t,
		LATERAL (SELECT state, state IN ('succeeded', 'failed') AS ended FROM (SELECT CASE
			WHEN n % 600 = 1 THEN 'reserved' WHEN n % 600 = 3 THEN 'pending' WHEN n % 600 = 5 THEN 'needs_attention'
			WHEN n % 10 IN (7, 9) THEN 'failed' ELSE 'succeeded' END AS state) AS s) AS s`,

	`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
		state,
		created_at, settled_at)
	SELECT p.tenant_id, 'op-' || n, lpad(to_hex(n), 64, '0'), CASE WHEN n % 10 <> 0 THEN gen_random_uuid() END,
		p.order_id, 1 + n % 9, 'USD', CASE WHEN n % 10 <> 0 THEN 'succeeded' ELSE 'revoked' END, t.at, t.at
	FROM generate_series(1, 60000) AS n
		JOIN orders p ON p.order_id = 'order-' || CASE WHEN n > 57000 THEN 1 ELSE 1 + n % 20000 END
			AND p.provider IS NULL,
		LATERAL (SELECT now() - (n * 7919 % 60000) * interval '1 minute' AS at) AS t`,

	`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency, approved_by)
	SELECT tenant_id, operation_id, CASE WHEN order_id = 'order-1' THEN 'busy' ELSE 'case-' || order_id END, order_id,
		amount_cents, currency, 'ann' FROM refund_operations
	UNION ALL SELECT 'acme', 'open-' || n, 'busy', 'order-1', 1, 'USD', 'ann' FROM generate_series(1, 2000) AS n`,

	`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
		currency)
	SELECT o.tenant_id, o.operation_id, k.seq, k.kind, k.debit, k.credit, o.amount_cents, o.currency
	FROM refund_operations o JOIN (VALUES
		(1, 'refund', 'merchant', 'customer', NULL), (1, 'hold', 'merchant', 'in_transit', NULL),
		(2, 'settle', 'in_transit', 'customer', 'succeeded'), (2, 'release', 'in_transit', 'merchant', 'failed')
	) AS k (seq, kind, debit, credit, state) ON (k.kind = 'refund') = (o.provider IS NULL)
		AND coalesce(k.state, o.state) = o.state
	WHERE o.state <> 'revoked'`,

	`INSERT INTO operation_events (tenant_id, operation_id, kind, to_state, attempt, detail, created_at)
	SELECT tenant_id, operation_id, 'transition', CASE n WHEN 1 THEN 'reserved' ELSE state END, 1,
		CASE n WHEN 1 THEN jsonb_build_object('diagnostic_ref', 'ref-' || operation_id)
			ELSE '{}' END, created_at + n * interval '1 s'
	FROM refund_operations, generate_series(1, CASE operation_id WHEN 'op-11' THEN 60 ELSE 2 END) AS n
		WHERE provider IS NOT NULL`,

	`INSERT INTO reconciliation_runs (run_id, started_at, finished_at)
	SELECT gen_random_uuid(), at, at FROM generate_series(now() - interval '10000 minutes', now(), '1 minute') AS at`,

	`VACUUM ANALYZE`,
}

// plans is a bundle of large tables, a pool of which every statement is recorded, and an engine on it.
type plans struct {
	*paying
	pool     *pgxpool.Pool
	recorder *recorder
	indexes  indexes
}

func newPlans(t *testing.T) *plans {
	t.Helper()
	p := &plans{}
	p.paying = newPaying(t, func(c *operations.Config) {
		p.pool, p.recorder = recording(t, c.Pool)
		c.Pool = p.pool
	})
	for _, sql := range fill {
		p.exec(sql)
	}
	p.indexes = readIndexes(t, p.db.Owner)
	return p
}

// hold checks the plans of all statements that a look-up sends: each finds what it reads by an index, and a list's
// comes in the index's order.
func (p *plans) hold(t *testing.T, l lookup) {
	t.Helper()
	p.recorder.take()
	if err := l.call(t.Context()); !errors.Is(err, l.want) {
		t.Fatalf("%v, want %v", err, l.want)
	}
	found := map[string]bool{}
	for _, s := range p.recorder.take() {
		if strings.Contains(s.sql, "FROM claim_refund") {
			for _, plan := range s.nested(t, p.db.URL) {
				plan.relations(found)
				for _, why := range p.indexes.faults(plan, false) {
					t.Errorf("%s (within) %s", l.method, why)
				}
			}
			continue
		}
		for _, mode := range s.modes(t, p.db.Pool) {
			plan := s.explain(t, p.db.Pool, mode)
			plan.relations(found)
			faults := p.indexes.faults(plan, false)
			if l.list {
				faults = append(faults, plan.sorts()...)
			}
			for _, why := range faults {
				t.Errorf("%s (%s) %s\nstatement: %s", l.method, mode, why, s)
			}
		}
	}
	for _, table := range l.reads {
		if !found[table] {
			t.Errorf("%s: no plan shows %s, only %v: its statements are not seen", l.method, table, found)
		}
	}
}

// lookup is one call whose plans are checked.
type lookup struct {
	method string
	call   func(context.Context) error
	reads  []string // tables that its plans must show
	want   error
	list   bool // its pages come in the order of an index
}

const (
	orders         = "orders"
	refunds        = "refund_operations"
	authorizations = "refund_authorizations"
	transfers      = "ledger_transfers"
	events         = "operation_events"
)

func TestPlans_LookUpsOfLargeTablesUseAnIndex(t *testing.T) {
	p := newPlans(t)
	for _, l := range slices.Concat(p.lists(), p.reads(), p.writes(), p.reconciliation()) {
		t.Run(l.method, func(t *testing.T) { p.hold(t, l) })
	}
}

// lists are the pages of refunds, the first ones and later ones.
// A77: a plan that was made and kept while the tables were empty is the one that is right when they are full.
func TestA77_PlansKeptFromAnEmptyDatabase_AreRight(t *testing.T) {
	var pool *pgxpool.Pool
	p := newPaying(t, func(c *operations.Config) {
		config := c.Pool.Config()
		config.MaxConns = 1
		var err error
		if pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		c.Pool = pool
	})
	readAKey := func() {
		t.Helper()
		if _, err := p.Refund(t.Context(), "acme", "nobody"); !errors.Is(err, operations.ErrRefundNotFound) {
			t.Fatal(err)
		}
	}
	p.exec(`ALTER TABLE refund_operations SET (autovacuum_enabled = false)`)
	readAKey() // which keeps its plan
	if plan := keptPlan(t, pool); !strings.Contains(plan, "refund_operations_pkey") {
		t.Errorf("in an empty database a key is read by:\n%s", plan)
	}
	for _, sql := range fill {
		if !strings.HasPrefix(sql, "VACUUM") {
			p.exec(sql)
		}
	}
	readAKey()
	if plan := keptPlan(t, pool); !strings.Contains(plan, "refund_operations_pkey") {
		t.Errorf("in a database that has grown a key is read by:\n%s", plan)
	}
}

// keptPlan is the plan that the pool's one connection keeps for reading keys.
func keptPlan(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var lines []string
	err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		var name string
		err := conn.QueryRow(t.Context(), `SELECT name FROM pg_prepared_statements
			WHERE statement LIKE '%FROM unnest($1::text[], $2::text[]) AS k%JOIN refund_operations o%'
				AND statement NOT LIKE '%FOR NO KEY%'`).Scan(&name)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(t.Context(), `SET plan_cache_mode = force_generic_plan`); err != nil {
			return err
		}
		rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE "`+name+`" ('{}', '{}')`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func (p *plans) lists() []lookup {
	// Of a window of a few pages, sorting them all may be cheaper; these hold most of what there is.
	before, after := ptr(time.Now().Add(-24*time.Hour)), ptr(time.Now().Add(-40*24*time.Hour))
	var all []lookup
	list := func(name string, f operations.RefundFilter, page operations.Page) {
		page.Limit = 100
		all = append(all, lookup{"Refunds/" + name, func(ctx context.Context) error {
			found, next, err := p.Refunds(ctx, tenant, f, page)
			if err != nil || len(found) == 0 || next == "" {
				return err
			}
			page.Cursor = next
			_, _, err = p.Refunds(ctx, tenant, f, page)
			return err
		}, []string{refunds}, nil, true})
	}
	for name, f := range map[string]operations.RefundFilter{
		"all": {}, "OfBusyOrder": {OrderID: ptr("order-1")}, "OfOrder": {OrderID: ptr("order-5")},
		"OfBusyOrderSucceeded": {OrderID: ptr("order-1"), State: ptr(operations.StateSucceeded)},
		"OfOrderFailed":        {OrderID: ptr("order-8"), State: ptr(operations.StateFailed)},
		"Reserved":             {State: ptr(operations.StateReserved)},
		"Pending":              {State: ptr(operations.StatePending)},
		"Succeeded":            {State: ptr(operations.StateSucceeded)},
		"Failed":               {State: ptr(operations.StateFailed)},
		"NeedsAttention":       {State: ptr(operations.StateNeedsAttention)},
	} {
		list(name, f, operations.Page{})
		list(name+"Before", f, operations.Page{CreatedBefore: before})
		list(name+"After", f, operations.Page{CreatedAfter: after})
		list(name+"Between", f, operations.Page{CreatedAfter: after, CreatedBefore: before})
	}
	slices.SortFunc(all, func(a, b lookup) int { return strings.Compare(a.method, b.method) })
	return all
}

func (p *plans) reads() []lookup {
	orderSearch := func(q operations.CustomerQuery) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := p.FindOrders(ctx, tenant, q)
			return err
		}
	}
	return []lookup{
		{method: "Refund", reads: []string{refunds}, call: func(ctx context.Context) error {
			_, err := p.Refund(ctx, tenant, "op-11")
			return err
		}},
		{method: "Timeline", reads: []string{refunds, transfers, events}, call: func(ctx context.Context) error {
			_, next, err := p.Timeline(ctx, tenant, "op-11", operations.Page{Limit: 20})
			if err != nil {
				return err
			}
			times := operations.Page{Limit: 20, Cursor: next, CreatedAfter: &time.Time{},
				CreatedBefore: ptr(time.Now())}
			_, _, err = p.Timeline(ctx, tenant, "op-11", times)
			return err
		}},
		{method: "Authorization", reads: []string{refunds, authorizations}, call: func(ctx context.Context) error {
			_, err := p.Authorization(ctx, tenant, "op-11")
			return err
		}},
		{method: "Authorization/OfNobody", reads: []string{refunds, authorizations},
			want: operations.ErrAuthorizationNotFound,
			call: func(ctx context.Context) error {
				_, err := p.Authorization(ctx, tenant, "nobody's")
				return err
			}},
		{method: "AuthorizationsOfCase", reads: []string{refunds, authorizations},
			call: func(ctx context.Context) error {
				_, err := p.AuthorizationsOfCase(ctx, tenant, "case-order-12")
				return err
			}},
		{method: "AuthorizationsOfCase/OfTooMany", reads: []string{refunds, authorizations},
			want: operations.ErrTooManyMatches,
			call: func(ctx context.Context) error {
				_, err := p.AuthorizationsOfCase(ctx, tenant, "busy")
				return err
			}},
		{method: "Refunds/ByProviderRefundID", reads: []string{refunds}, call: func(ctx context.Context) error {
			found, _, err := p.Refunds(ctx, tenant,
				operations.RefundFilter{ProviderRefundID: ptr("re-11"), Providers: []string{"ledger", "simulator"}},
				operations.Page{Limit: 100})
			if err == nil && len(found) != 1 {
				err = fmt.Errorf("%d refunds, want 1", len(found))
			}
			return err
		}},
		{method: "Refunds/ByRef", reads: []string{refunds, events}, call: func(ctx context.Context) error {
			found, _, err := p.Refunds(ctx, tenant, operations.RefundFilter{Ref: ptr("ref-op-11")},
				operations.Page{Limit: 100})
			if err == nil && len(found) != 1 {
				err = fmt.Errorf("%d refunds, want 1", len(found))
			}
			return err
		}},
		{method: "OpenTotals", reads: []string{refunds}, call: func(ctx context.Context) error {
			_, err := p.OpenTotals(ctx, tenant)
			return err
		}},
		{method: "Totals", reads: []string{refunds}, call: func(ctx context.Context) error {
			now := time.Now()
			_, err := p.Totals(ctx, tenant,
				operations.Window{After: now.Add(-12 * time.Hour), Before: now, Unit: operations.Hourly})
			return err
		}},
		{method: "Order", reads: []string{orders, refunds}, call: func(ctx context.Context) error {
			_, err := p.Order(ctx, tenant, "order-1")
			return err
		}},
		{method: "FindOrders/ByID", reads: []string{orders, refunds},
			call: orderSearch(operations.CustomerQuery{ID: ptr("customer-1")})},
		{method: "FindOrders/ByEmail", reads: []string{orders, refunds},
			call: orderSearch(operations.CustomerQuery{Email: ptr("Customer-1@example.com")})},
		{method: "FindOrders/ByBoth", reads: []string{orders, refunds},
			call: orderSearch(operations.CustomerQuery{ID: ptr("customer-1"), Email: ptr("customer-1@example.com")})},
		{method: "FindOrders/ByIDOfTooMany", reads: []string{orders, refunds}, want: operations.ErrTooManyMatches,
			call: orderSearch(operations.CustomerQuery{ID: ptr("busy")})},
		{method: "FindOrders/ByEmailOfTooMany", reads: []string{orders, refunds}, want: operations.ErrTooManyMatches,
			call: orderSearch(operations.CustomerQuery{Email: ptr("busy@example.com")})},
	}
}

func (p *plans) writes() []lookup {
	fresh := operations.Registration{
		OrderKey: operations.OrderKey{TenantID: tenant,
			OrderID: "fresh"}, Currency: ptr("USD"), CapturedCents: ptr(int64(100)),
	}
	approval := operations.Approval{
		TenantID: tenant, OperationID: "approved", CaseID: "case", OrderID: "order-5", AmountCents: 1, ApprovedBy: "ann",
	}
	register := func(ctx context.Context) error {
		_, _, err := p.RegisterOrder(ctx, fresh)
		return err
	}
	authorize := func(ctx context.Context) error {
		_, _, err := p.Authorize(ctx, approval)
		return err
	}
	revoke := func(ctx context.Context) error {
		_, err := p.Revoke(ctx, operations.Revocation{TenantID: tenant, OperationID: "open-7"})
		return err
	}
	submit := func(r operations.Request) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := p.Submit(ctx, r)
			return err
		}
	}
	withoutProvider, atProvider := p.approve("new-1", "order-5", 1), p.approve("new-2", "order-6", 1)
	return []lookup{
		{method: "RegisterOrder", call: register, reads: []string{orders, refunds}},
		{method: "RegisterOrder/Again", call: register, reads: []string{orders, refunds}},
		{method: "Authorize", call: authorize, reads: []string{orders, refunds, authorizations}},
		{method: "Authorize/Again", call: authorize, reads: []string{refunds, authorizations}},
		{method: "Revoke", call: revoke, reads: []string{refunds, authorizations, events}},
		{method: "Revoke/Again", call: revoke, reads: []string{refunds, authorizations}},
		{method: "Submit", call: submit(withoutProvider), reads: []string{orders, refunds, authorizations, transfers}},
		{method: "Submit/Again", call: submit(withoutProvider), reads: []string{refunds}},
		{method: "Submit/AtAProvider", call: submit(atProvider),
			reads: []string{orders, refunds, authorizations, transfers, events}},
		{method: "Submit/Many", call: p.submitMany,
			reads: []string{orders, refunds, authorizations, transfers, events}},
	}
}

// submitMany refunds 60 orders at once, in batches.
func (p *plans) submitMany(ctx context.Context) error {
	var started []<-chan outcome
	for i := range 60 {
		started = append(started,
			p.start(ctx, p.approve(fmt.Sprintf("many-%d", i), fmt.Sprintf("order-%d", 21+i%15), 1)))
	}
	var all error
	for _, s := range started {
		all = errors.Join(all, wait(p.t, s).err)
	}
	return all
}

// heed heeds an event of the provider's that means something.
func (p *plans) heed(h operations.Hint) func(context.Context) error {
	return func(ctx context.Context) error {
		heeded, err := p.Heed(ctx, "simulator", h)
		if err == nil && heeded == operations.HeededNotOurs {
			err = errors.New("nothing was meant")
		}
		return err
	}
}

func (p *plans) reconciliation() []lookup {
	decision := operations.Decision{
		TenantID: tenant, OperationID: "op-1205", Succeeded: true, Evidence: "seen", Override: true, Actor: "ann",
	}
	settle := func(ctx context.Context) error {
		_, err := p.Resolve(ctx, decision)
		return err
	}
	// A payment of 3,000 refunds, of which three have no end.
	p.exec(`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
		currency, state,
			provider, provider_key, provider_refund_id, provider_key_expires_at, attempts, last_send_ended,
				next_check_at, created_at, settled_at)
		SELECT 'acme', 'part-' || n, repeat('a', 64), gen_random_uuid(), 'order-2', 1, 'USD',
			CASE WHEN n % 1000 = 1 THEN 'pending' ELSE 'succeeded' END, 'simulator', 'acme:part-' || n, 'part-' || n,
				now(), 1, now(),
			'infinity', now() - interval '50 days', CASE WHEN n % 1000 <> 1 THEN now() END
		FROM generate_series(1, 3000) AS n`)
	p.exec(`ANALYZE refund_operations`)
	job, err := reconcile.New(reconcile.Config{Engine: p.Engine, Pool: p.pool})
	if err != nil {
		p.t.Fatal(err)
	}
	return []lookup{
		{method: "Reconcile", reads: []string{orders, refunds, transfers, events},
			call: func(ctx context.Context) error {
				_, err := p.Reconcile(ctx, tenant, "op-1201")
				return err
			}},
		{method: "Heed/ByRefund", reads: []string{orders, refunds}, call: p.heed(operations.Hint{
			Refunds: []operations.HintedRefund{{ProviderRefundID: "re-11"}, {ProviderRefundID: "re-13"},
				{ProviderRefundID: "re-nobody"}},
		})},
		{method: "Heed/ByMarks", reads: []string{orders, refunds}, call: p.heed(operations.Hint{
			Refunds: []operations.HintedRefund{{TenantID: tenant, OperationID: "op-1201"},
				{TenantID: "nobody", OperationID: "op-1"}},
		})},
		{method: "Heed/ByPayment", reads: []string{orders, refunds},
			call: p.heed(operations.Hint{PaymentRefs: []string{"payment-2"}})},
		{method: "Settle", call: settle, reads: []string{orders, refunds, transfers, events}},
		{method: "Settle/Again", call: settle, reads: []string{refunds, events}},
		{method: "Job.DryRun", reads: []string{orders, refunds, transfers}, call: func(ctx context.Context) error {
			due := p.count(`SELECT count(*) FROM refund_operations WHERE provider IS NOT NULL
				AND next_check_at < now()`)
			summary, err := job.DryRun(ctx)
			if err == nil && summary.Claimed != due {
				err = fmt.Errorf("%d operations, want %d in two pages", summary.Claimed, due)
			}
			return err
		}},
		{method: "Job.Run", reads: []string{orders, refunds, transfers, events}, call: func(ctx context.Context) error {
			_, err := job.Run(ctx)
			return err
		}},
		{method: "Collector", reads: []string{refunds, orders, "reconciliation_runs"},
			call: func(context.Context) error {
				registry := prometheus.NewPedanticRegistry()
				registry.MustRegister(reconcile.NewCollector(p.pool))
				_, err := registry.Gather()
				return err
			}},
	}
}
