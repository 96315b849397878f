package blackbox

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

func TestPages_ListEveryRefundOnce(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P", "Q"}, 1000000)
	const n = 45
	for i := range n {
		want(t, tenant.At(i).Refund(names("K", n)[i], []string{"P", "Q"}[i%2], 1), "processed")
	}
	for query, wanted := range map[string]int{
		"": n, "&order_id=P": 23, "&order_id=Q": 22, "&order_id=R": 0, "&state=succeeded": n, "&state=failed": 0,
		"&created_before=2000-01-01T00:00:00Z": 0, "&created_after=2000-01-01T00:00:00%2B01:00": n,
	} {
		for _, limit := range []string{"1", "7", "20", "100"} {
			if seen := walk(t, tenant, "/v1/refunds?limit="+limit+query); len(seen) != wanted {
				t.Errorf("limit %s%s: %d refunds, want %d", limit, query, len(seen), wanted)
			}
		}
	}
}

// walk reads page after page, newest first, and answers each refund once.
func walk(t *testing.T, tenant *harness.Tenant, first string) []string {
	t.Helper()
	var seen []string
	newest := "9"
	for path := first; ; {
		page := harness.Read[harness.List[harness.Refund]](t, tenant.Client().Get(path))
		for _, r := range page.Data {
			if slices.Contains(seen, r.OperationID) || r.CreatedAt > newest {
				t.Errorf("%s: %s again, or out of order", path, r.OperationID)
			}
			seen, newest = append(seen, r.OperationID), r.CreatedAt
		}
		if page.NextCursor == nil {
			return seen
		}
		path = first + "&cursor=" + *page.NextCursor
	}
}

func TestSearches_AnswerAllMatches(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	c := tenant.Client()
	for order, customer := range map[string]harness.Fields{
		"P1": {"id": "c1", "email": "Ada@Example.com"}, "P2": {"id": "c1", "email": "ada@example.COM",
			"name": "Ada"}, "P3": {"id": "c2", "email": "ada@example.com"},
		"P4": {"id": "c1"}, "P5": {"email": "bob@example.com"}, "P6": {},
	} {
		c.Put(harness.OrderPath(order), harness.Fields{"currency": "EUR", "captured_cents": 100, "customer": customer})
	}
	for query, wanted := range map[string][]string{
		"customer_email=ada@example.com": {"P1", "P2", "P3"}, "customer_email=ADA%40EXAMPLE.COM": {"P1", "P2",
			"P3"}, "customer_id=c1": {"P1", "P2", "P4"},
		"customer_id=C1": nil, "customer_id=c1&customer_email=ada@example.com": {"P1",
			"P2"}, "customer_id=c2&customer_email=bob@example.com": nil,
		"customer_email=%25": nil, "customer_email=ada_example.com": nil,
	} {
		found := harness.Read[harness.List[harness.Order]](t, c.Get("/v1/orders?"+query))
		var ids []string
		for _, o := range found.Data {
			ids = append(ids, o.OrderID)
		}
		slices.Sort(ids)
		if diff := cmp.Diff(wanted, ids); diff != "" || found.Count == nil || *found.Count != len(wanted) {
			t.Errorf("%s: count %v, %s", query, found.Count, diff)
		}
	}
	for _, key := range []string{"K1", "K2", "K3"} {
		tenant.Approve(key, "P1", 10)
	}
	want(t, c.Refund("K1", "P1", 10), "processed")
	c.Post(harness.AuthorizationPath("K2")+"/revoke", harness.Fields{})
	states := map[string]string{}
	for _, a := range harness.Read[harness.List[harness.Authorization]](t,
		c.Get("/v1/authorizations?case_id=case-7")).Data {
		states[a.OperationID] = a.State
	}
	if diff := cmp.Diff(map[string]string{"K1": "executed", "K2": "revoked", "K3": "open"}, states); diff != "" {
		t.Errorf("approvals of the case: %s", diff)
	}
}

