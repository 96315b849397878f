package operations_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/operations"
)

func ptr[T any](v T) *T { return &v }

func approval(operationID, orderID string, amount int64) operations.Approval {
	return operations.Approval{
		TenantID: tenant, OperationID: operationID, CaseID: "case-1", OrderID: orderID, AmountCents: amount, ApprovedBy: "ann",
	}
}

// rows is every row of the tenant's that a refusal must not touch.
func (b *bundle) rows() string {
	b.t.Helper()
	var s string
	err := b.db.Owner.QueryRow(b.t.Context(), `SELECT concat(
		(SELECT json_agg(o ORDER BY order_id) FROM orders o), (SELECT json_agg(a ORDER BY operation_id)
			FROM refund_authorizations a),
		(SELECT json_agg(r ORDER BY operation_id) FROM refund_operations r), (SELECT count(*) FROM ledger_transfers),
		(SELECT count(*) FROM operation_events))`).Scan(&s)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func TestSubmit_NeedsItsAuthorization(t *testing.T) { onBothRoads(t, testSubmitNeedsItsAuthorization) }

func testSubmitNeedsItsAuthorization(t *testing.T, newBundle func(*testing.T) *bundle) {
	b := newBundle(t)
	b.order("P", 10000)
	b.order("Q", 10000)
	b.approve("K", "P", 4000)
	b.approve("expired", "P", 4000)
	b.exec(`UPDATE refund_authorizations SET expires_at = clock_timestamp() WHERE operation_id = 'expired'`)
	b.approve("revoked", "P", 4000)
	if _, err := b.Revoke(t.Context(), operations.Revocation{TenantID: tenant, OperationID: "revoked"}); err != nil {
		t.Fatal(err)
	}
	b.approve("foreign", "P", 4000)
	b.exec(`UPDATE refund_authorizations SET currency = 'EUR' WHERE operation_id = 'foreign'`)
	for _, c := range []struct {
		name     string
		id       string
		order    string
		amount   int64
		currency *string
		want     error
	}{
		{"NotApproved", "nobody", "P", 4000, nil, operations.ErrAuthorizationNotFound},
		{"Expired", "expired", "P", 4000, nil, operations.ErrAuthorizationExpired},
		{"Revoked", "revoked", "P", 4000, nil, operations.ErrAuthorizationRevoked},
		{"RevokedAndAnotherAmount", "revoked", "P", 1, nil, operations.ErrAuthorizationRevoked},
		{"AnotherAmount", "K", "P", 4001, nil, operations.ErrAuthorizationMismatch},
		{"LessThanApproved", "K", "P", 1, nil, operations.ErrAuthorizationMismatch},
		{"AnotherOrder", "K", "Q", 4000, nil, operations.ErrAuthorizationMismatch},
		{"UnknownOrder", "K", "R", 4000, nil, operations.ErrOrderNotFound},
		{"AnotherCurrency", "K", "P", 4000, ptr("EUR"), operations.ErrCurrencyMismatch},
		{"ApprovedInAnotherCurrency", "foreign", "P", 4000, nil, operations.ErrAuthorizationMismatch},
		{"AnotherTenants", "K", "P", 4000, nil, operations.ErrOrderNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := b.rows()
			r := operations.Request{TenantID: tenant, OperationID: c.id, OrderID: c.order, AmountCents: c.amount,
				Currency: c.currency}
			if c.name == "AnotherTenants" {
				r.TenantID = "rival"
			}
			expectErr(t, b.submit(r), c.want)
			if diff := cmp.Diff(before, b.rows()); diff != "" {
				t.Errorf("a refusal changed rows:\n%s", diff)
			}
		})
	}
	k := operations.Request{TenantID: tenant, OperationID: "K", OrderID: "P", AmountCents: 4000, Currency: ptr("USD")}
	expect(t, b.submit(k), operations.StatusProcessed) // a refusal binds nothing
	b.exec(`UPDATE refund_authorizations SET expires_at = '-infinity' WHERE operation_id = 'K'`)
	expect(t, b.submit(k), operations.StatusAlreadyProcessed) // a replay checks no authorization
	k.Currency = ptr("EUR")
	expectErr(t, b.submit(k), operations.ErrOperationConflict)
	if got := b.moved("P"); got != 4000 {
		t.Errorf("moved %d, want 4000", got)
	}
}

