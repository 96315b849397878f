package operations_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"refundd/operations"
)

func recordEvents(seen *[]operations.Event) func(*operations.Config) {
	return func(c *operations.Config) {
		c.OnEvents = func(_ *pgx.Batch, events []operations.Event) error {
			*seen = append(*seen, events...)
			return nil
		}
		c.Followed = []operations.State{operations.StatePending, operations.StateSucceeded, operations.StateFailed,
			operations.StateNeedsAttention, operations.StateRevoked}
	}
}

func TestRefunds_PagesWithoutGapsOrRepeats(t *testing.T) {
	b := newBundle(t)
	b.free()
	b.order("P", 1000)
	b.order("Q", 1000)
	var ids []string
	for i := range 25 {
		id := fmt.Sprintf("K-%02d", i)
		expect(t, b.submit(operations.Request{TenantID: tenant, OperationID: id, OrderID: []string{"P", "Q"}[i%2],
			AmountCents: 1}),
			operations.StatusProcessed)
		ids = append([]string{id}, ids...)
	}
	b.exec(`UPDATE refund_operations SET created_at = '2026-01-01T00:00:00Z'
		WHERE operation_id < 'K-10'`) // ten at one time
	b.approve("withdrawn", "P", 1)
	if _, err := b.Revoke(t.Context(), operations.Revocation{TenantID: tenant, OperationID: "withdrawn"}); err != nil {
		t.Fatal(err)
	}
	list := func(f operations.RefundFilter, p operations.Page) (got []string, pages int) {
		t.Helper()
		for {
			page, next, err := b.Refunds(t.Context(), tenant, f, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page {
				got = append(got, o.OperationID)
			}
			pages++
			if next == "" {
				return got, pages
			}
			p.Cursor = next
		}
	}
	for limit, wantPages := range map[int]int{1: 25, 5: 5, 7: 4, 25: 1, 100: 1} {
		got, pages := list(operations.RefundFilter{}, operations.Page{Limit: limit})
		if diff := cmp.Diff(ids, got); diff != "" || pages != wantPages {
			t.Errorf("limit %d: %d pages, want %d (-want +got):\n%s", limit, pages, wantPages, diff)
		}
	}
	if got, _ := list(operations.RefundFilter{OrderID: ptr("Q")}, operations.Page{Limit: 5}); len(got) != 12 {
		t.Errorf("order Q has %d refunds, want 12", len(got))
	}
	if got, _ := list(operations.RefundFilter{State: ptr(operations.StateFailed)},
		operations.Page{Limit: 5}); len(got) != 0 {
		t.Errorf("failed: %v", got)
	}
	if got, _ := list(operations.RefundFilter{State: ptr(operations.StateSucceeded)},
		operations.Page{Limit: 5}); len(got) != 25 {
		t.Errorf("succeeded: %d, want 25", len(got))
	}
	moment := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got, _ := list(operations.RefundFilter{}, operations.Page{Limit: 5, CreatedAfter: &moment}); len(got) != 15 {
		t.Errorf("after: %d, want 15", len(got))
	}
	later := moment.Add(time.Microsecond)
	if got, _ := list(operations.RefundFilter{}, operations.Page{Limit: 5, CreatedBefore: &later}); len(got) != 10 {
		t.Errorf("before: %d, want 10", len(got))
	}
}

func TestCursor_OfNobodysIsRefused(t *testing.T) {
	b := newBundle(t)
	b.free()
	b.order("P", 10)
	expect(t, b.submit(operations.Request{TenantID: tenant, OperationID: "K", OrderID: "P", AmountCents: 1}),
		operations.StatusProcessed)
	for _, plain := range []string{"", "x", "1", "1 ", " K", "-62135596800000001 K", "Infinity K", "-infinity ",
		"1 \xff", "1 a\x00b", "99999999999999999999 K", "9223372036854775807 K", "1 2.3", "1 0.x",
		"1 K\xc0\x80", "01 K", "+1 K"} {
		p := operations.Page{Limit: 5, Cursor: base64.RawURLEncoding.EncodeToString([]byte(plain))}
		if plain == "" {
			p.Cursor = "!"
		}
		_, _, refunds := b.Refunds(t.Context(), tenant, operations.RefundFilter{}, p)
		_, _, timeline := b.Timeline(t.Context(), tenant, "K", p)
		if plain == "1 2.3" || plain == "1 0.x" { // an operation id like another
			if refunds != nil {
				t.Errorf("%q: %v", plain, refunds)
			}
		} else if !errors.Is(refunds, operations.ErrInvalidCursor) {
			t.Errorf("%q for refunds: %v", plain, refunds)
		}
		if !errors.Is(timeline, operations.ErrInvalidCursor) {
			t.Errorf("%q for a timeline: %v", plain, timeline)
		}
	}
}

// TestA76_ACursorOfOurs_IsTakenInItsOneSpelling changes bits and bytes that decode to the same.
func TestA76_ACursorOfOurs_IsTakenInItsOneSpelling(t *testing.T) {
	b := newBundle(t)
	own := base64.RawURLEncoding.EncodeToString([]byte("1 KK"))
	for cursor, want := range map[string]error{
		own:                      nil,
		own[:3] + "\n" + own[3:]: operations.ErrInvalidCursor,
		own[:len(own)-1] + "x":   operations.ErrInvalidCursor, // the last character's spare bits
		own + "=":                operations.ErrInvalidCursor,
		"\xff\xfe":               operations.ErrInvalidCursor,
	} {
		_, _, err := b.Refunds(t.Context(), tenant, operations.RefundFilter{},
			operations.Page{Limit: 5, Cursor: cursor})
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%q: %v, want %v", cursor, err, want)
		}
	}
}

