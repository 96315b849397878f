package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"refundd/access"
	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
)

type tenantsCmd struct {
	Create tenantsCreateCmd `cmd:"" help:"Add a tenant."`
	List   tenantsListCmd   `cmd:"" help:"List all tenants."`
}

type tenantsCreateCmd struct {
	postgres.Database
	Tenant               string `required:"" placeholder:"T" help:"Its id: 1 to 63 characters of a-z, 0-9 and -."`
	RequireAuthorization bool   `default:"true" negatable:"" help:"Refuse refunds that nobody approved (default true)."`
}

// Run adds a tenant and prints its id.
func (t tenantsCreateCmd) Run(ctx context.Context, c console) error {
	return t.WithKeys(ctx, func(keys *access.Keys) error {
		if err := keys.CreateTenant(ctx, t.Tenant, t.RequireAuthorization); err != nil {
			return accessFault(err)
		}
		c.printf("%s\n", t.Tenant)
		return nil
	})
}

type tenantsListCmd struct{ postgres.Database }

// Run prints one line per tenant.
func (t tenantsListCmd) Run(ctx context.Context, c console) error {
	return t.WithKeys(ctx, func(keys *access.Keys) error {
		tenants, err := keys.ListTenants(ctx)
		if err != nil {
			return accessFault(err)
		}
		out := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(out, "TENANT\tREQUIRE_AUTHORIZATION\tCREATED_AT")
		for _, one := range tenants {
			_, _ = fmt.Fprintf(out, "%s\t%t\t%s\n", one.TenantID, one.RequireAuthorization, stamp(&one.CreatedAt))
		}
		return out.Flush()
	})
}

// accessFault tells what the caller asked wrongly from what failed.
func accessFault(err error) error {
	for _, wrong := range []error{access.ErrInvalidTenantID, access.ErrInvalidLifetime} {
		if errors.Is(err, wrong) {
			return fault.Usage("%s", wrong)
		}
	}
	if errors.Is(err, access.ErrInvalidScope) {
		return fault.Usage("--scopes takes a comma-separated list of %s", scopeNames())
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == pgerrcode.InsufficientPrivilege {
		return fault.New(err, "the login in DATABASE_URL may not do this: use the owner, or a login of "+
			"refundd login create --role operator")
	}
	return err
}

// stamp is a time in UTC to the second, - for none.
func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
