package webhooks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"refundd/operations"
	"refundd/webhooks"
)

// follow reads a tenant's log from a cursor to its end, and returns what it found and where it goes on.
func (b *bundle) follow(t *testing.T, tenantID, cursor string) ([]string, string) {
	t.Helper()
	var told []string
	for {
		page, err := b.box.Events(t.Context(), tenantID, webhooks.EventFilter{},
			operations.Page{Limit: 3, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			told = append(told, e.Operation.OperationID+" "+string(e.Type))
		}
		if cursor = page.Resume; page.Next == "" {
			return told, cursor
		}
	}
}

// begin opens a transaction of the service's, to be ended by the test.
func (b *bundle) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Transactions commit in another order than that of their sequence, and than that of their ids.
func TestLog_SkipsNothingThatCommitsLate(t *testing.T) {
	t.Parallel()
	b, r := newBundle(t), accepting(t)
	b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "early", "late", "last")
	early := b.begin(t)
	if err := b.moveIn(t.Context(), early, tenant, operations.StatePending, "early"); err != nil { // drawn first
		t.Fatal(err)
	}
	b.move(t, tenant, operations.StatePending, "late")
	b.deliver(t)
	first, cursor := b.follow(t, tenant, "")
	r.await(t, 1) // the endpoint is past it as well
	commit(t, early)
	second, cursor := b.follow(t, tenant, cursor)
	b.move(t, tenant, operations.StatePending, "last")
	third, _ := b.follow(t, tenant, cursor)
	want := [][]string{{"late refund.pending"}, {"early refund.pending"}, {"last refund.pending"}}
	if d := cmp.Diff(want, [][]string{first, second, third}); d != "" {
		t.Error(d)
	}
	r.await(t, 3)
	if d := cmp.Diff(slices.Sorted(slices.Values(slices.Concat(want...))),
		slices.Sorted(slices.Values(r.told()))); d != "" {
		t.Error(d) // of different refunds, in any order
	}
	if all, _ := b.follow(t, tenant, ""); !cmp.Equal(all, slices.Concat(want...)) {
		t.Errorf("read anew: %q", all)
	}
}

// A transaction that took its id early may come to an operation late: its event stays behind the one before.
func TestLog_KeepsTheOrderOfAnOperation(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.reserve(t, tenant, "op", "other")
	old := b.begin(t)
	if err := b.moveIn(t.Context(), old, tenant, operations.StatePending, "other"); err != nil { // has its id
		t.Fatal(err)
	}
	b.move(t, tenant, operations.StatePending, "op")
	if err := b.moveIn(t.Context(), old, tenant, operations.StateSucceeded, "op"); err != nil {
		t.Fatal(err)
	}
	commit(t, old)
	got, _ := b.follow(t, tenant, "")
	if slices.Index(got, "op refund.pending") > slices.Index(got, "op refund.succeeded") || len(got) != 3 {
		t.Errorf("%q", got)
	}
}

// Whoever holds a tenant's stream keeps nobody else's events back.
func TestLog_OfATenantDoesNotWaitForAnother(t *testing.T) {
	t.Parallel()
	b, r := newBundle(t), accepting(t)
	b.endpoint(t, "other", r.URL)
	b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "a")
	b.reserve(t, "other", "b")
	held, err := b.db.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{`SELECT FROM webhook_streams WHERE tenant_id = 'acme' FOR UPDATE`,
		`SELECT FROM webhook_endpoints WHERE tenant_id = 'acme' FOR UPDATE`} {
		if _, err := held.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	b.deliver(t)
	b.move(t, tenant, operations.StatePending, "a")
	began := time.Now()
	b.move(t, "other", operations.StatePending, "b")
	r.await(t, 1)
	// a lock is waited for 3 s
	if took := time.Since(began); r.told()[0] != "b refund.pending" || took > 2500*time.Millisecond {
		t.Errorf("%q after %v", r.told(), took)
	}
	commit(t, held)
	r.await(t, 2)
}

// Many writers whose transactions take unlike times, two readers of the log, two couriers.
func TestLog_IsCompleteUnderConcurrency(t *testing.T) {
	t.Parallel()
	b, r := newBundle(t), accepting(t)
	b.endpoint(t, tenant, r.URL)
	const writers, each = 4, 15
	var ids []string
	for i := range writers * each {
		ids = append(ids, fmt.Sprintf("op-%02d", i))
	}
	b.reserve(t, tenant, ids...)
	b.deliver(t)
	b.deliver(t)
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				for _, s := range []operations.State{operations.StatePending, operations.StateSucceeded} {
					tx, err := b.db.Owner.Begin(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					err = b.moveIn(context.Background(), tx, tenant, s, ids[w*each+i])
					time.Sleep(rand.N(10 * time.Millisecond))
					if err != nil || tx.Commit(context.Background()) != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	read := make([][]string, 2)
	for i := range read {
		reading.Go(func() {
			cursor := ""
			for last := false; ; {
				var more []string
				more, cursor = b.follow(t, tenant, cursor)
				read[i] = append(read[i], more...)
				if last {
					return
				}
				select {
				case <-done:
					last = true
				case <-time.After(3 * time.Millisecond):
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	r.await(t, 2*writers*each)
	for name, told := range map[string][]string{"reader 1": read[0], "reader 2": read[1], "receiver": r.told()} {
		if len(told) != 2*writers*each {
			t.Errorf("%s: %d events", name, len(told))
		}
		for _, id := range ids {
			if p, s := slices.Index(told, id+" refund.pending"), slices.Index(told, id+" refund.succeeded"); p < 0 ||
				p > s {
				t.Errorf("%s: %s pending at %d, succeeded at %d", name, id, p, s)
			}
		}
	}
	if d := cmp.Diff(read[0], read[1]); d != "" {
		t.Error(d)
	}
}
