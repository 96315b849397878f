package access

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

var (
	// ErrTenantExists reports a tenant id that is taken.
	ErrTenantExists = errors.New("tenant exists already")
	// ErrTenantNotFound reports a tenant id that is not known.
	ErrTenantNotFound = errors.New("tenant not found")
	// ErrInvalidTenantID reports a tenant id that is not [a-z0-9-]{1,63}.
	ErrInvalidTenantID = errors.New("a tenant id is 1 to 63 characters of a-z, 0-9 and -")
)

// Tenant is one of the parties that share the service and see nothing of each other.
type Tenant struct {
	TenantID             string
	RequireAuthorization bool // false: a refund without an authorization executes
	CreatedAt            time.Time
}

// CreateTenant adds a tenant. Errors: ErrTenantExists, ErrInvalidTenantID, ErrUnavailable.
func (k *Keys) CreateTenant(ctx context.Context, tenantID string, requireAuthorization bool) error {
	// The time is the token by which a second try knows the row of a first one that committed unheard.
	var at time.Time
	err := pgtx.Read(ctx, k.pool, func(b *pgx.Batch) {
		b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&at) })
	})
	if err != nil {
		return named("create tenant", err)
	}
	mine, err := pgtx.InTx(ctx, k.pool, func(tx *pgtx.Tx) (mine bool, err error) {
		_, err = tx.Exec(ctx, `
			INSERT INTO tenants (tenant_id, require_authorization, created_at) VALUES ($1, $2, $3)
			ON CONFLICT (tenant_id) DO NOTHING`, tenantID, requireAuthorization, at)
		if err != nil {
			return false, err
		}
		err = tx.QueryRow(ctx, `SELECT created_at = $2 FROM tenants WHERE tenant_id = $1`, tenantID, at).Scan(&mine)
		return mine, err
	})
	switch {
	case pgtx.Constraint(err) == "tenants_tenant_id_check", pgtx.SQLState(err) == pgerrcode.CharacterNotInRepertoire:
		return ErrInvalidTenantID
	case err == nil && !mine:
		return ErrTenantExists
	}
	return named("create tenant", err)
}

// ListTenants returns every tenant by id.
func (k *Keys) ListTenants(ctx context.Context) (tenants []Tenant, err error) {
	err = pgtx.Read(ctx, k.pool, func(b *pgx.Batch) {
		b.Queue(`SELECT tenant_id, require_authorization, created_at FROM tenants ORDER BY tenant_id`).
			Query(func(rows pgx.Rows) (err error) {
				tenants, err = pgx.CollectRows(rows, pgx.RowToStructByName[Tenant])
				return err
			})
	})
	return tenants, named("list tenants", err)
}
