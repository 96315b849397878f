package access

import (
	"errors"
	"slices"
)

// Scope is one thing that a key may do.
type Scope string

// The scopes.
const (
	OrdersWrite         Scope = "orders:write"         // register orders
	AuthorizationsWrite Scope = "authorizations:write" // approve refunds and withdraw approvals
	RefundsWrite        Scope = "refunds:write"        // execute approved refunds, look them up at the provider
	RefundsResolve      Scope = "refunds:resolve"      // decide, as a human, an operation that needs attention
	RefundsRequest      Scope = "refunds:request"      // ask for a refund to be approved, hand a case over
	WebhooksWrite       Scope = "webhooks:write"       // say where events go, and send them again
	Read                Scope = "read"                 // every GET
)

var (
	// ErrForbidden reports a key that is valid but lacks the scope that the act needs.
	ErrForbidden = errors.New("the key lacks the scope")
	// ErrInvalidScope reports a scope that does not exist, or a key without any.
	ErrInvalidScope = errors.New("invalid scope")
)

// AllScopes returns every scope that opens something.
func AllScopes() []Scope {
	return []Scope{OrdersWrite, AuthorizationsWrite, RefundsWrite, RefundsResolve, RefundsRequest, WebhooksWrite, Read}
}

// Principal is an authenticated caller. Its scopes are shared and must not be changed.
type Principal struct {
	TenantID string
	KeyID    string
	Scopes   []Scope
}

// Allows tells whether the key carries the scope; who refuses says ErrForbidden.
func (p Principal) Allows(scope Scope) bool { return slices.Contains(p.Scopes, scope) }

// stored is how Postgres takes scopes: valid, sorted, each once.
func stored(scopes []Scope) ([]string, error) {
	names := make([]string, 0, len(scopes))
	for _, s := range scopes {
		if !slices.Contains(AllScopes(), s) {
			return nil, ErrInvalidScope
		}
		names = append(names, string(s))
	}
	if len(names) == 0 {
		return nil, ErrInvalidScope
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func scopesOf(names []string) []Scope {
	scopes := make([]Scope, len(names))
	for i, name := range names {
		scopes[i] = Scope(name)
	}
	return scopes
}
