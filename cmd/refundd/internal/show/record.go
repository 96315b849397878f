// Package show tells all that is known of one operation, for the person who was paged: what the database holds as of
// one moment, and what the provider's books show now.
//
// Its promises: nothing that others wrote drives a terminal; where rows and the provider's books contradict each other,
// that stands first.
package show

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
	"refundd/operations"
)

// ErrNotFound reports an operation that is neither approved nor refunded.
var ErrNotFound = errors.New("neither approved nor refunded")

// AmbiguousError reports an operation that several tenants have, and no tenant was named.
type AmbiguousError struct{ Tenants []string }

func (e *AmbiguousError) Error() string {
	return "several tenants have it: " + strings.Join(e.Tenants, ", ")
}

// Record is all that is known of one operation: by the database as of one moment, and by its provider. A part that does
// not exist is null.
type Record struct {
	TenantID    string `json:"tenant_id"`
	OperationID string `json:"operation_id"`
	// where the provider's books say otherwise than the rows
	Warning       *string          `json:"warning"`
	Expired       bool             `json:"authorization_expired"` // by the database's clock
	Authorization jsontext.Value   `json:"authorization"`
	Operation     jsontext.Value   `json:"operation"`
	Order         jsontext.Value   `json:"order"`
	Transfers     []jsontext.Value `json:"transfers"`
	Events        []jsontext.Value `json:"events"`
	ProviderView  *providerView    `json:"provider_view"` // not of that moment, but of now
}

// Read returns what the rows and the provider's books say of an operation; tenant is whose it is, "" where only one has
// it.
func Read(ctx context.Context, pool *pgxpool.Pool, providers map[string]operations.ProviderSetup, tenant,
	operation string) (
	r Record, err error,
) {
	err = pgtx.Snapshot(ctx, pool, func(tx *pgtx.Tx) error {
		owner, err := findTenant(ctx, tx, tenant, operation)
		if err != nil {
			return err
		}
		r, err = readRecord(ctx, tx, owner, operation)
		return err
	})
	if err != nil {
		return Record{}, err
	}
	if r.ProviderView, err = r.view(ctx, providers); err != nil {
		return Record{}, err
	}
	if text := r.warning(); text != "" {
		r.Warning = &text
	}
	return r, nil
}

// findTenant returns whose operation is meant.
func findTenant(ctx context.Context, tx pgx.Tx, tenant, operation string) (string, error) {
	rows, _ := tx.Query(ctx, `
		SELECT tenant_id FROM tenants t
		WHERE ($2 = '' OR tenant_id = $2)
		  AND (EXISTS (SELECT FROM refund_authorizations a WHERE a.tenant_id = t.tenant_id AND a.operation_id = $1)
		    OR EXISTS (SELECT FROM refund_operations o WHERE o.tenant_id = t.tenant_id AND o.operation_id = $1))
		ORDER BY tenant_id`, operation, tenant)
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return "", fmt.Errorf("find operation: %w", err)
	case len(tenants) == 0:
		return "", ErrNotFound
	case len(tenants) > 1:
		return "", &AmbiguousError{tenants}
	}
	return tenants[0], nil
}

// readRecord reads whole rows, so that a column of a later schema is shown as well.
func readRecord(ctx context.Context, tx pgx.Tx, tenant, operation string) (Record, error) {
	if _, err := tx.Exec(ctx, `SET LOCAL TIME ZONE 'UTC'`); err != nil {
		return Record{}, fmt.Errorf("read operation: %w", err)
	}
	r := Record{TenantID: tenant, OperationID: operation}
	var authorization, row, order []byte
	var transfers, events [][]byte
	err := tx.QueryRow(ctx, `
		SELECT row_to_json(a), row_to_json(o), row_to_json(r), coalesce(a.expires_at <= clock_timestamp(), false),
		       ARRAY(SELECT row_to_json(l) FROM ledger_transfers l WHERE l.tenant_id = $1
			AND l.operation_id = $2 ORDER BY l.seq),
		       ARRAY(SELECT row_to_json(e) FROM operation_events e WHERE e.tenant_id = $1
			AND e.operation_id = $2 ORDER BY e.seq)
		FROM (SELECT $1::text AS tenant_id, $2::text AS operation_id) k
		LEFT JOIN refund_authorizations a USING (tenant_id, operation_id)
		LEFT JOIN refund_operations o USING (tenant_id, operation_id)
		LEFT JOIN orders r ON r.tenant_id = $1 AND r.order_id = coalesce(o.order_id, a.order_id)`,
		tenant, operation).Scan(&authorization, &row, &order, &r.Expired, &transfers, &events)
	if err != nil {
		return Record{}, fmt.Errorf("read operation: %w", err)
	}
	r.Authorization, r.Operation, r.Order = orNull(authorization), orNull(row), orNull(order)
	r.Transfers, r.Events = values(transfers), values(events)
	if r.Authorization.Kind() == 'n' && r.Operation.Kind() == 'n' {
		return Record{}, errors.New("read operation: its rows are gone")
	}
	return r, nil
}

func orNull(raw []byte) jsontext.Value {
	if raw == nil {
		return jsontext.Value("null")
	}
	return raw
}

func values(raws [][]byte) []jsontext.Value {
	list := make([]jsontext.Value, 0, len(raws))
	for _, raw := range raws {
		list = append(list, raw)
	}
	return list
}
