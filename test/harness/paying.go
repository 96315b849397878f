package harness

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"refundd/test/testdb"
)

// NewPaying is a service of the test's own, without servers yet, whose processes refund through a simulator of its own.
func NewPaying(t testing.TB, flags ...string) *Service {
	t.Helper()
	simulator := Simulate(t, 0)
	return &Service{DB: testdb.New(t), Simulator: simulator, Flags: append(flags, "--simulator-url", simulator.URL)}
}

// Payment is a captured payment at the service's provider; its order has the same id.
type Payment struct {
	OrderID  string
	Currency string // default EUR
	Cents    int64
}

// Ref is how the simulator names the payment of an order.
func (t *Tenant) Ref(orderID string) string { return t.ID + "/" + orderID }

// ProviderKey is the idempotency key of an operation at the simulator.
func (t *Tenant) ProviderKey(operationID string) string { return t.ID + ":" + operationID }

// Pay writes the orders of payments by SQL.
func (t *Tenant) Pay(payments ...Payment) {
	t.t.Helper()
	batch := &pgx.Batch{}
	for _, p := range payments {
		provider, ref := "simulator", t.Ref(p.OrderID)
		if s := t.Service.Stripe; s != nil {
			provider, ref = "stripe", s.capture(t, p)
		}
		batch.Queue(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
			VALUES ($1, $2, coalesce(nullif($3, ''), 'EUR'), $4, $5, $6)`, t.ID, p.OrderID, p.Currency, p.Cents,
			provider, ref)
	}
	if err := t.Service.DB.Owner.SendBatch(t.t.Context(), batch).Close(); err != nil {
		t.t.Fatalf("load payments: %v", err)
	}
}

// Summary is what `refundd reconcile` prints, and its exit code.
type Summary struct {
	ExitCode       int   `json:"-"`
	Claimed        int64 `json:"claimed"`
	Succeeded      int64 `json:"succeeded"`
	Failed         int64 `json:"failed"`
	Pending        int64 `json:"pending"`
	Resent         int64 `json:"resent"`
	NeedsAttention int64 `json:"needs_attention"`
	StillUnknown   int64 `json:"still_unknown"`
	OldestUnknown  int64 `json:"oldest_unknown_seconds"`
	Errors         int64 `json:"errors"`
	DurationMS     int64 `json:"duration_ms"`
}

// Reconcile runs `refundd reconcile` once. It must end well, or have found something for a human.
func (s *Service) Reconcile(t testing.TB, flags ...string) Summary {
	t.Helper()
	r := Command(t, s.DB.ServiceURL, slices.Concat([]string{"reconcile"}, s.Flags, flags)...)
	var summary Summary
	if err := json.Unmarshal([]byte(r.Stdout), &summary, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("refundd reconcile exits %d and prints %q: %v\n%s", r.ExitCode, r.Stdout, err, r.Stderr)
	}
	summary.ExitCode = r.ExitCode
	found := 0
	if summary.NeedsAttention > 0 || contradicted(r.Stderr) {
		found = 3
	}
	if r.ExitCode != found {
		t.Errorf("refundd reconcile exits %d, want %d: %s\n%s", r.ExitCode, found, r.Stdout, r.Stderr)
	}
	return summary
}

// contradicted reports whether a run's log speaks of a refund with an end that its provider's books contradict.
func contradicted(log string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"provider's books contradict an operation"`) &&
			(strings.Contains(line, `"state":"succeeded"`) || strings.Contains(line, `"state":"failed"`)) {
			return true
		}
	}
	return false
}

// Due lets time pass for all operations: whoever had a lease lost it, and reconciliation is due. Those who lock the
// rows in another order meanwhile may cost it a try.
func (s *Service) Due(t testing.TB) {
	t.Helper()
	var err error
	for range 5 {
		if _, err = s.DB.Owner.Exec(t.Context(), `UPDATE refund_operations
			SET lease_until = '-infinity', next_check_at = '-infinity'`); err == nil {
			return
		}
	}
	t.Fatalf("let time pass: %v", err)
}