func TestTimeline(t *testing.T) {
	b := newBundle(t)
	b.order("P", 10)
	expect(t, b.submit(b.approve("K", "P", 3)), operations.StatusProcessed)
	got, next, err := b.Timeline(t.Context(), tenant, "K", operations.Page{Limit: 20})
	if err != nil || next != "" || len(got) != 1 || got[0].Transfer == nil || got[0].Event != nil {
		t.Fatalf("timeline %+v, %q, %v: want the transfer alone", got, next, err)
	}
	want := operations.Transfer{
		TenantID: tenant, OperationID: "K", Seq: 1, Kind: "refund", DebitAccount: "merchant", CreditAccount: "customer",
		AmountCents: 3, Currency: "USD", CreatedAt: got[0].At,
	}
	if diff := cmp.Diff(&want, got[0].Transfer); diff != "" {
		t.Errorf("transfer (-want +got):\n%s", diff)
	}
	for i := range 6 {
		b.exec(`INSERT INTO operation_events (tenant_id, operation_id, kind, attempt, layer, created_at)
			VALUES ($1, 'K', 'attempt', $2, 'agent_loop', now() + make_interval(secs => $2 / 2))`, tenant, i)
	}
	var kinds []string
	for cursor := ""; ; {
		page, next, err := b.Timeline(t.Context(), tenant, "K", operations.Page{Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if e.Transfer != nil {
				kinds = append(kinds, "transfer")
			} else {
				kinds = append(kinds, fmt.Sprint(*e.Event.Attempt))
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"transfer", "0", "1", "2", "3", "4", "5"}, kinds); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
	for _, id := range []string{"nobody"} {
		if _, _, err := b.Timeline(t.Context(), tenant, id, operations.Page{Limit: 2}); !errors.Is(err,
			operations.ErrRefundNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, _, err := b.Timeline(t.Context(), "rival", "K", operations.Page{Limit: 2}); !errors.Is(err,
		operations.ErrRefundNotFound) {
		t.Errorf("another tenant: %v", err)
	}
}
