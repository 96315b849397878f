package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

type showCmd struct {
	database
	providerAccess
	OperationID string `arg:"" help:"The operation, as approved."`
	Tenant      string `placeholder:"T" help:"Whose it is; needed where several tenants have one of that name."`
	JSON        bool   `name:"json" help:"Print one JSON object."`
}

// record is all that is known of one operation: by the database as of one moment, and by its provider. A part that does not
// exist is null.
type record struct {
	TenantID      string           `json:"tenant_id"`
	OperationID   string           `json:"operation_id"`
	Warning       *string          `json:"warning"`               // where the provider's books say otherwise than the rows
	Expired       bool             `json:"authorization_expired"` // by the database's clock
	Authorization jsontext.Value   `json:"authorization"`
	Operation     jsontext.Value   `json:"operation"`
	Order         jsontext.Value   `json:"order"`
	Transfers     []jsontext.Value `json:"transfers"`
	Events        []jsontext.Value `json:"events"`
	ProviderView  *providerView    `json:"provider_view"` // not of that moment, but of now
}

// Run prints an operation's record for the person who was paged.
func (s showCmd) Run(ctx context.Context, c console) error {
	pool, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	var found record
	err = pgtx.Snapshot(ctx, pool, func(tx *pgtx.Tx) error {
		tenant, err := s.findTenant(ctx, tx)
		if err != nil {
			return err
		}
		found, err = readRecord(ctx, tx, tenant, s.OperationID)
		return err
	})
	if err != nil {
		return err
	}
	if found.ProviderView, err = s.view(ctx, found); err != nil {
		return err
	}
	if text := found.warning(); text != "" {
		found.Warning = &text
	}
	if s.JSON {
		return printJSON(c, found)
	}
	return printRecord(c.stdout, found)
}

// findTenant answers whose operation is meant.
func (s showCmd) findTenant(ctx context.Context, tx pgx.Tx) (string, error) {
	rows, _ := tx.Query(ctx, `
		SELECT tenant_id FROM tenants t
		WHERE ($2 = '' OR tenant_id = $2)
		  AND (EXISTS (SELECT FROM refund_authorizations a WHERE a.tenant_id = t.tenant_id AND a.operation_id = $1)
		    OR EXISTS (SELECT FROM refund_operations o WHERE o.tenant_id = t.tenant_id AND o.operation_id = $1))
		ORDER BY tenant_id`, s.OperationID, s.Tenant)
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return "", fmt.Errorf("find operation: %w", err)
	case len(tenants) == 0:
		return "", &fault{text: fmt.Sprintf("operation %q is neither approved nor refunded", s.OperationID)}
	case len(tenants) > 1:
		return "", usage("operation %q exists in several tenants (%s): add --tenant", s.OperationID, strings.Join(tenants, ", "))
	}
	return tenants[0], nil
}

// readRecord reads whole rows, so that a column of a later schema is shown as well.
func readRecord(ctx context.Context, tx pgx.Tx, tenant, operation string) (record, error) {
	if _, err := tx.Exec(ctx, `SET LOCAL TIME ZONE 'UTC'`); err != nil {
		return record{}, fmt.Errorf("read operation: %w", err)
	}
	r := record{TenantID: tenant, OperationID: operation}
	var authorization, row, order []byte
	var transfers, events [][]byte
	err := tx.QueryRow(ctx, `
		SELECT row_to_json(a), row_to_json(o), row_to_json(r), coalesce(a.expires_at <= clock_timestamp(), false),
		       ARRAY(SELECT row_to_json(l) FROM ledger_transfers l WHERE l.tenant_id = $1 AND l.operation_id = $2 ORDER BY l.seq),
		       ARRAY(SELECT row_to_json(e) FROM operation_events e WHERE e.tenant_id = $1 AND e.operation_id = $2 ORDER BY e.seq)
		FROM (SELECT $1::text AS tenant_id, $2::text AS operation_id) k
		LEFT JOIN refund_authorizations a USING (tenant_id, operation_id)
		LEFT JOIN refund_operations o USING (tenant_id, operation_id)
		LEFT JOIN orders r ON r.tenant_id = $1 AND r.order_id = coalesce(o.order_id, a.order_id)`,
		tenant, operation).Scan(&authorization, &row, &order, &r.Expired, &transfers, &events)
	if err != nil {
		return record{}, fmt.Errorf("read operation: %w", err)
	}
	r.Authorization, r.Operation, r.Order = orNull(authorization), orNull(row), orNull(order)
	r.Transfers, r.Events = values(transfers), values(events)
	if r.Authorization.Kind() == 'n' && r.Operation.Kind() == 'n' {
		return record{}, errors.New("read operation: its rows are gone")
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
