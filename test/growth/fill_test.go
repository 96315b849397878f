package growth

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// fill are refunds of one tenant, and a hundred of another one; upto says how many.
var fill = []string{
	`INSERT INTO tenants (tenant_id) SELECT 'other-' || n FROM generate_series(1, 300) AS n`,
	`INSERT INTO api_keys (key_id, tenant_id, secret_hash, scopes)
	SELECT 'key-' || n, 'other-' || 1 + n % 300, sha256(n::text::bytea), '{read}' FROM generate_series(1, 5000) AS n`,

	`INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents, provider, provider_payment_ref,
		customer_id, customer_email)
	SELECT tenant, 'grown-' || n, 'EUR', 1000000, 0, CASE WHEN n % 2 = 0 THEN 'stripe' END,
		CASE WHEN n % 2 = 0 THEN 'pi_' || tenant || n END, 'grown-' || n % 3000, 'grown-' || n % 3000 || '@example.com'
	FROM made JOIN generate_series(1, 10000) AS n ON n <= upto`,

	`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
		state,
		provider, provider_key, provider_refund_id, provider_key_expires_at, attempts, last_send_ended, next_check_at,
		failure_code, created_at, settled_at)
	SELECT tenant, 'grown-' || n, fingerprint('grown-' || o), gen_random_uuid(), 'grown-' || o,
		1, 'EUR', CASE WHEN n % 20 = 0 THEN 'failed' ELSE 'succeeded' END, 'stripe',
		tenant || ':grown-' || n, 're_' || tenant || n, at + interval '1 day', 1, at, 'infinity',
		CASE WHEN n % 20 = 0 THEN 'declined' END, at, at
	FROM made JOIN generate_series(1, 30000) AS n ON n <= upto,
		LATERAL (SELECT 2 * (1 + n % (least(upto, 10000) / 2)) AS o,
			now() - n * interval '5 minutes' - interval '1 day' AS at) AS x
	WHERE n % 5 <> 1`,
	`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency,
		state,
		created_at, settled_at)
	SELECT tenant, 'grown-' || n, fingerprint('busy'), gen_random_uuid(), 'busy', 1, 'EUR', 'succeeded', at, at
	FROM made JOIN generate_series(1, 30000) AS n ON n <= upto,
		LATERAL (SELECT now() - n * interval '5 minutes' - interval '1 day' AS at) AS x WHERE n % 5 = 1`,

	`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency, approved_by)
	SELECT tenant_id, operation_id, 'grown-' || n % 7000, order_id, 1, 'EUR', 'ada'
	FROM (SELECT o.*, row_number() OVER () AS n FROM refund_operations o WHERE operation_id LIKE 'grown-%') AS o`,
	`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
		currency)
	SELECT o.tenant_id, o.operation_id, k.seq, k.kind, k.debit, k.credit, 1, 'EUR'
	FROM refund_operations o JOIN (VALUES
		(1, 'refund', 'merchant', 'customer', NULL), (1, 'hold', 'merchant', 'in_transit', NULL),
		(2, 'settle', 'in_transit', 'customer', 'succeeded'), (2, 'release', 'in_transit', 'merchant', 'failed')
	) AS k (seq, kind, debit, credit, state) ON (k.kind = 'refund') = (o.provider IS NULL)
		AND coalesce(k.state, o.state) = o.state
	WHERE operation_id LIKE 'grown-%'`,
	`UPDATE orders p SET refunded_cents = refunded_cents + sum FROM (SELECT tenant_id, order_id, count(*) AS sum
		FROM refund_operations WHERE operation_id LIKE 'grown-%' AND state <> 'failed' GROUP BY 1, 2) AS o
	WHERE o.tenant_id = p.tenant_id AND o.order_id = p.order_id`,
	`INSERT INTO operation_events (tenant_id, operation_id, kind, to_state, attempt, detail)
	SELECT tenant_id, operation_id, 'transition', 'reserved', 1,
		jsonb_build_object('diagnostic_ref', 'ref-' || operation_id)
	FROM refund_operations, generate_series(1, 2) WHERE operation_id LIKE 'grown-%' AND provider IS NOT NULL`,
	`WITH written AS (
		INSERT INTO webhook_events (tenant_id, position, type, operation_id, created_at)
		SELECT tenant_id, coalesce(last_position, 0) + row_number() OVER (PARTITION BY tenant_id), 'refund.succeeded',
			operation_id, created_at
		FROM refund_operations LEFT JOIN webhook_streams s USING (tenant_id) WHERE operation_id LIKE 'grown-%'
		RETURNING tenant_id, position
	) UPDATE webhook_streams s SET last_position = w.last FROM (SELECT tenant_id, max(position) AS last
		FROM written GROUP BY 1) AS w
	WHERE w.tenant_id = s.tenant_id`,
	`UPDATE webhook_endpoints e SET position = s.last_position FROM webhook_streams s WHERE s.tenant_id = e.tenant_id`,
	`INSERT INTO webhook_deliveries (tenant_id, endpoint_id, position, operation_id, state, attempts, ended_at)
	SELECT e.tenant_id, e.endpoint_id, e.position + n - 100000, 'grown-' || n, 'delivered', 0, now()
	FROM (SELECT DISTINCT ON (tenant_id) * FROM webhook_endpoints) AS e, generate_series(1, 5000) AS n`,
	`INSERT INTO escalations (tenant_id, escalation_id, subject, trigger, queue, state, case_id, policy_version,
		opened_by,
		due_at, closed_at, closed_by)
	SELECT tenant, gen_random_uuid(), 'handoff', 'other', 'refunds', 'declined', 'grown-' || n, 'test', 'key', now(),
		now(), 'key'
	FROM made JOIN generate_series(1, 5000) AS n ON n <= upto`,
	`INSERT INTO refund_requests (tenant_id, case_id, order_id, amount_cents, currency, reason_code, facts, decision,
		policy_version,
		operation_id, requested_by)
	SELECT tenant, 'grown-' || n, 'grown-' || n, 1, 'EUR', 'damaged', '{}', 'approved', 'test', 'grown-' || n, 'key'
	FROM made JOIN generate_series(1, 5000) AS n ON n <= upto`,
	`INSERT INTO reconciliation_runs (run_id, started_at, finished_at)
	SELECT gen_random_uuid(), now() - n * interval '1 hour', now() - n * interval '1 hour'
		FROM generate_series(1, 5000) AS n`,
	`INSERT INTO audits (audit_id, started_at, operations, transfers, orders, lies)
	SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, now(), 0, 0, 0, 0
		FROM generate_series(1, 5000) AS n`,
}

// fingerprints are of one cent of the order in their brackets.
var fingerprints = regexp.MustCompile(`fingerprint\(('[^)]*)\)`)

// grow makes a tenant large, and another one a little larger.
func grow(t *testing.T, p *plans, refunds int, large, small string) {
	t.Helper()
	statements := []string{`SET session_replication_role = replica`}
	for _, sql := range fill {
		made := fmt.Sprintf(`(VALUES ('%s', %d), ('%s', 100)) AS made (tenant, upto)`, large, refunds, small)
		sql = strings.ReplaceAll(sql, "FROM made ", "FROM "+made+" ")
		statements = append(statements, fingerprints.ReplaceAllString(sql,
			`encode(sha256(convert_to('{"amount_cents": 1, "order_id": "' || $1 || '"}', 'UTF8')), 'hex')`))
	}
	p.silently(t, append(statements, `RESET session_replication_role`)...)
}
