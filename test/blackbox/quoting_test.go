package blackbox

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/test/harness"
)

// quote lets the database answer whatever is asked of its tables with an error that quotes a secret in every field, by
// a row policy of the owner's. It takes the SQLSTATE, and the tables that are spared.
const quote = `
	CREATE OR REPLACE FUNCTION quote_secret() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION '` + harness.Canary + `-message' USING ERRCODE = '%[1]s',
			DETAIL = '` + harness.Canary + `-detail',
			HINT = '` + harness.Canary + `-hint', TABLE = '` + harness.Canary + `-table',
			COLUMN = '` + harness.Canary + `-column', CONSTRAINT = '` + harness.Canary + `-constraint';
	END $$;
	DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT c.oid FROM pg_class c WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
			AND relname NOT IN (%[2]s) LOOP
			EXECUTE format('ALTER TABLE %%s ENABLE ROW LEVEL SECURITY', t);
			EXECUTE format('CREATE POLICY quoting ON %%s USING (quote_secret()) WITH CHECK (quote_secret())', t);
		END LOOP;
	END $$`

const quoteNoMore = `
	DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT polrelid FROM pg_policy WHERE polname = 'quoting' LOOP
			EXECUTE format('DROP POLICY quoting ON %s', t);
			EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', t);
		END LOOP;
	END $$`

// What the database says is for engineers who ask the database: on every route, whatever the SQLSTATE, nothing of it is
// told.
func TestA50_WhatTheDatabaseQuotes_NeverComesOut(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	server := harness.ServeIn(t, service.CanaryURL(t), []string{
		"PGPASSFILE=/" + harness.Canary, "AWS_SECRET_ACCESS_KEY=" + harness.Canary,
		"HTTPS_PROXY=http://" + harness.Canary + "@127.0.0.1:1",
	})
	service.Servers = []*harness.Server{server}
	tenant := service.Tenant(t)
	routes := quotingRoutes(t, tenant)
	c := tenant.Client()
	c.Faulty = true
	failed := make([]bool, len(routes))
	metrics := ""
	const keys = `'schema_migrations', 'api_keys', 'tenants'`
	for _, fault := range []struct{ state, spared string }{
		{"P0001", keys}, {"22P02", keys}, {"23505", keys}, {"42501", keys}, {"55000", keys}, {"XX000",
			keys}, {"57014", keys},
		{"P0001", `'schema_migrations'`},
	} {
		tenant.Exec(fmt.Sprintf(quote, fault.state, fault.spared))
		together(len(routes), func(i int) {
			if a := c.Do(routes[i].request()); a.Status >= http.StatusInternalServerError {
				failed[i] = true
			}
		})
		metrics += server.MetricsText(t)
		tenant.Exec(quoteNoMore)
	}
	for i, r := range routes {
		if !failed[i] {
			t.Errorf("%s %s never met the database's error", r.method, r.example)
		}
	}
	want(t, c.Get(harness.RefundPath("K")), "200")
	var cases string
	err := service.DB.Owner.QueryRow(t.Context(), `SELECT concat((SELECT jsonb_agg(to_jsonb(x)) FROM escalations x),
		(SELECT jsonb_agg(to_jsonb(x)) FROM refund_requests x),
		(SELECT jsonb_agg(to_jsonb(x)) FROM webhook_events x))`).Scan(&cases)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"the log": server.Logs.Text(), "metrics": metrics, "rows": tenant.Rows(), "cases and events": cases,
	} {
		if leak := harness.LeakIn(text); leak != "" {
			t.Errorf("%s: a secret got out: %s", what, leak)
		}
	}
	service.Audit(t)
}

// quotingRoutes are all routes that ask the database, with requests that it would grant, and decisions on cases that
// can be decided.
func quotingRoutes(t *testing.T, tenant *harness.Tenant) (routes []operation) {
	t.Helper()
	tenant.Load([]string{"P", "Q"}, 10000)
	tenant.Approve("K", "P", 600)
	tenant.Approve("L", "P", 600)
	want(t, tenant.Client().Refund("K", "P", 600), "processed")
	loadWebhooks(t, tenant)
	tenant.Exec(`INSERT INTO reconciliation_runs (run_id, started_at) VALUES (gen_random_uuid(), now())`)
	tenant.Exec(`INSERT INTO audits (audit_id, started_at, operations, transfers, orders, lies)
		VALUES (gen_random_uuid(), now(), 0, 0, 0, 0)`)
	tenant.Exec(`UPDATE orders SET customer_email = 'ada@example.com' WHERE tenant_id = $1`, tenant.ID)
	day := func(later int) string { return time.Now().AddDate(0, 0, later).UTC().Format(time.RFC3339) }
	asks := tenant.Client().With(tenant.NewKey("refunds:request"))
	for _, verdict := range []string{"approve", "decline", "take"} {
		a := asks.Post("/v1/refund-requests",
			harness.Fields{"case_id": "c-" + verdict, "order_id": "Q", "amount_cents": 1, "reason_code": "damaged"})
		var decided struct {
			EscalationID string `json:"escalation_id"`
		}
		if err := json.Unmarshal(a.Body, &decided); err != nil || decided.EscalationID == "" {
			t.Fatalf("no escalation: %d %s", a.Status, a.Body)
		}
		body := "{}"
		if verdict == "take" {
			body = `{"owner":"ada"}`
		}
		path := "/v1/escalations/" + decided.EscalationID
		routes = append(routes,
			operation{http.MethodPost, "", path + "/" + verdict, body, ""}, operation{http.MethodGet, "", path, "", ""})
	}
	for _, o := range operations {
		switch {
		case o.path == "/v1/me", o.path == "/v1/refund-totals/open": // asks nobody; nothing is open
		case strings.HasPrefix(o.example, casePath): // those above can be decided
		case o.path == "/v1/refund-totals":
			o.example = o.path + "?created_after=" + day(-1) + "&created_before=" + day(1)
			routes = append(routes, o)
		default:
			routes = append(routes, o)
		}
	}
	return routes
}
