package blackbox

import (
	"net/http"
	"strings"
	"testing"

	"refundd/test/harness"
)

const webhookTables = `webhook_streams, webhook_events, webhook_endpoints, webhook_deliveries`

// hookPath and eventPath are where a webhook endpoint and an event are; the tenant has as many endpoints as it may
// have.
const (
	hookPath  = "/v1/webhook-endpoints/00000000-0000-7000-8000-000000000001"
	eventPath = "/v1/events/00000000-0000-7000-8000-000000000001"
)

var webhookOperations = []operation{
	{http.MethodPost, "/v1/webhook-endpoints", "/v1/webhook-endpoints", `{"url":"https://shop.example"}`,
		"webhooks:write"},
	{http.MethodGet, "/v1/webhook-endpoints", "/v1/webhook-endpoints?limit=5", "", "read"},
	{http.MethodGet, "/v1/webhook-endpoints/{endpoint_id}", hookPath, "", "read"},
	{http.MethodDelete, "/v1/webhook-endpoints/{endpoint_id}", hookPath, "", "webhooks:write"},
	{http.MethodPost, "/v1/webhook-endpoints/{endpoint_id}/disable", hookPath + "/disable", `{}`, "webhooks:write"},
	{http.MethodPost, "/v1/webhook-endpoints/{endpoint_id}/enable", hookPath + "/enable", `{}`, "webhooks:write"},
	{http.MethodPost, "/v1/webhook-endpoints/{endpoint_id}/rotate", hookPath + "/rotate", `{}`, "webhooks:write"},
	{http.MethodGet, "/v1/webhook-endpoints/{endpoint_id}/deliveries", hookPath + "/deliveries?limit=5", "", "read"},
	{http.MethodGet, "/v1/events", "/v1/events?limit=5", "", "read"},
	{http.MethodGet, "/v1/events/{event_id}", eventPath, "", "read"},
	{http.MethodPost, "/v1/events/{event_id}/redeliver", eventPath + "/redeliver", `{}`, "webhooks:write"},
}

var invalidWebhooks = map[string][]string{
	"POST /v1/webhook-endpoints": {`{}`, `{"url":"ftp://shop.example"}`,
		`{"url":"https://shop.example","event_types":[]}`},
	"GET /v1/webhook-endpoints":                          {"limit=0", "cursor=x", "created_after=x"},
	"GET /v1/webhook-endpoints/{endpoint_id}/deliveries": {"limit=0", "cursor=x", "state=done"},
	"POST /v1/webhook-endpoints/{endpoint_id}/rotate":    {`{"overlap_seconds":604801}`},
	"GET /v1/events":                       {"limit=0", "cursor=x", "type=refund.reserved"},
	"POST /v1/events/{event_id}/redeliver": {`{"endpoint_id":"x"}`},
}

// loadWebhooks makes the endpoint of hookPath, as many more as there may be, and the event of eventPath, of refund K.
func loadWebhooks(t *testing.T, tenant *harness.Tenant) {
	t.Helper()
	tenant.Exec(`INSERT INTO webhook_endpoints (tenant_id, endpoint_id, url, secret, position, disabled_at,
		disabled_because)
		SELECT $1, ('00000000-0000-7000-8000-0000000000' || lpad(i::text, 2, '0'))::uuid, 'https://shop.example',
			decode(repeat('ab', 32), 'hex'), 0,
			now(), 'requested' FROM generate_series(1, 20) AS i WHERE i <> 9 UNION ALL
		SELECT $1, '00000000-0000-7000-8000-000000000099', 'https://shop.example', decode(repeat('ab', 32), 'hex'), 0,
			now(), 'requested'`, tenant.ID)
	tenant.Exec(`INSERT INTO webhook_events (tenant_id, event_id, type, operation_id, settled_at, created_at)
		VALUES ($1, '00000000-0000-7000-8000-000000000001', 'refund.succeeded', 'K', now(), now())`, tenant.ID)
	want(t, tenant.Client().Get("/v1/events"), "200")
}

func (p *provoked) refusedWebhook(o operation, s *harness.Server, c harness.Client) {
	at := func(path string) operation { other := o; other.example = path; return other }
	if strings.Contains(o.path, "{endpoint_id}") || strings.Contains(o.path, "{event_id}") {
		bad := at(strings.Replace(o.example, "000000000001", "x", 1)).request()
		bad.Valid = false
		p.meet(o, s, c, bad, "invalid_request")
		p.meet(o, s, c, at(strings.Replace(o.example, "000000000001", "000000000009", 1)).request(), "not_found")
	}
	if o.method+o.path == "POST/v1/webhook-endpoints" {
		p.meet(o, s, c, o.request(), "too_many_webhook_endpoints")
	}
}
