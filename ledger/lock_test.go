package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"refundd/ledger"
)

// Who asks for orders in whatever order waits for the first of them with none of the later ones in hand.
func TestLock_WaitsInTheOrderOfNames(t *testing.T) {
	db := books(t)
	for _, id := range []string{"P", "Q"} {
		if _, _, err := register(t, db, registration("a", id)); err != nil {
			t.Fatal(err)
		}
	}
	const lock = `SELECT FROM orders WHERE order_id = $1 FOR NO KEY UPDATE NOWAIT`
	holder, err := db.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context()) // it has ended where all went well
	if _, err := holder.Exec(t.Context(), lock, "P"); err != nil {
		t.Fatal(err)
	}
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
	for deadline, waits := time.Now().Add(5*time.Second), 0; waits == 0; time.Sleep(5 * time.Millisecond) {
		if err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the order")
		}
	}
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
