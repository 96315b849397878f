package growth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/test/harness"
	"refundd/test/stripefake"
)

// start serves a database with all that a service does by itself.
func start(t *testing.T, p *plans) *harness.Service {
	t.Helper()
	stripe := harness.NewStripe(t)
	s := &harness.Service{DB: p.DB, Stripe: stripe, Flags: append(stripe.Flags(), "--policy", harness.PolicyFile(t),
		"--pool-size", "3", "--webhook-allow-private", "--reconcile-every", "300ms", "--backoff-min", "10ms", "--listing-lag", "10ms")}
	s.AddServer(t)
	return s
}

// tourist calls every route of one tenant, again and again.
type tourist struct {
	*harness.Tenant
	t       *testing.T
	hooks   string // where a receiver of webhooks is,
	heard   *atomic.Int64
	busy    string // an order, a customer and a case of which there will be much
	visited map[string]bool
	round   int
}

func newTourist(t *testing.T, s *harness.Service) *tourist {
	t.Helper()
	heard := &atomic.Int64{}
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if heard.Add(1)%5 == 0 { // it comes again
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(func() { hooks.CloseClientConnections(); hooks.Close() })
	return &tourist{Tenant: s.Tenant(t), t: t, hooks: hooks.URL, heard: heard, busy: "busy", visited: map[string]bool{}}
}

// call sends a request to a route: its method, its template and what stands for the template's braces. Any answer but
// those of success fails the test.
func (u *tourist) call(route, id, query string, body any) harness.Answer {
	u.t.Helper()
	method, template, _ := strings.Cut(route, " ")
	path := template
	if open := strings.IndexByte(template, '{'); open >= 0 {
		path = template[:open] + id + template[strings.IndexByte(template, '}')+1:]
	}
	r := harness.Request{Method: method, Path: path + query, Valid: true}
	if body != nil {
		r.Body = harness.JSON(body)
	}
	a := u.Client().Do(r)
	for tries := 0; a.Status == http.StatusConflict && tries < 50; tries++ { // the service's own reconciliation has it
		time.Sleep(100 * time.Millisecond)
		a = u.Client().Do(r)
	}
	if a.Status >= 300 {
		u.t.Fatalf("%s %s: %d %s", method, r.Path, a.Status, a.Body)
	}
	u.visited[route] = true
	return a
}

// member is a text of an answer.
func (u *tourist) member(a harness.Answer, name string) string {
	u.t.Helper()
	var members map[string]any
	if err := json.Unmarshal(a.Body, &members); err != nil {
		u.t.Fatal(err)
	}
	text, ok := members[name].(string)
	if !ok {
		u.t.Fatalf("no %s in %s", name, a.Body)
	}
	return text
}

// go round once. What it makes has names of its own.
func (u *tourist) goRound() {
	u.t.Helper()
	u.round++
	name := func(of string) string { return fmt.Sprintf("%s-%d", of, u.round) }
	u.books(name)
	u.refunds(name)
	u.people(name)
	u.webhooks(name)
	u.service()
}

type fields = harness.Fields

func (u *tourist) books(name func(string) string) {
	order := name("order")
	for _, captured := range []int{90000, 100000} {
		u.call("PUT /v1/orders/{order_id}", order, "", fields{"currency": "EUR", "captured_cents": captured,
			"customer": fields{"id": name("customer"), "email": name("customer") + "@example.com", "name": "C"}})
	}
	u.call("GET /v1/orders/{order_id}", order, "", nil)
	u.call("GET /v1/orders/{order_id}", u.busy, "", nil)
	for _, query := range []string{"customer_id=" + name("customer"), "customer_email=" + name("customer") +
		"@example.com",
		"customer_id=" + name("customer") + "&customer_email=" + name("customer") + "@example.com"} {
		u.call("GET /v1/orders", "", "?"+query, nil)
	}
	u.Pay(harness.Payment{OrderID: name("paid"), Cents: 100000})
	for i, o := range []string{order, name("paid"), name("paid"), name("paid"), u.busy} {
		u.call("PUT /v1/authorizations/{operation_id}", name(fmt.Sprint("op-", i)), "",
			fields{"case_id": name("case"), "order_id": o, "amount_cents": 100, "approved_by": "ada"})
	}
	u.call("PUT /v1/authorizations/{operation_id}", name("revoked"), "",
		fields{"case_id": name("case"), "order_id": order, "amount_cents": 100, "approved_by": "ada"})
	for range 2 {
		u.call("POST /v1/authorizations/{operation_id}/revoke", name("revoked"), "", fields{})
	}
	u.call("GET /v1/authorizations/{operation_id}", name("op-0"), "", nil)
	u.call("GET /v1/authorizations", "", "?case_id="+name("case"), nil)
}

func (u *tourist) refund(id, order string) harness.Answer {
	u.t.Helper()
	return u.call("POST /v1/refunds", "", "", fields{"operation_id": id, "order_id": order, "amount_cents": 100})
}

func (u *tourist) refunds(name func(string) string) {
	stripe := u.Service.Stripe
	u.refund(name("op-0"), name("order"))
	u.refund(name("op-0"), name("order")) // its replay
	u.refund(name("op-4"), u.busy)
	paid := u.refund(name("op-1"), name("paid"))
	u.refund(name("op-1"), name("paid"))
	stripe.Turn("pending", "succeeded", time.Hour)
	u.refund(name("op-2"), name("paid"))
	stripe.Turn("succeeded", "", 0)
	refundID := stripe.Of(u.ID, name("op-2"))[0].ID
	u.call("POST /v1/refunds/{operation_id}/reconcile", name("op-2"), "", nil)
	stripe.Settle(refundID, "succeeded", "")
	u.hint(refundID)
	u.lost(name("op-3"), name("paid"))

	ref := paid.Header.Get("Request-Id")
	u.call("GET /v1/refunds/{operation_id}", name("op-1"), "", nil)
	for _, query := range []string{"", "?limit=3", "?limit=3&cursor="} {
		if strings.HasSuffix(query, "=") {
			query += u.member(u.call("GET /v1/refunds/{operation_id}/events", name("op-1"), "?limit=1", nil),
				"next_cursor")
		}
		u.call("GET /v1/refunds/{operation_id}/events", name("op-1"), query, nil)
	}
	u.lists("GET /v1/refunds", "", "order_id="+u.busy, "order_id="+name("order"), "state=succeeded", "state=pending",
		"state=needs_attention", "order_id="+name("paid")+"&state=failed", "created_after=2020-01-01T00:00:00Z",
		"created_before=2099-01-01T00:00:00Z", "provider_refund_id="+refundID, "diagnostic_ref="+ref)
	u.call("GET /v1/refund-totals/open", "", "", nil)
	now := time.Now().UTC()
	u.call("GET /v1/refund-totals", "", "?created_after="+now.Add(-time.Hour).Format(time.RFC3339)+
		"&created_before="+now.Add(time.Hour).Format(time.RFC3339), nil)
}

// hint is Stripe's event of a refund.
func (u *tourist) hint(refundID string) {
	u.t.Helper()
	body := u.Service.Stripe.Event("refund.updated", refundID, false)
	if status := stripefake.Deliver(u.Service.Servers[0].URL, body, harness.StripeSecret); status != http.StatusOK {
		u.t.Fatalf("an event of %s: %d", refundID, status)
	}
	u.visited["POST /v1/webhooks/stripe"] = true
}

// lost is a refund of which nobody knows what became of it, until a person decides.
func (u *tourist) lost(id, order string) {
	u.t.Helper()
	stripe := u.Service.Stripe
	stripe.Fault("lookup_down")
	stripe.Fault("error_before")
	u.refund(id, order)
	u.Exec(`UPDATE refund_operations SET state = 'needs_attention', failure_code = 'outcome_overdue',
		lease_until = '-infinity', next_check_at = 'infinity', last_send_ended = now() - interval '1 hour'
		WHERE tenant_id = $1 AND operation_id = $2`, u.ID, id)
	stripe.Heal()
	for range 2 {
		u.call("POST /v1/refunds/{operation_id}/resolve", id, "",
			fields{"outcome": "failed", "evidence": "T-77", "override": true})
	}
}

// lists reads the first two pages of three.
func (u *tourist) lists(route, id string, queries ...string) {
	u.t.Helper()
	for _, query := range append(queries, "") {
		a := u.call(route, id, "?limit=3&"+query, nil)
		var page struct {
			Next *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(a.Body, &page); err != nil {
			u.t.Fatal(err)
		}
		if page.Next != nil {
			u.call(route, id, "?limit=3&"+query+"&cursor="+*page.Next, nil)
		}
	}
}

func (u *tourist) people(name func(string) string) {
	wish := func(of, reason string) fields {
		return fields{"case_id": name(of), "order_id": name("order"), "amount_cents": 50, "reason_code": reason}
	}
	u.call("POST /v1/refund-requests", "", "?preview=true", wish("wish", "damaged"))
	for range 2 {
		u.call("POST /v1/refund-requests", "", "", wish("wish", "damaged"))
	}
	approve := u.member(u.call("POST /v1/refund-requests", "", "", wish("odd", "odd")), "escalation_id")
	decline := u.member(u.call("POST /v1/refund-requests", "", "", wish("rude", "odd")), "escalation_id")
	u.call("POST /v1/escalations", "", "",
		fields{"case_id": name("case"), "trigger": "other", "order_id": name("order")})
	u.call("POST /v1/escalations/{escalation_id}/take", approve, "", fields{"owner": "ada"})
	u.call("GET /v1/escalations/{escalation_id}", approve, "", nil)
	other := *u.Tenant
	other.Key = u.NewKey(harness.AllScopes)
	mine := u.Tenant
	u.Tenant = &other // nobody approves what he asked for
	u.call("POST /v1/escalations/{escalation_id}/approve", approve, "", fields{"decided_by": "ada"})
	u.call("POST /v1/escalations/{escalation_id}/decline", decline, "", fields{})
	u.Tenant = mine
	u.lists("GET /v1/escalations", "", "queue=refunds", "state=open", "queue=refunds&state=open", "state=approved")
}

func (u *tourist) webhooks(name func(string) string) {
	made := u.call("POST /v1/webhook-endpoints", "", "", fields{"url": u.hooks})
	id := u.member(made, "endpoint_id")
	heard := u.heard.Load()
	for i := range 6 {
		u.call("PUT /v1/authorizations/{operation_id}", name(fmt.Sprint("told-", i)), "",
			fields{"case_id": name("told"), "order_id": name("order"), "amount_cents": 1, "approved_by": "ada"})
		u.call("POST /v1/refunds", "", "",
			fields{"operation_id": name(fmt.Sprint("told-", i)), "order_id": name("order"),
				"amount_cents": 1})
	}
	u.await("a message", func() bool { return u.heard.Load() >= heard+6 })
	u.lists("GET /v1/webhook-endpoints", "")
	u.call("GET /v1/webhook-endpoints/{endpoint_id}", id, "", nil)
	u.lists("GET /v1/webhook-endpoints/{endpoint_id}/deliveries", id)
	u.lists("GET /v1/events", "", "type=refund.succeeded")
	event := u.newestEvent()
	u.call("GET /v1/events/{event_id}", event, "", nil)
	u.call("POST /v1/events/{event_id}/redeliver", event, "", nil)
	for _, act := range []string{"rotate", "disable", "enable"} {
		u.call("POST /v1/webhook-endpoints/{endpoint_id}/"+act, id, "", nil)
	}
	u.call("DELETE /v1/webhook-endpoints/{endpoint_id}", id, "", nil)
}

func (u *tourist) newestEvent() string {
	u.t.Helper()
	var id string
	err := u.Service.DB.Owner.QueryRow(u.t.Context(), `SELECT event_id::text FROM webhook_events WHERE tenant_id = $1
		AND position IS NOT NULL ORDER BY position DESC LIMIT 1`, u.ID).Scan(&id)
	if err != nil {
		u.t.Fatal(err)
	}
	return id
}

// service is what is not of a tenant.
func (u *tourist) service() {
	u.lists("GET /v1/reconciliation-runs", "")
	u.lists("GET /v1/audits", "")
	u.call("GET /v1/me", "", "", nil)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml", "/"} {
		u.call("GET "+path, "", "", nil)
		u.call("HEAD "+path, "", "", nil)
	}
	u.Service.Servers[0].MetricsText(u.t)
}

func (u *tourist) await(what string, done func() bool) {
	u.t.Helper()
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			u.t.Fatalf("%s does not come", what)
		}
	}
}
