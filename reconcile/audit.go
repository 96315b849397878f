package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
)

// maxLies is how many lies a report names; the rest are counted.
const maxLies = 100

// Rule is what a lie breaks.
type Rule string

// The rules of the books.
const (
	RuleOrphanTransfer  Rule = "transfer_without_operation" // every transfer belongs to an operation
	RuleMissingTransfer Rule = "operation_without_transfer" // every refund has moved or holds money
	// the transfers, in order, are those of the operation's state
	RuleIllegalChain     Rule = "illegal_chain"
	RuleMovedTwice       Rule = "moved_twice"               // an operation pays at most once
	RuleTransferAmount   Rule = "transfer_amount_differs"   // each transfer moves the operation's amount
	RuleTransferCurrency Rule = "transfer_currency_differs" // in the operation's currency
	RuleTransferAccounts Rule = "transfer_accounts_differ"  // between the accounts of its kind
	RuleTransferSeq      Rule = "transfer_sequence_broken"  // transfers are numbered 1, 2, …
	RuleFingerprint      Rule = "fingerprint_differs"       // the fingerprint is that of the order and the amount
	RuleOrderMissing     Rule = "operation_without_order"   // every operation belongs to an order of its tenant
	RuleOrderCurrency    Rule = "order_currency_differs"    // a refund is in its order's currency
	RuleOrderProvider    Rule = "order_provider_differs"    // and by its order's provider
	RuleRefundedCents    Rule = "refunded_cents_differs"    // an order counts its live operations
	RuleWithinCapture    Rule = "refunded_exceeds_captured" // and they never exceed its capture,
	// but for what a provider paid beyond it: that is named until it is covered
	RuleOverRefund        Rule = "over_refund"
	RuleOverRefundedCents Rule = "over_refunded_cents_differs" // an order counts that much of it, and no more
	RuleImpossibleState   Rule = "impossible_state"            // the state exists for such an operation
	RuleNotPositiveAmount Rule = "operation_amount_impossible" // amounts are positive
)

// Lie is one contradiction in the books. OperationID or OrderID is empty where the rule speaks of none.
type Lie struct {
	TenantID    string
	OperationID string
	OrderID     string
	Rule        Rule
	Detail      string // for an operator; holds ids, amounts and states only
}

// Report is what an audit found.
type Report struct {
	Operations int64 // read, withdrawn authorizations included
	Transfers  int64
	Orders     int64
	Lies       []Lie // the first ones, in no particular order
	LieCount   int64 // all of them
	Truncated  bool  // there are more than Lies names

	Unproven      []Unproven // the first ones, in no particular order
	UnprovenCount int64      // all of them
}

// Unproven is a refund at a provider that stands as paid on a person's word alone: no look has shown it. That
// contradicts nothing, and somebody may want to compare it with the provider's own statements.
type Unproven struct{ TenantID, OrderID, OperationID string }

func (r *Report) lie(l Lie) {
	r.LieCount++
	if len(r.Lies) < maxLies {
		r.Lies = append(r.Lies, l)
		return
	}
	r.Truncated = true
}