// What a PUT of an order leaves out keeps its value; what may not change does not.
func TestOrders_KeepWhatIsNotSaid(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	c := tenant.Client()
	path := harness.OrderPath("P")
	put := func(body harness.Fields) harness.Order { return harness.Read[harness.Order](t, c.Put(path, body)) }
	first := put(harness.Fields{"currency": "EUR", "captured_cents": 100,
		"customer": harness.Fields{"id": "c1", "email": "ada@example.com", "name": "Ada"}})
	for _, same := range []harness.Fields{{}, {"currency": "EUR"}, {"captured_cents": 100}, {"provider": "ledger"},
		{"customer": nil, "currency": nil, "captured_cents": nil, "provider": nil, "provider_payment_ref": nil}} {
		if diff := cmp.Diff(first, put(same)); diff != "" {
			t.Errorf("%v changed the order: %s", same, diff)
		}
	}
	raised := put(harness.Fields{"captured_cents": 150})
	if raised.CapturedCents != 150 || raised.RefundableCents != 150 || cmp.Diff(first.Customer, raised.Customer) != "" {
		t.Errorf("raised to %+v", raised)
	}
	replaced := put(harness.Fields{"customer": harness.Fields{"name": "Bob"}})
	if replaced.Customer.ID != nil || replaced.Customer.Email != nil || replaced.Customer.Name == nil ||
		*replaced.Customer.Name != "Bob" {
		t.Errorf("the customer was not replaced as a whole: %+v", replaced.Customer)
	}
	unchanged(t, tenant, func() {
		for _, body := range []harness.Fields{{"captured_cents": 149}, {"currency": "USD"},
			{"provider": "stripe", "provider_payment_ref": "pi"},
			{"provider": "simulator", "provider_payment_ref": "p"}} {
			want(t, c.Put(path, body), "order_immutable")
		}
	})
}

// Metrics know routes, codes and layers, and none of the ids, keys and reasons that went through.
func TestMetrics_CarryNoIDs(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	tenant := service.Tenant(t)
	c := tenant.Client()
	tenant.Order("order-unmistakable", 10000)
	tenant.Approve("key-unmistakable", "order-unmistakable", 600)
	for layer, code := range map[string]string{"agent_loop": "ok", "tool_transport": "ok", "layer-unmistakable": ""} {
		c.Do(harness.Request{Method: http.MethodPost, Path: "/v1/refunds",
			Header: http.Header{"Refund-Attempt-Layer": {layer}, "Refund-Attempt": {"2"}},
			Body: harness.JSON(harness.Fields{"operation_id": "key-unmistakable", "order_id": "order-unmistakable",
				"amount_cents": 600, "reason": "reason-unmistakable",
				"metadata": harness.Fields{"m-unmistakable": "v"}})})
		counted := slices.ContainsFunc(service.Servers[0].Metrics(t), func(s harness.Sample) bool {
			return s.Name == "refundd_http_requests_total" && s.Labels["layer"] == layer && s.Labels["code"] == code &&
				s.Labels["route"] == "/v1/refunds"
		})
		if counted != (code != "") {
			t.Errorf("an attempt of layer %s is counted: %t", layer, counted)
		}
	}
	for _, path := range []string{"/v1/refunds/key-unmistakable", "/v1/orders/order-unmistakable",
		"/v1/orders?customer_email=unmistakable", "/path-unmistakable", "/v1/refunds/unmistakable/x"} {
		c.Do(harness.Request{Method: http.MethodGet, Path: path})
	}
	c.Do(harness.Request{Method: "METHODUNMISTAKABLE", Path: "/v1/refunds"})
	text := strings.ToLower(service.Servers[0].MetricsText(t))
	for _, id := range []string{"unmistakable", tenant.ID, tenant.Key} {
		if strings.Contains(text, strings.ToLower(id)) {
			t.Errorf("metrics carry %q", id)
		}
	}
	for _, name := range []string{"refundd_http_request_duration_seconds_bucket", "refundd_batch_size_bucket",
		"refundd_batch_wait_seconds_bucket", "refundd_refunds_total", "refundd_pool_"} {
		if !strings.Contains(text, name) {
			t.Errorf("no metric %s", name)
		}
	}
}
