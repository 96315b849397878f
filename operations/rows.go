package operations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// operationKey is the primary key of refund_operations: the constraint that money moves once under.
type operationKey struct {
	TenantID    string
	OperationID string
}

// operationColumns reads an operation o for scanOperation. Its owner may have moved its times to any other, infinity
// included: what can not be told is told as the nearest that can, and no lease is longer than a day.
const operationColumns = `o.tenant_id, o.operation_id, o.fingerprint, coalesce(o.refund_id::text, ''), o.order_id,
	o.amount_cents, o.currency, o.reason, o.metadata, o.state, o.provider, o.provider_refund_id, o.failure_code,
	greatest(least(o.created_at, '9999-12-31T23:59:59.999999Z'), '0001-01-01T00:00:00Z'), o.settled_at,
	CASE WHEN o.provider IS NOT NULL AND o.lease_until > clock_timestamp()
		THEN (extract(epoch FROM least(o.lease_until, clock_timestamp() + interval '1 day') - clock_timestamp()) * 1000000000)::bigint
		ELSE 0 END`

// targets are what a row of operationColumns is scanned into.
func (o *Operation) targets() []any {
	return []any{
		&o.TenantID, &o.OperationID, &o.Fingerprint, &o.RefundID, &o.OrderID, &o.AmountCents, &o.Currency, &o.Reason,
		&o.Metadata, &o.State, &o.Provider, &o.ProviderRefundID, &o.FailureCode, &o.CreatedAt, &o.SettledAt, &o.LeaseLeft,
	}
}

func scanOperation(row pgx.CollectableRow) (Operation, error) {
	var o Operation
	err := row.Scan(o.targets()...)
	return o, err
}

// queueOperations queues the reading of those keys that are claimed.
func queueOperations(b *pgx.Batch, keys []operationKey, found func(map[operationKey]Operation)) {
	tenants, ids := columns(keys)
	b.Queue(`
		SELECT `+operationColumns+`
		FROM unnest($1::text[], $2::text[]) AS k (tenant_id, operation_id)
		JOIN refund_operations o ON o.tenant_id = k.tenant_id AND o.operation_id = k.operation_id`,
		tenants, ids).Query(func(rows pgx.Rows) error {
		known := make(map[operationKey]Operation, len(keys))
		var o Operation
		_, err := pgx.ForEachRow(rows, o.targets(), func() error {
			known[operationKey{o.TenantID, o.OperationID}] = o
			o = Operation{} // no row is scanned over what an earlier one holds
			return nil
		})
		if err == nil {
			found(known)
		}
		return err
	})
}

// readOperation answers the row of a key, or nil where nothing claimed it.
func readOperation(ctx context.Context, tx pgx.Tx, key operationKey) (*Operation, error) {
	rows, err := tx.Query(ctx, `SELECT `+operationColumns+` FROM refund_operations o
		WHERE o.tenant_id = $1 AND o.operation_id = $2`, key.TenantID, key.OperationID)
	if err != nil {
		return nil, fmt.Errorf("read operation: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanOperation)
	if err != nil {
		return nil, fmt.Errorf("read operation: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

func columns(keys []operationKey) (tenants, ids []string) {
	tenants, ids = make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], ids[i] = k.TenantID, k.OperationID
	}
	return tenants, ids
}
