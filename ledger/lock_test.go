package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"refundd/ledger"
	"refundd/test/testdb"
)

// Who asks for orders in whatever order waits for the first of them with none of the later ones in hand.
func TestLock_WaitsInTheOrderOfNames(t *testing.T) {
	db := books(t)
	for _, id := range []string{"Q", "P"} { // as the table has them, if nobody sorts
		if _, _, err := register(t, db, registration("a", id)); err != nil {
			t.Fatal(err)
		}
	}
	const lock = `SELECT FROM orders WHERE order_id = $1 FOR NO KEY UPDATE NOWAIT`
	holder := winner(t, db, `SELECT FROM orders WHERE order_id = 'P' FOR NO KEY UPDATE`)
	ended := make(chan error, 1)
	var found []ledger.Order
	go func() {
		ended <- inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			ledger.Lock(b, []ledger.OrderKey{{TenantID: "a", OrderID: "Q"}, {TenantID: "a", OrderID: "P"}}, true,
				func(o []ledger.Order) { found = o })
			if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
				return err
			}
			_, err := db.Owner.Exec(t.Context(), lock, "Q")
			if said, ok := errors.AsType[*pgconn.PgError](err); !ok || said.Code != pgerrcode.LockNotAvailable {
				t.Errorf("Q is not locked: %v", err)
			}
			return nil
		})
	}()
	untilBlocked(t, db)
	if _, err := db.Owner.Exec(t.Context(), lock, "Q"); err != nil {
		t.Errorf("who waits for P has Q: %v", err)
	}
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || len(found) != 2 || found[0].OrderID != "P" || found[1].OrderID != "Q" {
		t.Errorf("%+v, %v", found, err)
	}
}

// winner begins a transaction, as another replica's, that does sql and is not committed yet.
func winner(t *testing.T, db *testdb.DB, sql string) pgx.Tx {
	t.Helper()
	tx, err := db.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return tx
}

// untilBlocked waits until a session of this database waits for a lock.
func untilBlocked(t *testing.T, db *testdb.DB) {
	t.Helper()
	for deadline, waits := time.Now().Add(5*time.Second), 0; waits == 0; time.Sleep(5 * time.Millisecond) {
		if err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for a lock")
		}
	}
}

// What was registered or changed while a registration waited is what it is judged against.
func TestRegister_IsJudgedAgainstTheWinner(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, prepare, wins string
		captured            int64
		want                error
	}{
		{"TheSamePayment_IsItsOwn", "", `INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider,
			provider_payment_ref)
			VALUES ('a', 'P', 'USD', 10000, 'simulator', 'pay-1')`, 10000, nil},
		{"ARaisedCapture_IsNotLowered", `INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider,
			provider_payment_ref)
			VALUES ('a', 'P', 'USD', 10000, 'simulator', 'pay-1')`, `UPDATE orders SET captured_cents = 12000`, 11000,
			ledger.ErrOrderImmutable},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := books(t)
			if _, err := db.Owner.Exec(t.Context(), c.prepare); err != nil {
				t.Fatal(err)
			}
			first := winner(t, db, c.wins)
			r := registration("a", "P")
			r.CapturedCents, r.Provider, r.ProviderPaymentRef = &c.captured, ptr("simulator"), ptr("pay-1")
			ended := make(chan error, 1)
			go func() {
				ended <- inTx(t.Context(), db.Pool, func(tx pgx.Tx) error {
					_, isNew, err := ledger.Register(t.Context(), tx, r)
					if isNew {
						t.Error("the loser's order is new")
					}
					return err
				})
			}()
			untilBlocked(t, db)
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
