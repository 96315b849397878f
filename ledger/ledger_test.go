package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/ledger"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func ptr[T any](v T) *T { return &v }

// books makes a database with the tenants a and b.
func books(t *testing.T) *testdb.DB {
	t.Helper()
	t.Parallel()
	db := testdb.New(t)
	if _, err := db.Owner.Exec(t.Context(), `INSERT INTO tenants (tenant_id) VALUES ('a'), ('b')`); err != nil {
		t.Fatal(err)
	}
	return db
}

func inTx(ctx context.Context, pool *pgxpool.Pool, body func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, body)
}

func register(t *testing.T, db *testdb.DB, r ledger.Registration) (o ledger.Order, isNew bool, err error) {
	t.Helper()
	err = inTx(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
		o, isNew, err = ledger.Register(t.Context(), tx, r)
		return err
	})
	return o, isNew, err
}

func registration(tenant, order string) ledger.Registration {
	return ledger.Registration{
		OrderKey: ledger.OrderKey{TenantID: tenant,
			OrderID: order}, Currency: ptr("USD"), CapturedCents: ptr(int64(10000)),
	}
}

func TestRegister(t *testing.T) {
	t.Parallel()

	t.Run("New_IsStoredWithItsDefaults", func(t *testing.T) {
		db := books(t)
		got, isNew, err := register(t, db, registration("a", "P"))
		want := ledger.Order{
			OrderKey: ledger.OrderKey{TenantID: "a",
				OrderID: "P"}, Currency: "USD", CapturedCents: 10000, CreatedAt: got.CreatedAt,
		}
		if diff := cmp.Diff(want, got); diff != "" || !isNew || err != nil {
			t.Errorf("new %v, %v (-want +got):\n%s", isNew, err, diff)
		}
		if got.RefundableCents() != 10000 || time.Since(got.CreatedAt).Abs() > time.Hour {
			t.Errorf("refundable %d, created %v", got.RefundableCents(), got.CreatedAt)
		}
	})

	t.Run("Again_KeepsWhatIsAbsentAndChangesWhatMayChange", func(t *testing.T) {
		db := books(t)
		first := registration("a", "P")
		first.Provider, first.ProviderPaymentRef = ptr("simulator"), ptr("pay-1")
		first.Customer = &ledger.Customer{ID: ptr("c1"), Email: ptr("Ann@Example.com"), Name: ptr("Ann")}
		before, _, err := register(t, db, first)
		if err != nil {
			t.Fatal(err)
		}
		same, isNew, err := register(t, db, ledger.Registration{OrderKey: first.OrderKey})
		if diff := cmp.Diff(before, same); diff != "" || isNew || err != nil {
			t.Errorf("nothing said: %v, %v (-before +after):\n%s", isNew, err, diff)
		}
		same, _, err = register(t, db, first)
		if diff := cmp.Diff(before, same); diff != "" || err != nil {
			t.Errorf("the same said: %v (-before +after):\n%s", err, diff)
		}
		want := before
		want.CapturedCents, want.Customer = 12000, ledger.Customer{Name: ptr("Bob")}
		after, _, err := register(t, db, ledger.Registration{
			OrderKey: first.OrderKey, CapturedCents: ptr(int64(12000)), Customer: &ledger.Customer{Name: ptr("Bob")},
		})
		if diff := cmp.Diff(want, after); diff != "" || err != nil {
			t.Errorf("raised: %v (-want +got):\n%s", err, diff)
		}
	})

	t.Run("WhatIsFixed_CanNotChange", func(t *testing.T) {
		db := books(t)
		paid := registration("a", "paid")
		paid.Provider, paid.ProviderPaymentRef = ptr("simulator"), ptr("pay-1")
		connected, atStripe := registration("a", "connected"), registration("a", "own")
		connected.Provider, connected.ProviderPaymentRef, connected.ProviderAccount = ptr("stripe"), ptr("pi_1"),
			ptr("acct_1")
		atStripe.Provider, atStripe.ProviderPaymentRef = ptr("stripe"), ptr("pi_2")
		for _, r := range []ledger.Registration{paid, connected, atStripe, connected, registration("a", "P")} {
			if _, _, err := register(t, db, r); err != nil {
				t.Fatal(err)
			}
		}
		for name, r := range map[string]ledger.Registration{
			"currency":             {OrderKey: paid.OrderKey, Currency: ptr("EUR")},
			"lowered capture":      {OrderKey: paid.OrderKey, CapturedCents: ptr(int64(9999))},
			"provider":             {OrderKey: paid.OrderKey, Provider: ptr("stripe")},
			"no provider any more": {OrderKey: paid.OrderKey, Provider: ptr("ledger")},
			"payment":              {OrderKey: paid.OrderKey, ProviderPaymentRef: ptr("pay-2")},
			"an account now":       {OrderKey: connected.OrderKey, ProviderAccount: ptr("acct_2")},
			"account":              {OrderKey: atStripe.OrderKey, ProviderAccount: ptr("acct_2")},
			"a provider now": {OrderKey: ledger.OrderKey{TenantID: "a", OrderID: "P"}, Provider: ptr("simulator"),
				ProviderPaymentRef: ptr("pay-3")},
			"a payment now": {OrderKey: ledger.OrderKey{TenantID: "a", OrderID: "P"},
				ProviderPaymentRef: ptr("pay-3")},
		} {
			if _, _, err := register(t, db, r); !errors.Is(err, ledger.ErrOrderImmutable) {
				t.Errorf("%s: %v, want immutable", name, err)
			}
		}
	})

	t.Run("Incomplete_NamesWhatIsMissing", func(t *testing.T) {
		db := books(t)
		for _, c := range []struct {
			name                string
			change              func(*ledger.Registration)
			missing, unexpected []string
		}{
			{"Empty", func(r *ledger.Registration) { r.Currency, r.CapturedCents = nil, nil },
				[]string{"currency", "captured_cents"}, nil},
			{"ProviderWithoutPayment", func(r *ledger.Registration) { r.Provider = ptr("stripe") },
				[]string{"provider_payment_ref"}, nil},
			{"PaymentWithoutProvider", func(r *ledger.Registration) { r.ProviderPaymentRef = ptr("x") }, nil,
				[]string{"provider_payment_ref"}},
			{"AccountOfTheSimulator", func(r *ledger.Registration) {
				r.Provider, r.ProviderPaymentRef, r.ProviderAccount = ptr("simulator"), ptr("x"), ptr("acct_1")
			}, nil, []string{"provider_account"}},
			{"PaymentOfTheLedger", func(r *ledger.Registration) {
				r.Provider,
					r.ProviderPaymentRef = ptr("ledger"), ptr("x")
			}, nil, []string{"provider_payment_ref"}},
		} {
			r := registration("a", "P")
			c.change(&r)
			_, _, err := register(t, db, r)
			var incomplete *ledger.IncompleteError
			if !errors.As(err, &incomplete) || !errors.Is(err, ledger.ErrOrderIncomplete) {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if diff := cmp.Diff([][]string{c.missing, c.unexpected},
				[][]string{incomplete.Missing, incomplete.Unexpected}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
		}
	})

	t.Run("OnePayment_BelongsToOneOrder", func(t *testing.T) {
		db := books(t)
		for round := range 30 {
			errs := make(chan error, 4)
			for i := range cap(errs) {
				r := registration([]string{"a", "b"}[i%2], fmt.Sprintf("P-%d-%d", round, i))
				r.Provider, r.ProviderPaymentRef = ptr("stripe"), ptr(fmt.Sprintf("pay-%d", round))
				go func() {
					errs <- inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
						_, _, err := ledger.Register(t.Context(), tx, r)
						return err
					})
				}()
			}
			won := 0
			for range cap(errs) {
				switch err := <-errs; {
				case err == nil:
					won++
				case !errors.Is(err, ledger.ErrPaymentAlreadyRegistered):
					t.Fatal(err)
				}
			}
			if won != 1 {
				t.Fatalf("round %d: %d orders have the payment", round, won)
			}
		}
		other := registration("a", "simulated")
		// another provider's payment of that name
		other.Provider, other.ProviderPaymentRef = ptr("simulator"), ptr("pay-0")
		if _, _, err := register(t, db, other); err != nil {
			t.Error(err)
		}
	})

	t.Run("SameOrderConcurrently_IsNewOnce", func(t *testing.T) {
		db := books(t)
		for round := range 30 {
			results := make(chan bool, 4)
			for range cap(results) {
				go func() {
					_, isNew, err := register(t, db, registration("a", fmt.Sprintf("P-%d", round)))
					if err != nil {
						t.Error(err)
					}
					results <- isNew
				}()
			}
			made := 0
			for range cap(results) {
				if <-results {
					made++
				}
			}
			if made != 1 {
				t.Fatalf("round %d: new %d times", round, made)
			}
		}
	})
}

