package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"refundd/operations"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// operation is one to put into the books, with its transfers.
type operation struct {
	id, order, state, failureCode, chain string
	cents                                int64
}

// clean are operations in every state, by every chain that leads there.
var clean = []operation{
	{id: "l-1", order: "L", state: "succeeded", chain: "refund", cents: 4999},
	{id: "l-2", order: `L"\`, state: "succeeded", chain: "refund", cents: 1},
	{id: "l-3", order: "L", state: "revoked", cents: 9007199254740991},
	{id: "p-1", order: "P", state: "reserved", chain: "hold", cents: 10},
	{id: "p-2", order: "P", state: "pending", chain: "hold", cents: 10},
	{id: "p-3", order: "P", state: "succeeded", chain: "hold settle", cents: 10},
	{id: "p-4", order: "P", state: "failed", failureCode: "declined", chain: "hold release", cents: 100000},
	{id: "p-5", order: "P", state: "failed", failureCode: "late_failure", chain: "hold settle reversal", cents: 10},
	{id: "p-6", order: "P", state: "needs_attention", chain: "hold", cents: 10},
	{id: "p-7", order: "P", state: "needs_attention", chain: "hold release hold", cents: 10},
	{id: "p-8", order: "P", state: "succeeded", chain: "hold settle reversal hold settle", cents: 10},
	{id: "p-9", order: "P", state: "revoked", cents: 5},
}

// books loads orders and operations as the service would have left them.
func books(t *testing.T, ops ...operation) *testdb.DB {
	t.Helper()
	db := testdb.New(t)
	plant(t, db, `
		INSERT INTO tenants (tenant_id) VALUES ('acme'), ('other');
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents) VALUES
			('acme', 'L', 'USD', 10000), ('acme', 'L"\', 'JPY', 1), ('acme', 'N', 'USD', 0),
				('other', 'L', 'USD', 10000);
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
		VALUES ('acme', 'P', 'USD', 100000, 'simulator', 'pay_1')`)
	for _, o := range ops {
		enter(t, db, o)
	}
	plant(t, db, `
		UPDATE orders o SET refunded_cents = live.cents FROM (
			SELECT tenant_id, order_id, sum(amount_cents) AS cents FROM refund_operations
			WHERE state NOT IN ('failed', 'revoked') GROUP BY 1, 2) live
		WHERE (o.tenant_id, o.order_id) = (live.tenant_id, live.order_id)`)
	return db
}

func enter(t *testing.T, db *testdb.DB, o operation) {
	t.Helper()
	_, err := db.Owner.Exec(t.Context(), `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state,
			failure_code, settled_at, provider, provider_key, provider_key_expires_at, attempts)
		SELECT tenant_id, $1::text, $2::text, CASE WHEN $3::text <> 'revoked' THEN gen_random_uuid() END, order_id,
			$4::bigint, currency, $3::text,
		       nullif($5::text, ''), CASE WHEN $3::text IN ('succeeded', 'failed', 'revoked') THEN now() END,
		       p, p || $1::text, CASE WHEN p IS NOT NULL THEN now() END, CASE WHEN p IS NOT NULL THEN 1 ELSE 0 END
		FROM (SELECT *, CASE WHEN $3::text <> 'revoked' THEN provider END AS p FROM orders) o
		WHERE tenant_id = 'acme' AND order_id = $6::text`,
		o.id, operations.Fingerprint(o.order, o.cents), o.state, o.cents, o.failureCode, o.order)
	if err != nil {
		t.Fatalf("enter %s: %v", o.id, err)
	}
	for i, kind := range strings.Fields(o.chain) {
		transfer(t, db, o.id, i+1, kind, o.cents, map[bool]string{true: "USD", false: "JPY"}[o.order != `L"\`])
	}
}

var accounts = map[string][2]string{
	"refund": {"merchant", "customer"}, "hold": {"merchant", "in_transit"}, "settle": {"in_transit", "customer"},
	"release": {"in_transit", "merchant"}, "reversal": {"customer", "merchant"},
}

func transfer(t *testing.T, db *testdb.DB, id string, seq int, kind string, cents int64, currency string) {
	t.Helper()
	_, err := db.Owner.Exec(t.Context(), `
		INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
			currency)
		VALUES ('acme', $1, $2, $3, $4, $5, $6, $7)`, id, seq, kind, accounts[kind][0], accounts[kind][1], cents,
		currency)
	if err != nil {
		t.Fatalf("transfer %d of %s: %v", seq, id, err)
	}
}

