package blackbox

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/test/harness"
	"refundd/test/testdb"
)

// hostile are settings of a database's, and of the service's login in it, that would change what statements mean, or
// what a commit is worth.
var hostile = []string{
	`synchronous_commit = off`, `DateStyle = 'German, DMY'`, `IntervalStyle = 'sql_standard'`,
	`TimeZone = 'Asia/Kolkata'`,
	`bytea_output = 'escape'`, `search_path = 'elsewhere'`, `default_transaction_read_only = on`,
	`default_transaction_isolation = 'serializable'`, `default_transaction_deferrable = on`, `row_security = off`,
	`standard_conforming_strings = off`, `extra_float_digits = '-15'`, `client_encoding = 'LATIN1'`,
	`lock_timeout = '1ms'`,
	`statement_timeout = '250ms'`, `array_nulls = off`, `client_min_messages = 'error'`, `enable_indexscan = off`,
	`enable_nestloop = off`, `exit_on_error = on`, `plan_cache_mode = 'force_custom_plan'`,
}

// shadows stand before our tables, and what statements call.
const shadows = `
	CREATE SCHEMA elsewhere;
	CREATE TABLE elsewhere.orders (LIKE public.orders);
	CREATE TABLE elsewhere.refund_operations (tenant_id int, operation_id int, state int);
	CREATE TABLE elsewhere.api_keys (secret_hash text, tenant_id int);
	CREATE TABLE elsewhere.schema_migrations (version bigint, dirty bool);
	INSERT INTO elsewhere.schema_migrations VALUES (0, true);
	CREATE FUNCTION elsewhere.lower(text) RETURNS text LANGUAGE sql AS 'SELECT ''shadowed''';
	GRANT USAGE ON SCHEMA elsewhere TO PUBLIC;
	GRANT ALL ON ALL TABLES IN SCHEMA elsewhere TO PUBLIC;`

func TestA69_SettingsOfTheDatabase_ChangeNoAnswerInAnyQueryMode(t *testing.T) {
	t.Parallel()
	s := &harness.Service{DB: testdb.Empty(t)}
	for _, setting := range hostile {
		exec(t, sane(s.DB.URL), `ALTER DATABASE `+s.DB.Name+` SET `+setting)
		exec(t, sane(s.DB.URL), `ALTER ROLE `+login(t, s.DB.ServiceURL)+` IN DATABASE `+s.DB.Name+` SET `+setting)
	}
	if r := harness.Command(t, s.DB.URL+"&pool_max_conns=3", "migrate", "up"); r.ExitCode != 0 {
		t.Fatalf("migrate up exits %d: %s", r.ExitCode, r.Stderr)
	}
	exec(t, sane(s.DB.URL), shadows)
	service := s.DB.ServiceURL
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s.DB.ServiceURL = service + "&default_query_exec_mode=" + mode + "&pool_max_conns=3"
			defer func() { s.DB.ServiceURL = service }()
			s.Servers = nil
			s.AddServer(t, "--drain-delay", "0s")
			everyAnswer(t, s.Tenant(t))
			s.Audit(t)
		})
	}
}