// Audit proves the books as they are in one snapshot. It needs no more than the service's role and works behind
// PgBouncer. An error says that the audit could not be done, nothing about the books.
func Audit(ctx context.Context, pool *pgxpool.Pool) (Report, error) {
	var report Report
	err := pgtx.Snapshot(ctx, pool, func(tx *pgtx.Tx) error {
		report = Report{}
		if err := auditOperations(ctx, tx, &report); err != nil {
			return fmt.Errorf("read operations: %w", err)
		}
		if err := auditOrders(ctx, tx, &report); err != nil {
			return fmt.Errorf("read orders: %w", err)
		}
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	return report, nil
}

// entry is an operation beside what its transfers and its order say of it. Either side may be missing.
type entry struct {
	tenantID, operationID string

	known                                                        bool // the operation exists
	orderID, state, currency, provider, failureCode, fingerprint string
	amountCents                                                  int64

	proven bool // the provider showed a refund of it

	transfers                int64
	chain                    string // kinds in the order of seq, with a space between
	firstSeq, lastSeq        int32
	minCents, maxCents       int64
	minCurrency, maxCurrency string
	accountsRight            bool

	orderKnown                   bool
	orderCurrency, orderProvider string
	overCents                    int64 // of the order, beyond its capture
}

// auditOperations reads operations and transfers once, both in the order of their primary keys.
func auditOperations(ctx context.Context, tx pgx.Tx, report *Report) error {
	rows, err := tx.Query(ctx, `
		SELECT coalesce(op.tenant_id, tr.tenant_id), coalesce(op.operation_id, tr.operation_id),
		       op.operation_id IS NOT NULL, coalesce(op.order_id, ''), coalesce(op.state, ''),
			coalesce(op.currency, ''),
		       coalesce(op.provider, ''), coalesce(op.failure_code, ''), coalesce(op.fingerprint, ''),
			coalesce(op.amount_cents, 0),
		       op.provider_refund_id IS NOT NULL,
		       coalesce(tr.transfers, 0), coalesce(tr.chain, ''), coalesce(tr.first_seq, 0), coalesce(tr.last_seq, 0),
		       coalesce(tr.min_cents, 0), coalesce(tr.max_cents, 0), coalesce(tr.min_currency, ''),
			coalesce(tr.max_currency, ''),
		       coalesce(tr.accounts_right, true),
		       o.order_id IS NOT NULL, coalesce(o.currency, ''), coalesce(o.provider, ''),
			coalesce(o.over_refunded_cents, 0)
		FROM refund_operations op
		FULL JOIN (
			SELECT tenant_id, operation_id, count(*) AS transfers, string_agg(kind, ' ' ORDER BY seq) AS chain,
			       min(seq) AS first_seq, max(seq) AS last_seq, min(amount_cents) AS min_cents,
				max(amount_cents) AS max_cents,
			       min(currency) AS min_currency, max(currency) AS max_currency,
			       bool_and((kind, debit_account, credit_account) IN (
			           ('refund', 'merchant', 'customer'), ('hold', 'merchant', 'in_transit'),
				('settle', 'in_transit', 'customer'),
			           ('release', 'in_transit', 'merchant'), ('reversal', 'customer', 'merchant'))) AS accounts_right
			FROM ledger_transfers GROUP BY tenant_id, operation_id
		) tr ON (tr.tenant_id, tr.operation_id) = (op.tenant_id, op.operation_id)
		LEFT JOIN orders o ON (o.tenant_id, o.order_id) = (op.tenant_id, op.order_id)`)
	if err != nil {
		return err
	}
	var e entry
	_, err = pgx.ForEachRow(rows, []any{
		&e.tenantID, &e.operationID,
		&e.known, &e.orderID, &e.state, &e.currency, &e.provider, &e.failureCode, &e.fingerprint, &e.amountCents, &e.proven,
		&e.transfers, &e.chain, &e.firstSeq, &e.lastSeq, &e.minCents, &e.maxCents, &e.minCurrency, &e.maxCurrency, &e.accountsRight,
		&e.orderKnown, &e.orderCurrency, &e.orderProvider, &e.overCents,
	}, func() error {
		report.Transfers += e.transfers
		if e.known {
			report.Operations++
		}
		if e.state == "succeeded" && e.provider != "" && !e.proven {
			if report.UnprovenCount++; len(report.Unproven) < maxLies {
				report.Unproven = append(report.Unproven, Unproven{e.tenantID, e.orderID, e.operationID})
			}
		}
		e.judge(func(rule Rule, detail string) {
			report.lie(Lie{TenantID: e.tenantID, OperationID: e.operationID, OrderID: e.orderID, Rule: rule,
				Detail: detail})
		})
		return nil
	})
	return err
}

// auditOrders compares each order with the sum of its live operations, which are all but those that failed or were
// withdrawn, and with its capture.
func auditOrders(ctx context.Context, tx pgx.Tx, report *Report) error {
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM orders`).Scan(&report.Orders); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		SELECT o.tenant_id, o.order_id, o.captured_cents, o.refunded_cents, o.over_refunded_cents,
		       coalesce(live.cents, 0)::text, o.refunded_cents IS DISTINCT FROM coalesce(live.cents, 0)
		FROM orders o
		LEFT JOIN (
			SELECT tenant_id, order_id, sum(amount_cents) AS cents FROM refund_operations
			WHERE state NOT IN ('failed', 'revoked')
			GROUP BY tenant_id, order_id
		) live ON (live.tenant_id, live.order_id) = (o.tenant_id, o.order_id)
		WHERE o.refunded_cents <> coalesce(live.cents, 0) OR o.refunded_cents NOT BETWEEN 0 AND o.captured_cents
			OR o.over_refunded_cents <> 0`)
	if err != nil {
		return err
	}
	var tenantID, orderID, live string
	var captured, refunded, over int64
	var differs bool
	_, err = pgx.ForEachRow(rows, []any{&tenantID, &orderID, &captured, &refunded, &over, &live, &differs},
		func() error {
			if differs {
				report.lie(Lie{TenantID: tenantID, OrderID: orderID, Rule: RuleRefundedCents,
					Detail: fmt.Sprintf("refunded_cents is %d, its live operations sum up to %s", refunded, live)})
			}
			excess := max(refunded-captured, 0)
			switch {
			case refunded < 0, excess > over:
				report.lie(Lie{TenantID: tenantID, OrderID: orderID, Rule: RuleWithinCapture,
					Detail: fmt.Sprintf("refunded_cents is %d of %d captured", refunded, captured)})
			case excess < over:
				report.lie(Lie{TenantID: tenantID, OrderID: orderID, Rule: RuleOverRefundedCents,
					Detail: fmt.Sprintf("over_refunded_cents is %d, and %d of %d captured were refunded", over, refunded,
						captured)})
			case over > 0:
				report.lie(Lie{TenantID: tenantID, OrderID: orderID, Rule: RuleOverRefund,
					Detail: fmt.Sprintf("of %d captured the provider paid %d, which is %d too many", captured,
						refunded, over)})
			}
			return nil
		})
	return err
}
