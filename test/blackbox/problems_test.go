package blackbox

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"refundd/test/harness"
)

// operation is a route of the contract with a request that would be good, for order P and keys K (executed) and L
// (open).
type operation struct {
	method, path string // as the contract writes it
	example      string // of the path, with a good query
	body         string
	scope        string
}

var operations = append([]operation{
	{http.MethodPut, "/v1/orders/{order_id}", "/v1/orders/P", `{"currency":"EUR","captured_cents":10000}`,
		"orders:write"},
	{http.MethodGet, "/v1/orders/{order_id}", "/v1/orders/P", "", "read"},
	{http.MethodGet, "/v1/orders", "/v1/orders?customer_email=ada@example.com", "", "read"},
	{http.MethodPut, "/v1/authorizations/{operation_id}", "/v1/authorizations/L",
		`{"case_id":"case-7","order_id":"P","amount_cents":600,"approved_by":"ada"}`, "authorizations:write"},
	{http.MethodGet, "/v1/authorizations/{operation_id}", "/v1/authorizations/L", "", "read"},
	{http.MethodPost, "/v1/authorizations/{operation_id}/revoke", "/v1/authorizations/L/revoke", `{"reason":"r"}`,
		"authorizations:write"},
	{http.MethodGet, "/v1/authorizations", "/v1/authorizations?case_id=case-7", "", "read"},
	{http.MethodPost, "/v1/refunds", "/v1/refunds", `{"operation_id":"L","order_id":"P","amount_cents":600}`,
		"refunds:write"},
	{http.MethodGet, "/v1/refunds", "/v1/refunds?limit=5", "", "read"},
	{http.MethodGet, "/v1/refunds/{operation_id}", "/v1/refunds/K", "", "read"},
	{http.MethodGet, "/v1/refunds/{operation_id}/events", "/v1/refunds/K/events?limit=5", "", "read"},
	{http.MethodPost, "/v1/refunds/{operation_id}/reconcile", "/v1/refunds/K/reconcile", `{}`, "refunds:write"},
	{http.MethodPost, "/v1/refunds/{operation_id}/resolve", "/v1/refunds/K/resolve",
		`{"outcome":"failed","evidence":"e"}`, "refunds:resolve"},
	{http.MethodPost, "/v1/refund-requests", "/v1/refund-requests",
		`{"case_id":"c","order_id":"P","amount_cents":600,"reason_code":"damaged"}`, "refunds:request"},
	{http.MethodGet, "/v1/escalations", "/v1/escalations?limit=5", "", "read"},
	{http.MethodPost, "/v1/escalations", "/v1/escalations", `{"case_id":"c","trigger":"other"}`, "refunds:request"},
	{http.MethodGet, "/v1/escalations/{escalation_id}", casePath, "", "read"},
	{http.MethodPost, "/v1/escalations/{escalation_id}/approve", casePath + "/approve", `{}`, "authorizations:write"},
	{http.MethodPost, "/v1/escalations/{escalation_id}/decline", casePath + "/decline", `{}`, "authorizations:write"},
	{http.MethodPost, "/v1/escalations/{escalation_id}/take", casePath + "/take", `{"owner":"ada"}`,
		"authorizations:write"},
	{http.MethodGet, "/v1/refund-totals/open", "/v1/refund-totals/open", "", "read"},
	{http.MethodGet, "/v1/refund-totals",
		"/v1/refund-totals?created_after=2026-01-01T00:00:00Z&created_before=2026-01-02T00:00:00Z", "", "read"},
	{http.MethodGet, "/v1/reconciliation-runs", "/v1/reconciliation-runs?limit=5", "", "read"},
	{http.MethodGet, "/v1/audits", "/v1/audits?limit=5", "", "read"},
	{http.MethodGet, "/v1/me", "/v1/me", "", "read"},
}, webhookOperations...)

// casePath is where an escalation of an operation is, which no decision fits.
const casePath = "/v1/escalations/00000000-0000-7000-8000-000000000001"

func (o operation) request() harness.Request {
	r := harness.Request{Method: o.method, Path: o.example, Valid: true}
	if o.body != "" {
		r.Body = []byte(o.body)
	}
	return r
}