func TestFind_KnowsNoOtherTenantsOrders(t *testing.T) {
	db := books(t)
	r := registration("a", "P")
	r.Customer = &ledger.Customer{ID: ptr("c1"), Email: ptr("Änn@Example.com")}
	if _, _, err := register(t, db, r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		tenant string
		query  ledger.CustomerQuery
		want   int
	}{
		{"ByID", "a", ledger.CustomerQuery{ID: ptr("c1")}, 1},
		{"ByIDOfAnotherCase", "a", ledger.CustomerQuery{ID: ptr("C1")}, 0},
		{"ByEmailOfAnotherCase", "a", ledger.CustomerQuery{Email: ptr("änn@eXample.COM")}, 1},
		{"ByBoth", "a", ledger.CustomerQuery{ID: ptr("c1"), Email: ptr("Änn@Example.com")}, 1},
		{"ByBothWhereOneDiffers", "a", ledger.CustomerQuery{ID: ptr("c2"), Email: ptr("Änn@Example.com")}, 0},
		{"OfAnotherTenant", "b", ledger.CustomerQuery{ID: ptr("c1")}, 0},
	} {
		err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
			found, err := ledger.FindByCustomer(t.Context(), tx, c.tenant, c.query, 10)
			if len(found) != c.want {
				t.Errorf("%s: %d orders, want %d", c.name, len(found), c.want)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := ledger.Find(t.Context(), tx, ledger.OrderKey{TenantID: "b", OrderID: "P"})
		return err
	})
	if !errors.Is(err, ledger.ErrOrderNotFound) {
		t.Errorf("another tenant finds the order: %v", err)
	}
}