func TestSubmit_WithoutRequiredAuthorization(t *testing.T) {
	b := newBundle(t)
	b.free()
	b.order("P", 10000)
	r := operations.Request{TenantID: tenant, OperationID: "free", OrderID: "P", AmountCents: 1}
	expect(t, b.submit(r), operations.StatusProcessed)
	bound := b.approve("bound", "P", 5)
	bound.AmountCents = 6
	expectErr(t, b.submit(bound), operations.ErrAuthorizationMismatch) // one that exists binds even so
	_, err := b.Authorization(t.Context(), tenant, "free")
	var refusal *operations.Refusal
	if !errors.Is(err, operations.ErrAuthorizationNotFound) || !errors.As(err, &refusal) || refusal.Operation == nil {
		t.Errorf("authorization of a key that moved money without one: %v, want a refusal with the operation", err)
	}
	_, err = b.Revoke(t.Context(), operations.Revocation{TenantID: tenant, OperationID: "free"})
	if !errors.Is(err, operations.ErrAlreadyExecuted) {
		t.Errorf("revoke after execution: %v", err)
	}
	_, _, err = b.Authorize(t.Context(), approval("free", "P", 2))
	if !errors.Is(err, operations.ErrOperationConflict) {
		t.Errorf("approve another refund under an executed key: %v", err)
	}
	a, isNew, err := b.Authorize(t.Context(), approval("free", "P", 1))
	if err != nil || !isNew || a.State != operations.AuthorizationExecuted || a.Refund == nil {
		t.Errorf("approve what was executed: %+v %v %v", a, isNew, err)
	}
}

func TestAuthorize(t *testing.T) {
	b := newBundle(t)
	b.order("P", 10000)
	expires := time.Now().Add(time.Hour).Round(0)
	a := approval("K", "P", 4000)
	a.Reason, a.Metadata, a.ExpiresAt = ptr("late"), map[string]string{"a": "b"}, &expires
	first, isNew, err := b.Authorize(t.Context(), a)
	if err != nil || !isNew {
		t.Fatalf("new: %v, %v", isNew, err)
	}
	want := operations.Authorization{
		TenantID: tenant, OperationID: "K", CaseID: "case-1", OrderID: "P", AmountCents: 4000, Currency: "USD",
		Reason: ptr("late"), Metadata: map[string]string{"a": "b"}, ApprovedBy: "ann",
		ExpiresAt: ptr(expires.Truncate(time.Microsecond)), CreatedAt: first.CreatedAt, State: operations.AuthorizationOpen,
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("authorization (-want +got):\n%s", diff)
	}
	again := a
	again.Reason, again.Metadata, again.Currency = nil, nil, ptr("USD")
	stored, isNew, err := b.Authorize(t.Context(), again)
	if diff := cmp.Diff(first, stored); diff != "" || isNew || err != nil {
		t.Errorf("again: %v, %v (-first +again):\n%s", isNew, err, diff)
	}
	for name, change := range map[string]func(*operations.Approval){
		"case":   func(a *operations.Approval) { a.CaseID = "case-2" },
		"order":  func(a *operations.Approval) { a.OrderID = "Q" },
		"amount": func(a *operations.Approval) { a.AmountCents++ }, "approver": func(a *operations.Approval) { a.ApprovedBy = "bob" },
		"expiry":   func(a *operations.Approval) { a.ExpiresAt = ptr(expires.Add(time.Second)) },
		"never":    func(a *operations.Approval) { a.ExpiresAt = nil },
		"currency": func(a *operations.Approval) { a.Currency = ptr("EUR") },
	} {
		other := a
		change(&other)
		if _, _, err := b.Authorize(t.Context(), other); !errors.Is(err, operations.ErrOperationConflict) {
			t.Errorf("another %s: %v, want a conflict", name, err)
		}
	}
	if _, _, err := b.Authorize(t.Context(), approval("L", "nowhere", 1)); !errors.Is(err,
		operations.ErrOrderNotFound) {
		t.Errorf("unknown order: %v", err)
	}
	foreign := approval("L", "P", 1)
	foreign.Currency = ptr("JPY")
	if _, _, err := b.Authorize(t.Context(), foreign); !errors.Is(err, operations.ErrCurrencyMismatch) {
		t.Errorf("another currency: %v", err)
	}
	if got := b.count(`SELECT count(*) FROM refund_operations`); got != 0 {
		t.Errorf("approving claimed %d keys", got)
	}
}

