package access

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	_, err := k.pool.Exec(ctx, `
		INSERT INTO tenants (tenant_id, require_authorization) VALUES ($1, $2)`, tenantID, requireAuthorization)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pgErr.ConstraintName == "tenants_pkey":
			return ErrTenantExists
		case pgErr.ConstraintName == "tenants_tenant_id_check", pgErr.Code == untranslatable:
			return ErrInvalidTenantID
		}
	}
	return named("create tenant", err)
}

// ListTenants returns every tenant by id.
func (k *Keys) ListTenants(ctx context.Context) ([]Tenant, error) {
	rows, err := k.pool.Query(ctx, `
		SELECT tenant_id, require_authorization, created_at FROM tenants ORDER BY tenant_id`)
	if err != nil {
		return nil, named("list tenants", err)
	}
	tenants, err := pgx.CollectRows(rows, pgx.RowToStructByName[Tenant])
	return tenants, named("list tenants", err)
}

// untranslatable is the SQLSTATE of a text that is not UTF-8, or holds NUL.
const untranslatable = "22021"