func TestFind_TellsWhatIsHeld(t *testing.T) {
	db := books(t)
	r := registration("a", "P")
	r.Provider, r.ProviderPaymentRef = ptr("simulator"), ptr("pay-1")
	if _, _, err := register(t, db, r); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Owner.Exec(t.Context(), `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state,
			provider, provider_key, provider_key_expires_at, attempts, failure_code, settled_at)
		SELECT 'a', s.state || coalesce(s.code, ''), repeat('0', 64), gen_random_uuid(), 'P', s.amount, 'USD', s.state,
			'simulator',
			's', now(), 1, s.code, CASE WHEN s.state IN ('succeeded', 'failed') THEN now() END
		FROM (VALUES ('reserved', NULL, 1), ('pending', NULL, 10), ('needs_attention', NULL, 100),
			('needs_attention', 'over_refund', 1000), ('succeeded', NULL, 2000),
				('failed', 'declined', 4000)) AS s (state, code, amount)`); err != nil {
		t.Fatal(err)
	}
	theirs := registration("b", "P")
	theirs.Provider, theirs.ProviderPaymentRef = ptr("simulator"), ptr("pay-2")
	if _, _, err := register(t, db, theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Owner.Exec(t.Context(), `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state,
			provider, provider_key, provider_key_expires_at, attempts)
		VALUES ('b', 'K', repeat('0', 64), gen_random_uuid(), 'P', 7, 'USD', 'reserved', 'simulator', 's', now(),
			1)`); err != nil {
		t.Fatal(err)
	}
	err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
		o, err := ledger.Find(t.Context(), tx, r.OrderKey)
		if o.HeldCents != 1111 {
			t.Errorf("held %d, want 1111", o.HeldCents)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPost(t *testing.T) {
	t.Parallel()

	t.Run("BeyondTheCapture_IsCountedByName", func(t *testing.T) { // A60
		db := books(t)
		r := registration("a", "P")
		for _, order := range []ledger.Registration{r, registration("b", "P")} {
			if _, _, err := register(t, db, order); err != nil {
				t.Fatal(err)
			}
		}
		entry := func(id string, amount int64) ledger.Entry {
			return ledger.Entry{OrderKey: r.OrderKey, OperationID: id, AmountCents: amount, Currency: "USD"}
		}
		for i, step := range []struct {
			postings       []ledger.Posting
			refunded, over int64
		}{
			{[]ledger.Posting{ledger.Hold(entry("K", 6000), 1)}, 6000, 0},
			{[]ledger.Posting{ledger.Hold(entry("L", 6000), 1), ledger.Settle(entry("L", 6000), 2)}, 12000, 2000},
			{[]ledger.Posting{ledger.Hold(entry("M", 1), 1), ledger.Release(entry("K", 6000), 2)}, 6001, 0},
			{[]ledger.Posting{ledger.Hold(entry("N", 5000), 1)}, 11001, 1001},
			{[]ledger.Posting{ledger.Reverse(entry("L", 6000), 3), ledger.Hold(entry("O", 6000), 1)}, 11001, 1001},
			{[]ledger.Posting{ledger.Release(entry("N", 5000), 2), ledger.Settle(entry("O", 6000), 2)}, 6001, 0},
		} {
			var o ledger.Order
			err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
				if err = post(t.Context(), tx, step.postings); err == nil {
					o, err = ledger.Find(t.Context(), tx, r.OrderKey)
				}
				return err
			})
			refundable := max(10000-step.refunded, 0)
			if err != nil || o.RefundedCents != step.refunded || o.OverRefundedCents != step.over ||
				o.RefundableCents() != refundable {
				t.Errorf("step %d: refunded %d, beyond the capture %d, refundable %d, %v; want %d, %d, %d", i,
					o.RefundedCents, o.OverRefundedCents, o.RefundableCents(), err, step.refunded, step.over,
					refundable)
			}
		}
	})

	t.Run("ARisingCapture_CoversTheExcess", func(t *testing.T) { // A60
		db := books(t)
		r := registration("a", "P")
		if _, _, err := register(t, db, r); err != nil {
			t.Fatal(err)
		}
		err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return post(t.Context(), tx, []ledger.Posting{
				ledger.Hold(ledger.Entry{OrderKey: r.OrderKey, OperationID: "K", AmountCents: 12000, Currency: "USD"},
					1)})
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ captured, over, refundable int64 }{{10000, 2000, 0}, {11500, 500, 0},
			{12000, 0, 0}, {15000, 0, 3000}} {
			r.CapturedCents = ptr(step.captured)
			o, _, err := register(t, db, r)
			if err != nil || o.OverRefundedCents != step.over || o.RefundableCents() != step.refundable {
				t.Errorf("captured %d: beyond it %d, refundable %d, %v", step.captured, o.OverRefundedCents,
					o.RefundableCents(), err)
			}
		}
		// an excess that was covered allows nothing
		_, err = db.Pool.Exec(t.Context(), `UPDATE orders SET refunded_cents = 15001`)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.ConstraintName != "orders_refunded_within_captured" {
			t.Errorf("more than the capture: %v", err)
		}
	})

	t.Run("ImpossibleAmounts_AreRefusedByTheOrdersRow", func(t *testing.T) {
		db := books(t)
		for _, o := range []string{"P", "Q"} {
			if _, _, err := register(t, db, registration("a", o)); err != nil {
				t.Fatal(err)
			}
		}
		entry := func(order, id string, amount int64) ledger.Posting {
			return ledger.Hold(ledger.Entry{
				OrderKey: ledger.OrderKey{TenantID: "a",
					OrderID: order}, OperationID: id, AmountCents: amount, Currency: "USD",
			}, 1)
		}
		for name, postings := range map[string][]ledger.Posting{
			"a sum that wraps":  {entry("P", "1", 1<<62), entry("P", "2", 1<<62), entry("P", "3", 1<<62)},
			"beside a good one": {entry("Q", "1", 1), entry("P", "2", -2)},
			"a negative one":    {entry("P", "1", -1)},
		} {
			err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
				return post(t.Context(), tx, postings)
			})
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code[:2] != "23" && pgErr.Code[:2] != "22" {
				t.Errorf("%s: %v, want refused by a constraint", name, err)
			}
		}
		var transfers, refunded int64
		if err := db.Owner.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM ledger_transfers),
			(SELECT sum(refunded_cents)::bigint FROM orders)`).Scan(&transfers, &refunded); err != nil {
			t.Fatal(err)
		}
		if transfers != 0 || refunded != 0 {
			t.Errorf("%d transfers and %d refunded remain", transfers, refunded)
		}
	})

	t.Run("ATransferThatIsNotWritten_IsAnError", func(t *testing.T) {
		db := books(t)
		r := registration("a", "P")
		if _, _, err := register(t, db, r); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{
			`CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
			`CREATE TRIGGER swallowed BEFORE INSERT ON ledger_transfers FOR EACH ROW EXECUTE FUNCTION swallow()`,
		} {
			if _, err := db.Owner.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return post(t.Context(), tx, []ledger.Posting{ledger.Hold(ledger.Entry{
				OrderKey: r.OrderKey, OperationID: "K", AmountCents: 1, Currency: "USD",
			}, 1)})
		})
		if err == nil {
			t.Error("debited without a transfer")
		}
	})

	t.Run("OfAnUnknownOrder_IsAnError", func(t *testing.T) {
		db := books(t)
		err := inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return post(t.Context(), tx, []ledger.Posting{ledger.Hold(ledger.Entry{
				OrderKey: ledger.OrderKey{TenantID: "a",
					OrderID: "nowhere"}, OperationID: "K", AmountCents: 1, Currency: "USD",
			}, 1)})
		})
		if err == nil {
			t.Error("debited an order that does not exist")
		}
	})
}

// post writes postings in tx.
func post(ctx context.Context, tx pgx.Tx, postings []ledger.Posting) error {
	b := &pgx.Batch{}
	ledger.Post(b, time.Now(), postings)
	return tx.SendBatch(ctx, b).Close()
}