// plant runs statements as the owner, past triggers and foreign keys.
func plant(t *testing.T, db *testdb.DB, sql string) {
	t.Helper()
	if _, err := db.Owner.Exec(t.Context(),
		"SET session_replication_role = replica; "+sql+"; RESET session_replication_role"); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// audit runs as the service's role.
func audit(t *testing.T, db *testdb.DB) Report {
	t.Helper()
	report, err := Audit(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestAudit_CleanBooks_AreClean(t *testing.T) {
	t.Parallel()
	db := books(t, clean...)
	transfers := int64(0)
	for _, o := range clean {
		transfers += int64(len(strings.Fields(o.chain)))
	}
	want := Report{
		Operations: int64(len(clean)), Transfers: transfers, Orders: 5,
		Unproven: []Unproven{{"acme", "P", "p-3"}, {"acme", "P", "p-8"}}, UnprovenCount: 2, // no provider showed them
	}
	got := audit(t, db)
	slices.SortFunc(got.Unproven, func(a, b Unproven) int { return strings.Compare(a.OperationID, b.OperationID) })
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(Report{}, audit(t, testdb.New(t))); diff != "" {
		t.Errorf("report of empty books (-want +got):\n%s", diff)
	}
}

func TestAudit_NamesEachLie(t *testing.T) {
	t.Parallel()
	const refund = `INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
		amount_cents, currency) `
	for name, c := range map[string]struct {
		plant string
		want  []Lie
	}{
		"TransferOfNoOperation": {refund + `VALUES ('acme', 'ghost', 1, 'refund', 'merchant', 'customer', 1, 'USD')`,
			[]Lie{{OperationID: "ghost", Rule: RuleOrphanTransfer}}},
		"TransferOfAnotherTenant": {`UPDATE ledger_transfers SET tenant_id = 'other' WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleMissingTransfer},
				{TenantID: "other", OperationID: "l-1", Rule: RuleOrphanTransfer}}},
		"DebitRemoved": {`DELETE FROM ledger_transfers WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleMissingTransfer}}},
		"OperationRemoved": {`DELETE FROM refund_operations WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", Rule: RuleOrphanTransfer}, {OrderID: "L", Rule: RuleRefundedCents}}},
		"WithdrawnAndPaid": {refund +
			`VALUES ('acme', 'l-3', 1, 'refund', 'merchant', 'customer', 9007199254740991, 'USD')`,
			[]Lie{{OperationID: "l-3", OrderID: "L", Rule: RuleIllegalChain}}},
		"PaidTwice": {`ALTER TABLE ledger_transfers DROP CONSTRAINT ledger_transfers_legal; ` +
			refund + `VALUES ('acme', 'l-1', 2, 'refund', 'merchant', 'customer', 4999, 'USD')`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleMovedTwice}}},
		"SettledTwice": {refund + `VALUES ('acme', 'p-3', 3, 'settle', 'in_transit', 'customer', 10, 'USD')`,
			[]Lie{{OperationID: "p-3", OrderID: "P", Rule: RuleMovedTwice}}},
		"HeldForEver": {`DELETE FROM ledger_transfers WHERE operation_id = 'p-4' AND kind = 'release'`,
			[]Lie{{OperationID: "p-4", OrderID: "P", Rule: RuleIllegalChain}}},
		"SettledWhileReserved": {refund + `VALUES ('acme', 'p-1', 2, 'settle', 'in_transit', 'customer', 10, 'USD')`,
			[]Lie{{OperationID: "p-1", OrderID: "P", Rule: RuleIllegalChain}}},
		"ReversedAndStillSucceeded": {refund +
			`VALUES ('acme', 'p-3', 3, 'reversal', 'customer', 'merchant', 10, 'USD')`,
			[]Lie{{OperationID: "p-3", OrderID: "P", Rule: RuleIllegalChain}}},
		"FirstTransferRemoved": {`DELETE FROM ledger_transfers WHERE operation_id = 'p-3' AND seq = 1`,
			[]Lie{{OperationID: "p-3", OrderID: "P", Rule: RuleIllegalChain},
				{OperationID: "p-3", OrderID: "P", Rule: RuleTransferSeq}}},
		"TransferRenumbered": {`UPDATE ledger_transfers SET seq = 3 WHERE operation_id = 'p-3' AND seq = 2`,
			[]Lie{{OperationID: "p-3", OrderID: "P", Rule: RuleTransferSeq}}},
		"TransferOfMore": {`UPDATE ledger_transfers SET amount_cents = 5000 WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleTransferAmount}}},
		"SettledForLess": {`UPDATE ledger_transfers SET amount_cents = 9 WHERE operation_id = 'p-3'
			AND kind = 'settle'`,
			[]Lie{{OperationID: "p-3", OrderID: "P", Rule: RuleTransferAmount}}},
		"SettledForMore": {`UPDATE ledger_transfers SET amount_cents = 11 WHERE operation_id = 'p-3'
			AND kind = 'settle'`,
			[]Lie{{OperationID: "p-3", OrderID: "P", Rule: RuleTransferAmount}}},
		"TransferInAnotherCurrency": {`UPDATE ledger_transfers SET currency = 'EUR' WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleTransferCurrency}}},
		"TransferToAnotherAccount": {`ALTER TABLE ledger_transfers DROP CONSTRAINT ledger_transfers_legal;
			UPDATE ledger_transfers SET credit_account = 'merchant' WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleTransferAccounts}}},
		"OperationOfMore": {`UPDATE refund_operations SET amount_cents = 5000 WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleFingerprint},
				{OperationID: "l-1", OrderID: "L", Rule: RuleTransferAmount},
				{OrderID: "L", Rule: RuleRefundedCents}}},
		"OperationOfNothing": {`ALTER TABLE refund_operations DROP CONSTRAINT refund_operations_legal;
			UPDATE refund_operations SET amount_cents = 0 WHERE operation_id = 'l-3'`,
			[]Lie{{OperationID: "l-3", OrderID: "L", Rule: RuleFingerprint},
				{OperationID: "l-3", OrderID: "L", Rule: RuleNotPositiveAmount}}},
		"Fingerprint": {`UPDATE refund_operations SET fingerprint = repeat('0', 64) WHERE operation_id = 'l-2'`,
			[]Lie{{OperationID: "l-2", OrderID: `L"\`, Rule: RuleFingerprint}}},
		"OperationInAnotherCurrency": {`UPDATE refund_operations SET currency = 'EUR' WHERE operation_id = 'l-1';
			UPDATE ledger_transfers SET currency = 'EUR' WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleOrderCurrency}}},
		"OrderRemoved": {`DELETE FROM orders WHERE tenant_id = 'acme' AND order_id = 'L"\'`,
			[]Lie{{OperationID: "l-2", OrderID: `L"\`, Rule: RuleOrderMissing}}},
		"OrderByAnotherProvider": {`UPDATE orders SET provider = 'simulator', provider_payment_ref = 'x'
			WHERE tenant_id = 'acme' AND order_id = 'L"\'`,
			[]Lie{{OperationID: "l-2", OrderID: `L"\`, Rule: RuleOrderProvider}}},
		"FailedWithoutAProvider": {`ALTER TABLE refund_operations DROP CONSTRAINT refund_operations_legal;
			UPDATE refund_operations SET state = 'needs_attention', settled_at = NULL WHERE operation_id = 'l-1'`,
			[]Lie{{OperationID: "l-1", OrderID: "L", Rule: RuleImpossibleState}}},
		"RefundedCentsLowered": {`UPDATE orders SET refunded_cents = refunded_cents - 1 WHERE tenant_id = 'acme'
			AND order_id = 'P'`,
			[]Lie{{OrderID: "P", Rule: RuleRefundedCents}}},
		"RefundedCentsWithoutOperation": {`UPDATE orders SET refunded_cents = 1 WHERE tenant_id = 'other'`,
			[]Lie{{TenantID: "other", OrderID: "L", Rule: RuleRefundedCents}}},
		"FailedSilently": {`UPDATE refund_operations SET state = 'failed', failure_code = 'x', settled_at = now()
			WHERE operation_id = 'p-1'`,
			[]Lie{{OperationID: "p-1", OrderID: "P", Rule: RuleIllegalChain}, {OrderID: "P", Rule: RuleRefundedCents}}},
		"BeyondTheCapture": {`ALTER TABLE orders DROP CONSTRAINT orders_refunded_within_captured;
			UPDATE orders SET captured_cents = 4998 WHERE tenant_id = 'acme' AND order_id = 'L'`,
			[]Lie{{OrderID: "L", Rule: RuleWithinCapture}}},
		"PaidBeyondTheCapture": {`UPDATE refund_operations SET failure_code = 'over_refund' WHERE operation_id = 'p-7';
			UPDATE orders SET captured_cents = 35, over_refunded_cents = refunded_cents - 35 WHERE tenant_id = 'acme'
				AND order_id = 'P'`,
			[]Lie{{OrderID: "P", Rule: RuleOverRefund}, {OperationID: "p-7", OrderID: "P", Rule: RuleOverRefund}}},
		"PaidBeyondTheCaptureAndSettled": {`UPDATE orders
			SET captured_cents = 35, over_refunded_cents = refunded_cents - 35 WHERE tenant_id = 'acme'
				AND order_id = 'P'`,
			[]Lie{{OrderID: "P", Rule: RuleOverRefund}}},
		"NothingHeldForWhatWasPaid": {`UPDATE refund_operations
			SET state = 'needs_attention', failure_code = 'over_refund', settled_at = NULL WHERE operation_id = 'p-4'`,
			[]Lie{{OperationID: "p-4", OrderID: "P", Rule: RuleIllegalChain}, {OrderID: "P", Rule: RuleRefundedCents}}},
		"AnExcessOfNobodys": {`UPDATE orders SET over_refunded_cents = 1 WHERE tenant_id = 'acme' AND order_id = 'L'`,
			[]Lie{{OrderID: "L", Rule: RuleOverRefundedCents}}},
		"MoreThanTheExcess": {`UPDATE orders SET captured_cents = 35, over_refunded_cents = refunded_cents - 35 + 1
			WHERE tenant_id = 'acme' AND order_id = 'P'`,
			[]Lie{{OrderID: "P", Rule: RuleOverRefundedCents}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := books(t, clean...)
			plant(t, db, c.plant)
			for i := range c.want {
				c.want[i].TenantID = cmp.Or(c.want[i].TenantID, "acme")
			}
			report := audit(t, db)
			bySubject := cmpopts.SortSlices(func(a, b Lie) bool {
				return cmp.Or(strings.Compare(a.OperationID, b.OperationID),
					strings.Compare(string(a.Rule), string(b.Rule))) < 0
			})
			if diff := gocmp.Diff(c.want, report.Lies, bySubject, cmpopts.IgnoreFields(Lie{}, "Detail")); diff != "" {
				t.Errorf("lies (-want +got):\n%s", diff)
			}
			if report.LieCount != int64(len(c.want)) || report.Truncated {
				t.Errorf("counted %d lies, truncated %t", report.LieCount, report.Truncated)
			}
			for _, l := range report.Lies {
				if l.Detail == "" {
					t.Errorf("%s says nothing", l.Rule)
				}
			}
		})
	}
}

func TestAudit_NamesAHundredLies_AndCountsAll(t *testing.T) {
	t.Parallel()
	db := books(t)
	plant(t, db, `INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
		amount_cents, currency)
		SELECT 'acme', 'ghost-' || n, 1, 'refund', 'merchant', 'customer', 9007199254740991, 'USD'
			FROM generate_series(1, 2500) n`)
	report := audit(t, db)
	if len(report.Lies) != 100 || report.LieCount != 2500 || !report.Truncated || report.Transfers != 2500 ||
		report.Operations != 0 {
		t.Errorf("named %d of %d lies, truncated %t, %d transfers", len(report.Lies), report.LieCount, report.Truncated,
			report.Transfers)
	}
}

func TestLegalChains(t *testing.T) {
	t.Parallel()
	kinds := []string{"refund", "hold", "settle", "release", "reversal"}
	legal := map[string][]string{ // by state, chains of up to four
		"succeeded":       {"hold settle", "hold release hold settle"},
		"reserved":        {"hold"},
		"pending":         {"hold"},
		"failed":          {"hold release", "hold settle reversal", "hold release hold release"},
		"needs_attention": {"hold", "hold release hold", "hold settle reversal hold"},
		"revoked":         {""},
	}
	chains := []string{""}
	for from, length := 0, 1; length <= 4; length++ {
		end := len(chains)
		for _, chain := range chains[from:end] {
			for _, kind := range kinds {
				chains = append(chains, strings.TrimSpace(chain+" "+kind))
			}
		}
		from = end
	}
	for state, want := range legal {
		pattern := legalChain(operations.State(state), true)
		for _, chain := range chains {
			if got := pattern.MatchString(chain); got != slices.Contains(want, chain) {
				t.Errorf("%s by %q: legal %t", state, chain, got)
			}
		}
	}
	for _, chain := range chains {
		if got := legalChain(operations.StateSucceeded, false).MatchString(chain); got != (chain == "refund") {
			t.Errorf("succeeded without a provider by %q: legal %t", chain, got)
		}
	}
}

func TestAudit_WhileTheServiceWrites_IsClean(t *testing.T) {
	t.Parallel()
	db := books(t)
	plant(t, db, `UPDATE tenants SET require_authorization = false`)
	engine, err := operations.New(operations.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var loop, callers sync.WaitGroup
	loop.Go(func() { _ = engine.Run(ctx) })
	for caller := range 4 {
		callers.Go(func() {
			for n := range 50 {
				_, err := engine.Submit(ctx, operations.Request{
					TenantID: []string{"acme", "other"}[n%2], OperationID: fmt.Sprintf("op-%d-%d", caller, n),
					OrderID: "L", AmountCents: rand.Int64N(100) + 1,
				})
				if err != nil {
					t.Errorf("submit: %v", err)
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { callers.Wait(); close(finished) }()
	for running := true; running; {
		select {
		case <-finished:
			running = false
		default:
		}
		if report := audit(t, db); report.LieCount != 0 {
			t.Errorf("lies: %+v", report.Lies)
		}
	}
	if report := audit(t, db); report.Operations != 200 || report.Transfers != 200 {
		t.Errorf("ended with %+v", report)
	}
	stop()
	loop.Wait()
}
