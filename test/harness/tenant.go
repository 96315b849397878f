package harness

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// AllScopes are those of a key that may do everything.
const AllScopes = "orders:write,authorizations:write,refunds:write,refunds:resolve,refunds:request,webhooks:write,read"

var lastTenant atomic.Int64

// Tenant is a tenant of a test's own.
type Tenant struct {
	ID      string
	Key     string // with all scopes
	Service *Service
	t       testing.TB
}

// Tenant makes a tenant that requires authorizations, and a key of it, by the command line.
func (s *Service) Tenant(t testing.TB) *Tenant { return s.tenant(t, "--require-authorization") }

// OpenTenant makes a tenant that requires no authorizations.
func (s *Service) OpenTenant(t testing.TB) *Tenant {
	return s.tenant(t, "--require-authorization=false")
}

func (s *Service) tenant(t testing.TB, flag string) *Tenant {
	t.Helper()
	tenant := &Tenant{ID: fmt.Sprintf("t-%d-%d", time.Now().UnixNano()%1e9, lastTenant.Add(1)), Service: s, t: t}
	if r := Command(t, s.DB.OperatorURL, "tenants", "create", "--tenant", tenant.ID, flag); r.ExitCode != 0 {
		t.Fatalf("refundd tenants create exits %d: %s", r.ExitCode, r.Stderr)
	}
	tenant.Key = tenant.NewKey(AllScopes)
	return tenant
}

// NewKey makes a key with the scopes and answers its secret.
func (t *Tenant) NewKey(scopes string, flags ...string) string {
	t.t.Helper()
	args := append([]string{"keys", "create", "--tenant", t.ID, "--scopes", scopes}, flags...)
	r := Command(t.t, t.Service.DB.OperatorURL, args...)
	if r.ExitCode != 0 {
		t.t.Fatalf("refundd keys create exits %d: %s", r.ExitCode, r.Stderr)
	}
	secret, rest, _ := strings.Cut(r.Stdout, "\n")
	if secret == "" || rest != "" {
		t.t.Fatalf("refundd keys create prints %q: not the secret alone", r.Stdout)
	}
	return secret
}

// For is the tenant as a subtest uses it.
func (t *Tenant) For(sub testing.TB) *Tenant {
	again := *t
	again.t = sub
	return &again
}

// At is a client of the service's i-th server.
func (t *Tenant) At(i int) Client {
	return Client{URL: t.Service.Servers[i%len(t.Service.Servers)].URL, Key: t.Key, T: t.t}
}

// ClientOf is a client of a server.
func (t *Tenant) ClientOf(s *Server) Client { return Client{URL: s.URL, Key: t.Key, T: t.t} }

// Client is one of the first server.
func (t *Tenant) Client() Client { return t.At(0) }

// With is the client with another key; "" is none.
func (c Client) With(key string) Client { c.Key = key; return c }

// Order registers an order in euros over HTTP.
func (t *Tenant) Order(orderID string, capturedCents int64) {
	t.t.Helper()
	a := t.Client().Put(OrderPath(orderID), Fields{"currency": "EUR", "captured_cents": capturedCents})
	if a.Status != http.StatusCreated {
		t.t.Fatalf("PUT order %s: %d %s", orderID, a.Status, a.Body)
	}
}

// Approve authorizes a refund over HTTP.
func (t *Tenant) Approve(operationID, orderID string, cents int64) {
	t.t.Helper()
	a := t.Client().Put(AuthorizationPath(operationID),
		Fields{"case_id": "case-7", "order_id": orderID, "amount_cents": cents, "approved_by": "ada"})
	if a.Status != http.StatusCreated {
		t.t.Fatalf("PUT authorization %s: %d %s", operationID, a.Status, a.Body)
	}
}

// Approved is a row of refund_authorizations.
type Approved struct {
	OperationID, OrderID string
	Cents                int64
}

// Load writes orders and authorizations by SQL, all orders in euros and of the same capture.
func (t *Tenant) Load(orders []string, capturedCents int64, approved ...Approved) {
	t.t.Helper()
	t.Exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents)
		SELECT $1, order_id, 'EUR', $3 FROM unnest($2::text[]) AS order_id`, t.ID, orders, capturedCents)
	batch := &pgx.Batch{}
	for _, a := range approved {
		batch.Queue(`INSERT INTO refund_authorizations
			(tenant_id, operation_id, case_id, order_id, amount_cents, currency, approved_by)
			VALUES ($1, $2, 'case', $3, $4, 'EUR', 'ada')`, t.ID, a.OperationID, a.OrderID, a.Cents)
	}
	if err := t.Service.DB.Owner.SendBatch(t.t.Context(), batch).Close(); err != nil {
		t.t.Fatalf("load authorizations: %v", err)
	}
}

// Exec runs a statement as the owner.
func (t *Tenant) Exec(sql string, args ...any) {
	t.t.Helper()
	if _, err := t.Service.DB.Owner.Exec(t.t.Context(), sql, args...); err != nil {
		t.t.Fatalf("%s: %v", sql, err)
	}
}

// Moved is the sum of an order's debits in the ledger, less what came back.
func (t *Tenant) Moved(orderID string) int64 {
	t.t.Helper()
	return ask[int64](t, `SELECT coalesce(sum(CASE 'merchant' WHEN l.debit_account THEN l.amount_cents
		WHEN l.credit_account THEN -l.amount_cents ELSE 0 END), 0)::bigint
		FROM ledger_transfers l JOIN refund_operations USING (tenant_id, operation_id)
		WHERE tenant_id = $1 AND order_id = $2`, t.ID, orderID)
}

// Movements is how many transfers the tenant's operation has.
func (t *Tenant) Movements(operationID string) int64 {
	t.t.Helper()
	return ask[int64](t, `SELECT count(*) FROM ledger_transfers WHERE tenant_id = $1
		AND operation_id = $2`, t.ID, operationID)
}

// Rows is all that the database holds of the tenant's orders, approvals and refunds.
func (t *Tenant) Rows() string {
	t.t.Helper()
	return ask[string](t, `SELECT jsonb_pretty(jsonb_build_object(
		'orders', (SELECT jsonb_agg(to_jsonb(x) ORDER BY order_id) FROM orders x WHERE tenant_id = $1),
		'authorizations', (SELECT jsonb_agg(to_jsonb(x) ORDER BY operation_id) FROM refund_authorizations x
			WHERE tenant_id = $1),
		'operations', (SELECT jsonb_agg(to_jsonb(x) ORDER BY operation_id) FROM refund_operations x
			WHERE tenant_id = $1),
		'transfers', (SELECT jsonb_agg(to_jsonb(x) ORDER BY operation_id, seq) FROM ledger_transfers x
			WHERE tenant_id = $1),
		'events', (SELECT jsonb_agg(to_jsonb(x) ORDER BY operation_id, seq) FROM operation_events x
			WHERE tenant_id = $1)))`, t.ID)
}

func ask[T any](t *Tenant, sql string, args ...any) T {
	t.t.Helper()
	var v T
	if err := t.Service.DB.Owner.QueryRow(t.t.Context(), sql, args...).Scan(&v); err != nil {
		t.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// EndKey revokes or rotates the key of a secret and answers what the command prints.
func (t *Tenant) EndKey(secret, command string) string {
	t.t.Helper()
	id := ask[string](t, `SELECT key_id FROM api_keys WHERE secret_hash = sha256($1::bytea)`, []byte(secret))
	r := Command(t.t, t.Service.DB.OperatorURL, "keys", command, id)
	if r.ExitCode != 0 {
		t.t.Fatalf("refundd keys %s exits %d: %s", command, r.ExitCode, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}
