package blackbox

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/test/harness"
)

func TestA3_TheSameRefundFiveTimes_IsOneRefund(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	for name, c := range map[string]struct {
		key, order string
		extra      harness.Fields
	}{
		"plain": {"K1", "A-1001", nil},
		"reason and metadata": {"K2", "A-1002",
			harness.Fields{"reason": "Zerbrochen: \u00e9\U0001F4A5 \\ \" <&>",
				"metadata": harness.Fields{"a": "", "b": "ü"}}},
		"currency":              {"K3", "A-1003", harness.Fields{"currency": "EUR"}},
		"odd key":               {"...:_-K", "A-1004", nil},
		"odd order":             {"K5", `#1001/a?b=c%41&<>"\~;`, nil},
		"longest key":           {fmt.Sprintf("%0255d", 7), "A-1006", nil},
		"empty reason":          {"K7", "A-1007", harness.Fields{"reason": ""}},
		"members that are null": {"K8", "A-1008", harness.Fields{"reason": nil, "metadata": nil, "currency": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := tenant.For(t)
			tenant.Order(c.order, 10000)
			tenant.Approve(c.key, c.order, 4999)
			body := harness.Fields{"operation_id": c.key, "order_id": c.order, "amount_cents": 4999}
			for name, v := range c.extra {
				body[name] = v
			}
			receipts := make([]harness.Receipt, 5)
			for i := range receipts {
				a := tenant.At(i).Post("/v1/refunds", body)
				receipts[i] = harness.Read[harness.Receipt](t, a)
				want(t, a, map[bool]string{true: "processed", false: "already_processed"}[i == 0])
			}
			for _, again := range receipts[1:] {
				if diff := cmp.Diff(receipts[0], again,
					cmpopts.IgnoreFields(harness.Receipt{}, "Status", "Replayed")); diff != "" {
					t.Errorf("receipts differ in more than status and replayed: %s", diff)
				}
			}
			stored := harness.Read[harness.Refund](t, tenant.At(1).Get(harness.RefundPath(c.key)))
			if diff := cmp.Diff(receipts[0].Refund, stored); diff != "" {
				t.Errorf("the stored refund is another one: %s", diff)
			}
			approval := harness.Read[harness.Authorization](t, tenant.At(0).Get(harness.AuthorizationPath(c.key)))
			if diff := cmp.Diff(&stored, approval.Refund); diff != "" || approval.State != "executed" {
				t.Errorf("the authorization is %s, and shows another refund: %s", approval.State, diff)
			}
			wantMoved(t, tenant, c.order, 4999)
		})
	}
}

// What came after the refund does not change what its replay says.
func TestA3_Replays_AskNothingAnew(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	tenant.Order("P", 10000)
	tenant.Approve("K", "P", 10000)
	c := tenant.Client()
	first := harness.Read[harness.Receipt](t, c.Refund("K", "P", 10000))
	for name, change := range map[string]func(){
		"the authorization expired": func() {
			tenant.Exec(`UPDATE refund_authorizations SET expires_at = now() - interval '1 day'
				WHERE tenant_id = $1`, tenant.ID)
		},
		"more was captured": func() { c.Put(harness.OrderPath("P"), harness.Fields{"captured_cents": 20000}) },
		"the customer left": func() { c.Put(harness.OrderPath("P"), harness.Fields{"customer": harness.Fields{}}) },
		"the revocation came too late": func() {
			want(t, c.Post(harness.AuthorizationPath("K")+"/revoke", harness.Fields{}), "already_executed")
		},
	} {
		change()
		again := harness.Read[harness.Receipt](t, c.Refund("K", "P", 10000))
		if diff := cmp.Diff(first.Refund, again.Refund); diff != "" || again.Status != "already_processed" {
			t.Errorf("%s: %s %s", name, again.Status, diff)
		}
	}
	wantMoved(t, tenant, "P", 10000)
}