// everyAnswer takes each route of a refund without a provider, whose answers no setting may change.
func everyAnswer(t *testing.T, tenant *harness.Tenant) {
	t.Helper()
	c := tenant.Client()
	a := c.Put(harness.OrderPath("P"), harness.Fields{"currency": "EUR", "captured_cents": 10000,
		"customer": map[string]string{"id": `c\1'--`, "email": "Zoë@example.com", "name": "Zoë ☃ \\x41"}})
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT order: %d %s", a.Status, a.Body)
	}
	for _, k := range []string{"K", "withdrawn"} {
		tenant.Approve(k, "P", 600)
	}
	want(t, c.Refund("K", "P", 600), "processed")
	first := c.Refund("K", "P", 600)
	want(t, first, "already_processed")
	want(t, c.Refund("K", "P", 601), "operation_id_conflict")
	want(t, c.Refund("L", "P", 600), "authorization_not_found")
	if a := c.Post(harness.AuthorizationPath("withdrawn")+"/revoke", harness.Fields{}); a.Status != http.StatusOK {
		t.Errorf("revoke: %d %s", a.Status, a.Body)
	}
	want(t, c.Refund("withdrawn", "P", 600), "authorization_revoked")
	r := harness.Read[harness.Receipt](t, first)
	if created, err := time.Parse(time.RFC3339, r.CreatedAt); err != nil || time.Since(created).Abs() > time.Minute {
		t.Errorf("created_at %q, which is not now", r.CreatedAt)
	}
	if r.Reason != nil {
		t.Errorf("a reason out of nothing: %s", first.Body)
	}
	for path, says := range map[string]string{
		"/v1/orders?customer_email=zo%C3%AB@EXAMPLE.com":      `"count":1`,
		"/v1/orders?customer_id=" + url.QueryEscape(`c\1'--`): `Zoë ☃ \\x41`,
		"/v1/refunds?order_id=P&state=succeeded":              `"operation_id":"K"`,
		"/v1/refunds/K/events":                                `"refund"`,
		"/v1/authorizations?case_id=case-7":                   `"count":2`,
		"/readyz":                                             `ok`,
	} {
		if a := c.Get(path); a.Status != http.StatusOK || !strings.Contains(string(a.Body), says) {
			t.Errorf("GET %s: %d %s, want %s in it", path, a.Status, a.Body, says)
		}
	}
	if r := harness.Command(t, tenant.Service.DB.ServiceURL, "show", "K", "--tenant", tenant.ID,
		"--json"); r.ExitCode != 0 ||
		!strings.Contains(r.Stdout, "+00:00") {
		t.Errorf("show exits %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	if r := harness.Command(t, tenant.Service.DB.ServiceURL, "keys", "list", "--tenant", tenant.ID); r.ExitCode != 0 {
		t.Errorf("keys list exits %d: %s", r.ExitCode, r.Stderr)
	}
}

// login is whom a database URL logs in as.
func login(t *testing.T, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return pgx.Identifier{u.User.Username()}.Sanitize()
}

// sane is a database URL whose sessions are spared what is hostile to DDL.
func sane(databaseURL string) string {
	return databaseURL + "&options=" +
		strings.NewReplacer(" ", "%20",
			"=", "%3D").Replace(`-c default_transaction_read_only=off -c statement_timeout=0 -c exit_on_error=off`)
}

// exec runs statements on a connection of their own.
func exec(t *testing.T, databaseURL, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), databaseURL)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestA69_VariablesOfTheShell_LeadNowhereElse(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	shell := []string{
		"PGSERVICE=nowhere", "PGSERVICEFILE=/nowhere", "PGOPTIONS=-c search_path=elsewhere -c default_transaction_read_only=on",
		"PGAPPNAME=x", "PGSSLMODE=verify-full", "PGSSLROOTCERT=/nowhere", "PGPASSFILE=/nowhere", "PGTARGETSESSIONATTRS=standby",
		"PGHOST=203.0.113.1", "PGPORT=1", "PGDATABASE=x", "PGUSER=x", "PGTZ=Asia/Kolkata", "PGCONNECT_TIMEOUT=x",
		"PGREQUIREAUTH=none",
	}
	server := harness.ServeIn(t, db.ServiceURL, shell)
	s := &harness.Service{DB: db, Servers: []*harness.Server{server}}
	tenant := s.Tenant(t)
	tenant.Order("P", 10000)
	tenant.Approve("K", "P", 600)
	want(t, tenant.Client().Refund("K", "P", 600), "processed")
	p := harness.Spawn(t, db.URL, shell, "migrate", "up")
	if _, err := p.Logs.Await(time.Minute, nil, "the schema is at version"); err != nil {
		t.Errorf("migrate up: %v: %s", err, p.Logs.Text())
	}
}
