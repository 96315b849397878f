package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"refundd/access"
	"refundd/cmd/refundd/internal/postgres"
)

type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Make a key; its secret alone is printed on stdout, this once."`
	List   keysListCmd   `cmd:"" help:"List keys, without their secrets."`
	Revoke keysRevokeCmd `cmd:"" help:"End a key; every replica refuses it within 5 s."`
	Rotate keysRotateCmd `cmd:"" help:"Make a key like another one and end that one; prints the new secret."`
}

type keysCreateCmd struct {
	postgres.Database
	Tenant string         `required:"" placeholder:"T" help:"Whose key it is."`
	Scopes []access.Scope `required:"" placeholder:"A,B" help:"What it may do: orders:write, authorizations:write, refunds:write, refunds:resolve, refunds:request, webhooks:write, read."`
	TTL    *time.Duration `name:"ttl" placeholder:"DURATION" help:"How long it lives, such as 720h (default for ever)."`
}

// Run prints the secret of a new key.
func (k keysCreateCmd) Run(ctx context.Context, c console) error {
	return k.WithKeys(ctx, func(keys *access.Keys) error {
		secret, key, err := keys.CreateKey(ctx, access.NewKey{TenantID: k.Tenant, Scopes: k.Scopes, TTL: k.TTL})
		if err != nil {
			return accessFault(err)
		}
		printSecret(c, secret, key)
		if slices.Contains(key.Scopes, access.AuthorizationsWrite) && slices.Contains(key.Scopes, access.RefundsWrite) {
			_, _ = fmt.Fprintln(c.stderr,
				"warning: this key can approve a refund and execute it: whoever holds it needs nobody's approval; "+
					"give the approving system and the executing one a key each")
		}
		return nil
	})
}

// printSecret keeps the secret apart from all that is said about it.
func printSecret(c console, secret string, key access.Key) {
	c.printf("%s\n", secret)
	_, _ = fmt.Fprintf(c.stderr, "key %s of tenant %s, scopes %s, expires %s; the secret is not shown again\n",
		key.KeyID, key.TenantID, joinScopes(key.Scopes), stamp(key.ExpiresAt))
}

type keysListCmd struct {
	postgres.Database
	Tenant string `placeholder:"T" help:"Of this tenant only."`
}

// Run prints one line per key, ended ones included.
func (k keysListCmd) Run(ctx context.Context, c console) error {
	return k.WithKeys(ctx, func(keys *access.Keys) error {
		tenants := []access.Tenant{{TenantID: k.Tenant}}
		if k.Tenant == "" {
			all, err := keys.ListTenants(ctx)
			if err != nil {
				return accessFault(err)
			}
			tenants = all
		}
		out := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(out, "KEY\tTENANT\tSTATE\tSCOPES\tCREATED_AT\tEXPIRES_AT\tREVOKED_AT\tLAST_USED_AT")
		for _, tenant := range tenants {
			list, err := keys.ListKeys(ctx, tenant.TenantID)
			if err != nil {
				return accessFault(err)
			}
			for _, one := range list {
				_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.KeyID, one.TenantID, one.State,
					joinScopes(one.Scopes), stamp(&one.CreatedAt), stamp(one.ExpiresAt), stamp(one.RevokedAt),
					stamp(one.LastUsedAt))
			}
		}
		return out.Flush()
	})
}

type keysRevokeCmd struct {
	postgres.Database
	KeyID string `arg:"" help:"The key's id, as keys list shows it."`
}

// Run ends a key and prints its id.
func (k keysRevokeCmd) Run(ctx context.Context, c console) error {
	return k.WithKeys(ctx, func(keys *access.Keys) error {
		if err := keys.RevokeKey(ctx, k.KeyID); err != nil {
			return accessFault(err)
		}
		c.printf("%s\n", k.KeyID)
		return nil
	})
}

type keysRotateCmd struct {
	postgres.Database
	KeyID string        `arg:"" help:"The key to replace."`
	Grace time.Duration `default:"0s" help:"How long the old one still works (default not at all)."`
}

// Run prints the secret of the key that takes over.
func (k keysRotateCmd) Run(ctx context.Context, c console) error {
	return k.WithKeys(ctx, func(keys *access.Keys) error {
		secret, key, err := keys.RotateKey(ctx, k.KeyID, k.Grace)
		if err != nil {
			return accessFault(err)
		}
		printSecret(c, secret, key)
		return nil
	})
}

func joinScopes(scopes []access.Scope) string {
	names := make([]string, len(scopes))
	for i, scope := range scopes {
		names[i] = string(scope)
	}
	return strings.Join(names, ",")
}

func scopeNames() string { return strings.ReplaceAll(joinScopes(access.AllScopes()), ",", ", ") }