func TestA12_OnlyTheMoneyMovingMembers_TellRefundsApart(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P", "Q"}, 10000)
	c := tenant.Client()
	want(t, c.Post("/v1/refunds",
		harness.Fields{"operation_id": "K", "order_id": "P", "amount_cents": 600, "reason": "first"}), "processed")
	for name, v := range map[string]struct {
		body   string
		header http.Header
		says   string
	}{
		"reordered": {`{"amount_cents":600,"order_id":"P","operation_id":"K"}`, nil, "already_processed"},
		"white space": {" {\n\t\"operation_id\" : \"K\" ,\r\n \"order_id\":\"P\", \"amount_cents\":  600 } \n",
			nil, "already_processed"},
		"escapes": {`{"operation_id":"\u004b","order_id":"\u0050","amount_cents":600}`, nil,
			"already_processed"},
		"another reason": {`{"operation_id":"K","order_id":"P","amount_cents":600,"reason":"second"}`, nil,
			"already_processed"},
		"no reason": {`{"operation_id":"K","order_id":"P","amount_cents":600}`, nil, "already_processed"},
		"metadata": {`{"operation_id":"K","order_id":"P","amount_cents":600,"metadata":{"a":"b"}}`, nil,
			"already_processed"},
		"currency": {`{"operation_id":"K","order_id":"P","amount_cents":600,"currency":"EUR"}`, nil,
			"already_processed"},
		"key in the header": {`{"order_id":"P","amount_cents":600}`, http.Header{"Idempotency-Key": {"K"}},
			"already_processed"},
		"key in both": {`{"operation_id":"K","order_id":"P","amount_cents":600}`,
			http.Header{"Idempotency-Key": {`"K"`}}, "already_processed"},
		"trace headers": {`{"operation_id":"K","order_id":"P","amount_cents":600}`,
			http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
				"X-Request-Id": {"r2"}, "User-Agent": {"other"}}, "already_processed"},
		"attempt labels": {`{"operation_id":"K","order_id":"P","amount_cents":600}`,
			http.Header{"Refund-Attempt-Layer": {"agent_loop"}, "Refund-Attempt": {"7"}}, "already_processed"},
		"another amount": {`{"operation_id":"K","order_id":"P","amount_cents":601}`, nil, "operation_id_conflict"},
		"too large an amount": {`{"operation_id":"K","order_id":"P","amount_cents":10001}`, nil,
			"operation_id_conflict"},
		"another order": {`{"operation_id":"K","order_id":"Q","amount_cents":600}`, nil, "operation_id_conflict"},
		"an unknown order": {`{"operation_id":"K","order_id":"nowhere","amount_cents":600}`, nil,
			"operation_id_conflict"},
		"another currency": {`{"operation_id":"K","order_id":"P","amount_cents":600,"currency":"USD"}`, nil,
			"operation_id_conflict"},
	} {
		for i := range 2 {
			a := tenant.At(i).Do(harness.Request{Method: http.MethodPost, Path: "/v1/refunds", Body: []byte(v.body),
				Header: v.header, Valid: true})
			if got := a.Says(); got != v.says {
				t.Errorf("%s: %s, want %s: %s", name, got, v.says, a.Body)
			}
		}
	}
	if got := harness.Read[harness.Refund](t, c.Get(harness.RefundPath("K"))); got.Reason == nil ||
		*got.Reason != "first" || len(got.Metadata) > 0 {
		t.Errorf("the first reason and metadata did not stay: %+v", got)
	}
	wantMoved(t, tenant, "P", 600)
	wantMoved(t, tenant, "Q", 0)
}

func TestA34_NothingDeletesAKeyWhoseMoneyMoved(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	tenant := service.Tenant(t)
	tenant.Order("P", 10000)
	tenant.Approve("K", "P", 600)
	first := tenant.Client().Refund("K", "P", 600)
	want(t, first, "processed")
	for _, table := range []string{"refund_operations", "ledger_transfers", "operation_events"} {
		for _, statement := range []string{"DELETE FROM %s", "TRUNCATE %s CASCADE"} {
			for role, pool := range map[string]*pgxpool.Pool{"owner": service.DB.Owner, "service": service.DB.Pool} {
				if _, err := pool.Exec(t.Context(), fmt.Sprintf(statement, table)); err == nil {
					t.Errorf("the %s may %s", role, fmt.Sprintf(statement, table))
				}
			}
		}
	}
	for _, path := range []string{"/v1/refunds/K", "/v1/authorizations/K", "/v1/orders/P", "/v1/refunds"} {
		want(t, tenant.Client().Do(harness.Request{Method: http.MethodDelete, Path: path}), "method_not_allowed")
	}
	tenant.Exec(`UPDATE refund_operations SET created_at = now() - interval '20 years'`)
	service.Servers[0].Kill()
	service.Servers = nil
	service.AddServer(t)
	want(t, tenant.Client().Refund("K", "P", 600), "already_processed")
	wantMoved(t, tenant, "P", 600)
	service.Audit(t)
}