// with is the request with another body or query.
func (o operation) with(body, query string) harness.Request {
	r := o.request()
	r.Valid = false
	if o.body != "" {
		r.Body = []byte(body)
		return r
	}
	path, _, _ := strings.Cut(r.Path, "?")
	r.Path = path + "?" + query
	return r
}

// provoked is which errors were met, and the logs that must know them.
type provoked struct {
	t    *testing.T
	mu   sync.Mutex
	seen map[string]bool
}

// meet sends a request that must be refused with a code, and finds the log line of the answer's reference.
func (p *provoked) meet(o operation, s *harness.Server, c harness.Client, r harness.Request, code string) {
	p.t.Helper()
	c.URL, c.Faulty = s.URL, code == "internal"
	a := c.Do(r)
	if got := a.Code(); got != code {
		p.t.Errorf("%s %s %.100s: %d %s, want %s: %s", r.Method, r.Path, r.Body, a.Status, got, code, a.Body)
		return
	}
	ref := harness.Read[harness.Problem](p.t, a).DiagnosticRef
	if _, err := s.Logs.Await(10*time.Second, nil, ref, `"code":"`+code+`"`); err != nil {
		p.t.Errorf("%s: no log line of %s: %v", code, ref, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[fmt.Sprintf("%s %s %d %s", o.method, o.path, a.Status, code)] = true
}

// elsewhere tells the errors that only a provider, a full queue or a broken process brings about: other tests meet
// them.
func elsewhere(method, path string, code any) bool {
	if path == "/v1/webhooks/stripe" || method == http.MethodPut && path == "/v1/orders/{order_id}" &&
		code == "currency_mismatch" {
		return true // they need Stripe
	}
	switch code {
	case "operation_in_progress", "refund_declined", "operation_needs_attention", "provider_disagrees":
		return true // they need a provider
	case "provider_unavailable":
		// of an order whose payment is to be read
		return strings.HasSuffix(path, "/resolve") || method == http.MethodPut
	case "overloaded":
		return path != "/v1/refunds" || method != http.MethodPost // only refunds wait in a queue
	case "internal":
		return !strings.HasPrefix(path, "/v1/")
	case "database_unavailable":
		return !strings.HasPrefix(path, "/v1/") && path != "/readyz"
	}
	return false
}

func TestA51_EveryErrorOfEveryRoute_IsTheDocumentedProblem(t *testing.T) {
	t.Parallel()
	service := harness.New(t, "--request-timeout", "20s")
	p := &provoked{t: t, seen: map[string]bool{}}
	tenant := service.Tenant(t)
	c := tenant.Client()
	tenant.Load([]string{"P", "Q"}, 10000)
	tenant.Approve("K", "P", 600)
	tenant.Approve("L", "P", 600)
	tenant.Exec(`INSERT INTO escalations (tenant_id, escalation_id, subject, trigger, queue, operation_id,
		policy_version, opened_by, due_at, state, closed_at, closed_by)
		VALUES ($1, '00000000-0000-7000-8000-000000000001', 'operation', 'needs_attention', 'refunds', 'K', 'none',
			'refundd', now(), 'open', NULL, NULL),
			($1, '00000000-0000-7000-8000-000000000002', 'operation', 'needs_attention', 'refunds', 'K', 'none',
				'refundd', now(), 'closed', now(), 'refundd')`, tenant.ID)
	want(t, c.Refund("K", "P", 600), "processed")
	loadWebhooks(t, tenant)
	p.refusedBeforeAnyRow(service, tenant)
	p.refusedByRows(service, tenant)
	p.limited(service, tenant)
	p.late(service, tenant)
	p.broken(service, tenant)
	p.out(service, tenant)
	p.complete()
	service.Audit(t)
}

func (p *provoked) refusedBeforeAnyRow(service *harness.Service, tenant *harness.Tenant) {
	s, c := service.Servers[0], tenant.Client()
	keys := map[string]string{"read": tenant.NewKey("refunds:write"), "": tenant.NewKey("read")}
	for _, o := range operations {
		p.meet(o, s, c.With(""), o.request(), "unauthenticated")
		p.meet(o, s, c.With("wrong"), o.request(), "unauthenticated")
		other := keys[o.scope]
		if other == "" {
			other = keys[""]
		}
		p.meet(o, s, c.With(other), o.request(), "forbidden")
		if o.body == "" {
			p.meet(o, s, c, o.with("", "limit=%zz"), "malformed_request")
		}
		if o.body == "" {
			continue
		}
		for _, body := range []string{"{", "[]", `{"x":1}`} {
			p.meet(o, s, c, o.with(body, ""), "malformed_request")
		}
		p.meet(o, s, c, o.with(`{"reason":"`+strings.Repeat("x", 64<<10)+`"}`, ""), "request_too_large")
		for _, header := range []http.Header{
			{"Content-Type": nil}, {"Content-Type": {"text/plain"}}, {"Content-Type": {"application/json; charset=latin1"}},
			{"Content-Type": {"application/x-www-form-urlencoded"}}, {"Content-Encoding": {"gzip"}}, {"Content-Type": {"application/json", "application/json"}},
		} {
			r := o.with(o.body, "")
			r.Header = header
			p.meet(o, s, c, r, "unsupported_media_type")
		}
	}
	for path, methods := range map[string][]string{
		"/v1/orders/P": {"POST", "DELETE", "PATCH", "OPTIONS"}, "/v1/orders": {"POST", "PUT",
			"DELETE"}, "/v1/authorizations/K": {"POST", "DELETE", "PATCH"},
		"/v1/authorizations/K/revoke": {"GET", "PUT", "DELETE"}, "/v1/authorizations": {"POST",
			"PUT"}, "/v1/refunds": {"PUT", "DELETE", "PATCH"},
		"/v1/refunds/K": {"POST", "PUT", "DELETE", "PATCH", "PROPFIND"}, "/v1/refunds/K/events": {"POST",
			"DELETE"}, "/healthz": {"POST"}, "/readyz": {"PUT"}, "/openapi.yaml": {"DELETE"},
	} {
		for _, method := range methods {
			p.meet(operation{method: method, path: path}, s, c, harness.Request{Method: method, Path: path},
				"method_not_allowed")
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v2/refunds", "/v1/refund", "/v1/refunds/", "/v1/refunds/K/",
		"/v1/refunds/K/event", "/v1/refunds/K/events/1",
		"/v1/orders/", "/v1/orders/P/", "/V1/refunds", "//v1/refunds", "/v1//refunds", "/v1/authorizations/K/revoked", "/metrics", "/debug/pprof/", "/healthz/"} {
		p.meet(operation{path: path}, s, c, harness.Request{Method: http.MethodGet, Path: path}, "not_found")
	}
}

// invalid are values out of range: for each operation bodies or queries.
var invalid = map[string][]string{
	"PUT /v1/orders/{order_id}": {`{"captured_cents":0}`, `{"currency":"eur"}`,
		`{"provider":"paypal"}`, `{"customer":{"email":""}}`},
	"GET /v1/orders": {"", "customer_email=", "customer_id=" + strings.Repeat("x", 256),
		"customer_email=a&customer_email=b"},
	"PUT /v1/authorizations/{operation_id}": {`{}`,
		`{"case_id":"","order_id":"P","amount_cents":600,"approved_by":"ada"}`,
		`{"case_id":"c","order_id":"P","amount_cents":600,"approved_by":"ada","expires_at":"tomorrow"}`},
	"POST /v1/authorizations/{operation_id}/revoke": {`{"reason":"` + strings.Repeat("x", 1001) + `"}`},
	"GET /v1/authorizations":                        {"", "case_id=", "case_id=" + strings.Repeat("x", 256)},
	"POST /v1/refunds": {`{"operation_id":"L"}`,
		`{"operation_id":"L","order_id":"","amount_cents":1}`, `{"operation_id":"L","order_id":"P","amount_cents":0}`,
		`{"operation_id":"/","order_id":"P","amount_cents":600}`},
	"GET /v1/refunds": {"limit=0", "limit=101", "limit=x", "limit=1.5", "limit=-1",
		"limit=", "cursor=x", "state=revoked", "state=SUCCEEDED", "order_id=%20", "provider_refund_id=",
		"diagnostic_ref=", "created_after=yesterday", "created_before=2026-01-01", "limit=1&limit=2"},
	"POST /v1/refunds/{operation_id}/resolve": {`{}`, `{"outcome":"pending","evidence":"e"}`,
		`{"outcome":"failed"}`, `{"outcome":"failed","evidence":""}`},
	"POST /v1/refund-requests": {`{}`,
		`{"case_id":"c","order_id":"P","amount_cents":600,"reason_code":"Damaged"}`,
		`{"case_id":"c","order_id":"P","amount_cents":0,"reason_code":"damaged"}`,
		`{"case_id":"c","order_id":"P","amount_cents":1,"reason_code":"damaged","categories":["rude"]}`},
	"GET /v1/refund-totals/open": {"state=pending"},
	"GET /v1/refund-totals": {"", "created_after=2026-01-01T00:00:00Z",
		"created_after=2026-01-02T00:00:00Z&created_before=2026-01-01T00:00:00Z",
		"created_after=2025-01-01T00:00:00Z&created_before=2026-01-01T00:00:00Z", "created_after=x&created_before=y",
		"created_after=2026-01-01T00:00:00Z&created_before=2026-01-02T00:00:00Z&unit=minute"},
	"GET /v1/reconciliation-runs": {"limit=0", "cursor=x", "created_after=x"},
	"GET /v1/audits":              {"limit=0", "cursor=x", "created_after=x"},
	"GET /v1/me":                  {"key=1"},
	"GET /v1/escalations": {"limit=0", "cursor=x", "state=done", "queue=", "created_after=x",
		"state=open&sort=created_at",
		"state=closed&sort=due_at"},
	"POST /v1/escalations": {`{}`, `{"case_id":"c","trigger":"bored"}`,
		`{"case_id":"","trigger":"other"}`},
	"POST /v1/escalations/{escalation_id}/approve": {`{"decided_by":""}`},
	"POST /v1/escalations/{escalation_id}/decline": {`{"note":""}`},
	"POST /v1/escalations/{escalation_id}/take":    {`{}`, `{"owner":""}`},
	"GET /v1/refunds/{operation_id}/events": {"limit=0", "limit=101", "cursor=x", "created_after=x",
		"created_before=x"},
}

func (p *provoked) refusedByRows(service *harness.Service, tenant *harness.Tenant) {
	s, c := service.Servers[0], tenant.Client()
	at := func(o operation, path string) operation { o.example = path; return o }
	for _, o := range operations {
		for _, text := range append(invalid[o.method+" "+o.path], invalidWebhooks[o.method+" "+o.path]...) {
			p.meet(o, s, c, o.with(text, text), "invalid_request")
		}
		if bad := strings.NewReplacer("/L", "/~", "/K", "/~", "/P", "/%20").Replace(o.example); bad != o.example {
			p.meet(o, s, c, at(o, bad).with(o.body, ""), "invalid_request")
		}
		nowhere := strings.NewReplacer("/L", "/N", "/K", "/N", "/P", "/N").Replace(o.example)
		switch o.path {
		case "/v1/orders/{order_id}":
			if o.method == http.MethodGet {
				p.meet(o, s, c, at(o, nowhere).request(), "order_not_found")
			}
		case "/v1/authorizations/{operation_id}", "/v1/authorizations/{operation_id}/revoke":
			if o.method != http.MethodPut {
				p.meet(o, s, c, at(o, nowhere).request(), "authorization_not_found")
			}
		case "/v1/refunds/{operation_id}", "/v1/refunds/{operation_id}/events", "/v1/refunds/{operation_id}/reconcile",
			"/v1/refunds/{operation_id}/resolve":
			p.meet(o, s, c, at(o, nowhere).request(), "refund_not_found")
		}
		if strings.HasPrefix(o.path, "/v1/escalations/") {
			p.meet(o, s, c, at(o, strings.Replace(o.example, "000000000001", "x", 1)).with(o.body, ""),
				"invalid_request")
			p.meet(o, s, c, at(o, strings.Replace(o.example, "000000000001", "000000000009", 1)).request(), "not_found")
			if o.method == http.MethodPost {
				p.meet(o, s, c, at(o, strings.Replace(o.example, "000000000001", "000000000002", 1)).request(),
					"escalation_not_approvable")
			}
		}
		p.refusedWebhook(o, s, c)
		if o.path == "/v1/refund-requests" {
			p.meet(o, s, c, o.with(strings.Replace(o.body, `"P"`, `"nowhere"`, 1), ""), "order_not_found")
		}
		if strings.HasSuffix(o.path, "/resolve") {
			p.meet(o, s, c, o.request(), "resolution_conflict")
		}
	}
	p.refusedOrders(s, c)
	p.refusedApprovals(s, c)
	p.refusedRefunds(s, tenant)
	p.tooMany(s, tenant)
}

func (p *provoked) refusedOrders(s *harness.Server, c harness.Client) {
	put := operations[0]
	for _, body := range []string{`{"currency":"USD"}`, `{"captured_cents":9999}`,
		`{"provider":"stripe","provider_payment_ref":"pi"}`} {
		p.meet(put, s, c, put.with(body, ""), "order_immutable")
	}
	put.example = "/v1/orders/S"
	body := `{"currency":"EUR","captured_cents":5,"provider":"simulator","provider_payment_ref":"pay-a51"}`
	c.Do(put.with(body, ""))
	put.example = "/v1/orders/T"
	p.meet(put, s, c, put.with(body, ""), "payment_already_registered")
	for _, body := range []string{`{}`, `{"currency":"EUR"}`, `{"captured_cents":1}`,
		`{"currency":"EUR","captured_cents":null}`} {
		p.meet(put, s, c, put.with(body, ""), "invalid_request")
	}
}

func (p *provoked) refusedApprovals(s *harness.Server, c harness.Client) {
	put, revoke := operations[3], operations[5]
	p.meet(put, s, c, put.with(strings.Replace(put.body, "600", "601", 1), ""), "operation_id_conflict")
	put.example = "/v1/authorizations/N"
	p.meet(put, s, c, put.with(strings.Replace(put.body, `"P"`, `"nowhere"`, 1), ""), "order_not_found")
	p.meet(put, s, c, put.with(strings.Replace(put.body, "{", `{"currency":"USD",`, 1), ""), "currency_mismatch")
	put.example = "/v1/authorizations/W"
	c.Do(put.request())
	revoke.example = "/v1/authorizations/W/revoke"
	c.Do(revoke.request())
	p.meet(put, s, c, put.request(), "authorization_revoked")
	revoke.example = "/v1/authorizations/K/revoke"
	p.meet(revoke, s, c, revoke.request(), "already_executed")
}

func (p *provoked) refusedRefunds(s *harness.Server, tenant *harness.Tenant) {
	c, post := tenant.Client(), operations[7]
	tenant.Load(nil, 1, harness.Approved{OperationID: "X", OrderID: "P", Cents: 600},
		harness.Approved{OperationID: "big", OrderID: "P", Cents: 9999},
		harness.Approved{OperationID: "sim", OrderID: "S", Cents: 5})
	tenant.Exec(`UPDATE refund_authorizations SET expires_at = now() WHERE operation_id = 'X'`)
	for _, r := range []struct{ key, order, cents, more, code string }{
		{"K", "P", "601", "", "operation_id_conflict"},
		{"N", "P", "600", "", "authorization_not_found"},
		{"L", "nowhere", "600", "", "order_not_found"},
		{"L", "P", "601", "", "authorization_mismatch"},
		{"X", "P", "600", "", "authorization_expired"},
		{"W", "P", "600", "", "authorization_revoked"},
		{"big", "P", "9999", "", "amount_exceeds_refundable"},
		{"L", "P", "600", `,"currency":"USD"`, "currency_mismatch"},
		{"sim", "S", "5", "", "provider_unavailable"},
	} {
		body := fmt.Sprintf(`{"operation_id":%q,"order_id":%q,"amount_cents":%s%s}`, r.key, r.order, r.cents, r.more)
		p.meet(post, s, c, post.with(body, ""), r.code)
	}
	p.meet(post, s, c, post.with(`{"order_id":"P","amount_cents":600}`, ""), "idempotency_key_required")
}

func (p *provoked) tooMany(s *harness.Server, tenant *harness.Tenant) {
	tenant.Exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, customer_email) SELECT $1,
		'many-' || i, 'EUR', 1, 'Many@Example.com' FROM generate_series(1, 201) AS i`, tenant.ID)
	tenant.Exec(`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency,
		approved_by) SELECT $1, 'many-' || i, 'many', 'P', 1, 'EUR', 'ada' FROM generate_series(1, 201) AS i`,
		tenant.ID)
	p.meet(operations[2], s, tenant.Client(), operations[2].with("", "customer_email=many@example.COM"),
		"too_many_matches")
	p.meet(operations[6], s, tenant.Client(), operations[6].with("", "case_id=many"), "too_many_matches")
}

func (p *provoked) limited(service *harness.Service, tenant *harness.Tenant) {
	p.t.Helper()
	limited := harness.Serve(p.t, service.DB.ServiceURL, "--rate-limit", "1")
	c := tenant.Client()
	c.URL = limited.URL
	want(p.t, c.Get("/v1/refunds/K"), "200")
	together(len(operations),
		func(i int) { p.meet(operations[i], limited, c, operations[i].request(), "rate_limited") })
	limited.Kill()
}

const lockAll = `LOCK TABLE orders, refund_authorizations, refund_operations, ledger_transfers, operation_events, refund_requests, escalations, reconciliation_runs, audits, tenants, ` + webhookTables + ` IN ACCESS EXCLUSIVE MODE`

func (p *provoked) late(service *harness.Service, tenant *harness.Tenant) {
	p.t.Helper()
	hurried := harness.Serve(p.t, service.DB.ServiceURL, "--request-timeout", "700ms", "--max-queue", "1")
	release := service.Hold(p.t, lockAll)
	together(len(operations), func(i int) {
		p.meet(operations[i], hurried, tenant.Client(), operations[i].request(), "deadline_exceeded")
	})
	codes := make([]string, 12)
	together(len(codes), func(i int) {
		c := tenant.Client()
		c.URL = hurried.URL
		codes[i] = c.Do(operations[7].request()).Code()
	})
	i := slices.Index(codes, "overloaded")
	if i < 0 {
		p.t.Errorf("no request of twelve found the queue of one full: %v", codes)
	}
	p.seen["POST /v1/refunds 503 overloaded"] = i >= 0
	release()
	hurried.Kill()
}

func (p *provoked) broken(service *harness.Service, tenant *harness.Tenant) {
	tables := `orders, refund_authorizations, refund_operations, ledger_transfers, operation_events, refund_requests, escalations, reconciliation_runs, audits, tenants, ` + webhookTables
	tenant.Exec(`REVOKE SELECT, INSERT ON ` + tables + ` FROM refundd_service`)
	together(len(operations), func(i int) {
		p.meet(operations[i], service.Servers[0], tenant.Client(), operations[i].request(), "internal")
	})
	tenant.Exec(`GRANT SELECT, INSERT ON ` + tables + ` TO refundd_service`)
}

func (p *provoked) out(service *harness.Service, tenant *harness.Tenant) {
	p.t.Helper()
	end := service.Outage(p.t)
	all := append(slices.Clone(operations), operation{http.MethodGet, "/readyz", "/readyz", "", ""})
	together(len(all), func(i int) {
		p.meet(all[i], service.Servers[0], tenant.Client(), all[i].request(), "database_unavailable")
	})
	if a := tenant.Client().Get("/healthz"); a.Status != http.StatusOK {
		p.t.Errorf("/healthz asks the database: %d", a.Status)
	}
	end()
	for began := time.Now(); tenant.Client().Get("/readyz").Status != http.StatusOK; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			p.t.Fatal("the service does not recover")
		}
	}
}

// complete fails the test where the contract has an error that was not met.
func (p *provoked) complete() {
	doc, err := harness.Document()
	if err != nil {
		p.t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status, response := range op.Responses.Map() {
				media := response.Value.Content.Get("application/problem+json")
				if media == nil {
					continue
				}
				for _, code := range codesOf(media.Schema.Value.AllOf[0].Value) {
					met := fmt.Sprintf("%s %s %s %s", method, path, status, code)
					if !p.seen[met] && !elsewhere(method, path, code) {
						p.t.Errorf("the contract has it, nothing here meets it: %s", met)
					}
				}
			}
		}
	}
}

// codesOf are the codes that stand beside a response's reference to Problem, in alternatives, too.
func codesOf(schema *openapi3.Schema) []any {
	var codes []any
	if code := schema.Properties["code"]; code != nil {
		codes = code.Value.Enum
	}
	for _, alternative := range schema.OneOf {
		codes = append(codes, codesOf(alternative.Value)...)
	}
	return codes
}