func TestAuthorize_SameIDConcurrently_StoresOne(t *testing.T) {
	b := newBundle(t)
	b.order("P", 10000)
	for round := range 30 {
		type result struct {
			isNew bool
			err   error
		}
		results := make(chan result, 6)
		for i := range cap(results) {
			go func() {
				_, isNew, err := b.Authorize(t.Context(), approval(fmt.Sprintf("K-%d", round), "P", int64(1+i%2)))
				results <- result{isNew, err}
			}()
		}
		made, conflicts := 0, 0
		for range cap(results) {
			r := <-results
			switch {
			case r.isNew:
				made++
			case errors.Is(r.err, operations.ErrOperationConflict):
				conflicts++
			case r.err != nil:
				t.Fatal(r.err)
			}
		}
		if made != 1 || conflicts != 3 {
			t.Fatalf("round %d: %d made, %d conflicts, want 1 and 3", round, made, conflicts)
		}
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()

	t.Run("BeforeExecution_ClaimsTheKeyOnce", func(t *testing.T) {
		var seen []operations.Event
		b := newBundle(t, recordEvents(&seen))
		b.order("P", 10000)
		r := b.approve("K", "P", 4000)
		for range 2 {
			a, err := b.Revoke(t.Context(), operations.Revocation{
				TenantID: tenant, OperationID: "K", Reason: ptr("mistake"), RevokedBy: ptr("bob"), Actor: "key_1",
			})
			if err != nil || a.State != operations.AuthorizationRevoked || a.Refund != nil {
				t.Fatalf("revoke: %+v, %v", a, err)
			}
		}
		expectErr(t, b.submit(r), operations.ErrAuthorizationRevoked)
		if _, err := b.Refund(t.Context(), tenant, "K"); !errors.Is(err, operations.ErrRefundNotFound) {
			t.Errorf("a revoked key is shown as a refund: %v", err)
		}
		if _, _, err := b.Authorize(t.Context(), approval("K", "P", 4000)); !errors.Is(err,
			operations.ErrAuthorizationRevoked) {
			t.Errorf("approve again what was withdrawn: %v", err)
		}
		if len(seen) != 1 || seen[0].Kind != "revoked" || *seen[0].Actor != "key_1" ||
			seen[0].Detail["reason"] != "mistake" || seen[0].Detail["revoked_by"] != "bob" {
			t.Errorf("events %+v, want one withdrawal by bob", seen)
		}
		if n := b.count(`SELECT count(*) FROM operation_events WHERE operation_id = 'K' AND actor = 'key_1'`); n != 1 {
			t.Errorf("%d events stored, want 1", n)
		}
	})

	t.Run("Unknown_IsNotFound", func(t *testing.T) {
		b := newBundle(t)
		_, err := b.Revoke(t.Context(), operations.Revocation{TenantID: tenant, OperationID: "K"})
		if !errors.Is(err, operations.ErrAuthorizationNotFound) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("RacesTheExecution_ExactlyOneWins", func(t *testing.T) {
		b := newBundle(t)
		second := b.engine(b.db.Pool)
		b.order("P", 1000000)
		revoked, executions := 0, 0
		for round := 0; round < 100 || round < 1000 && (revoked == 0 || executions == 0); round++ {
			r := b.approve(fmt.Sprintf("K-%d", round), "P", 7)
			refund := b.start(t.Context(), r)
			if round%2 == 0 {
				time.Sleep(time.Duration(round) * 20 * time.Microsecond)
			}
			_, revokeErr := second.Revoke(t.Context(),
				operations.Revocation{TenantID: tenant, OperationID: r.OperationID})
			got := wait(t, refund)
			executed := got.err == nil && got.receipt.Status == operations.StatusProcessed
			withdrawn := errors.Is(got.err, operations.ErrAuthorizationRevoked)
			if executed == withdrawn || executed != errors.Is(revokeErr, operations.ErrAlreadyExecuted) {
				t.Fatalf("round %d: refund %s, revoke %v", round, got, revokeErr)
			}
			if withdrawn {
				revoked++
			} else {
				executions++
			}
		}
		if got := b.moved("P"); got != int64(7*executions) {
			t.Errorf("moved %d in %d executions", got, executions)
		}
		if revoked == 0 || executions == 0 {
			t.Errorf("no race: %d were revoked, %d executed", revoked, executions)
		}
	})
}

func TestAuthorizationsOfCase(t *testing.T) {
	b := newBundle(t)
	b.order("P", 1000000)
	for i := range operations.MaxMatches {
		b.approve(fmt.Sprintf("K-%03d", i), "P", 1)
	}
	expect(t, b.submit(operations.Request{TenantID: tenant, OperationID: "K-007", OrderID: "P", AmountCents: 1}),
		operations.StatusProcessed)
	b.exec(`UPDATE refund_authorizations SET expires_at = now() WHERE operation_id = 'K-008'`)
	found, err := b.AuthorizationsOfCase(t.Context(), tenant, "case-1")
	if err != nil || len(found) != operations.MaxMatches {
		t.Fatalf("%d found, %v", len(found), err)
	}
	if found[9].ExpiresAt != nil {
		t.Errorf("an approval without expiry expires %v", found[9].ExpiresAt)
	}
	b.exec(`UPDATE refund_authorizations SET expires_at = CASE operation_id WHEN 'K-008' THEN '-infinity'
		ELSE 'infinity' END::timestamptz
		WHERE operation_id IN ('K-008', 'K-009')`) // rows loaded by SQL may say so
	if found, err = b.AuthorizationsOfCase(t.Context(), tenant, "case-1"); err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		want := operations.AuthorizationOpen
		switch a.OperationID {
		case "K-007":
			want = operations.AuthorizationExecuted
		case "K-008":
			want = operations.AuthorizationExpired
		}
		if a.State != want || (a.Refund != nil) != (a.OperationID == "K-007") {
			t.Errorf("%s is %s with refund %v", a.OperationID, a.State, a.Refund)
		}
	}
	if found, err := b.AuthorizationsOfCase(t.Context(), "rival", "case-1"); err != nil || len(found) != 0 {
		t.Errorf("another tenant finds %d, %v", len(found), err)
	}
	b.approve("one-more", "P", 1)
	if _, err := b.AuthorizationsOfCase(t.Context(), tenant, "case-1"); !errors.Is(err, operations.ErrTooManyMatches) {
		t.Errorf("one too many: %v", err)
	}
}

func TestAuthorizationsOfCase_ShowsEachRefundItsOwn(t *testing.T) {
	b := newBundle(t)
	b.order("P", 1000)
	want := map[string]operations.Operation{}
	for i, change := range []func(*operations.Request){
		func(r *operations.Request) { r.Reason, r.Metadata = ptr("late"), map[string]string{"a": "1", "b": "2"} },
		func(r *operations.Request) { r.Metadata = map[string]string{"b": "3"} },
		func(r *operations.Request) { r.Metadata = map[string]string{} },
		func(r *operations.Request) { r.Reason, r.Metadata = ptr("broken"), map[string]string{} },
	} {
		r := b.approve(fmt.Sprintf("K-%d", i), "P", 1)
		change(&r)
		made := b.submit(r)
		expect(t, made, operations.StatusProcessed)
		want[r.OperationID] = made.receipt.Operation
	}
	found, err := b.AuthorizationsOfCase(t.Context(), tenant, "case-1")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]operations.Operation{}
	for _, a := range found {
		got[a.OperationID] = *a.Refund
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refunds (-executed +shown):\n%s", diff)
	}
}
