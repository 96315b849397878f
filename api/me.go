package api

import (
	"context"
	"net/http"

	"refundd/access"
)

// me is the caller's own key, and what holds for its tenant, on the wire.
type me struct {
	TenantID             string         `json:"tenant_id"`
	RequireAuthorization bool           `json:"require_authorization"`
	KeyID                string         `json:"key_id"`
	Scopes               []access.Scope `json:"scopes"`
	ExpiresAt            *timestamp     `json:"expires_at"`
}

// caller is a key and its tenant.
type caller struct {
	key    access.Key
	tenant access.Tenant
}

func readCaller(in *input) string { return in.x.principal.KeyID }

func (s *server) caller(ctx context.Context, keyID string) (caller, error) {
	key, tenant, err := s.keys.KeyAndTenant(ctx, keyID)
	return caller{key, tenant}, err
}

func showCaller(c caller) reply {
	return reply{status: http.StatusOK, body: &me{
		TenantID: c.key.TenantID, RequireAuthorization: c.tenant.RequireAuthorization, KeyID: c.key.KeyID,
		Scopes: c.key.Scopes, ExpiresAt: optionalTime(c.key.ExpiresAt),
	}}
}
