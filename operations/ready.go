package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CanWrite is an error where the transactions of a refund would be refused: tables or columns that are missing,
// privileges that were taken away, a server that is read-only. Its statements ask for all that, and write nothing.
func CanWrite(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	for _, sql := range []string{
		`UPDATE orders SET refunded_cents = refunded_cents WHERE false`,
		`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state)
			SELECT tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents, currency, state
			FROM refund_operations WHERE false`,
		`UPDATE refund_operations SET state = state, lease_until = lease_until, settled_at = settled_at WHERE false`,
		`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents,
			currency)
			SELECT tenant_id, operation_id, seq, kind, debit_account, credit_account, amount_cents, currency
			FROM ledger_transfers WHERE false`,
		`INSERT INTO operation_events (tenant_id, operation_id, kind)
			SELECT tenant_id, operation_id, kind FROM operation_events WHERE false`,
		`SELECT FROM refund_authorizations, tenants, api_keys WHERE false`,
	} {
		b.Queue(sql)
	}
	b.Queue(`SELECT count(*) FROM pg_proc WHERE proname IN ('claim_refund', 'claim_refunds')
		AND pronamespace = 'public'::regnamespace
		AND has_function_privilege(oid, 'EXECUTE')`).QueryRow(func(row pgx.Row) error {
		var callable int
		if err := row.Scan(&callable); err != nil || callable == 2 {
			return err
		}
		return errors.New("claim_refund or claim_refunds can not be called")
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("ask whether a refund can be written: %w", err)
	}
	return nil
}
