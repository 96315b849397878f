package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Approval approves a refund. The operation id is minted here, once, before the first attempt to execute it.
type Approval struct {
	CaseID      string            `json:"case_id"`
	OrderID     string            `json:"order_id"`
	AmountCents int64             `json:"amount_cents"` // minor units
	ApprovedBy  string            `json:"approved_by"`
	Currency    string            `json:"currency,omitempty"` // ISO 4217; empty means the order's
	Reason      string            `json:"reason,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	ExpiresAt   *time.Time        `json:"expires_at,omitempty"`
}

// AuthorizationState is how far an approval has come.
type AuthorizationState string

// The states.
const (
	AuthorizationOpen     AuthorizationState = "open"
	AuthorizationExecuted AuthorizationState = "executed"
	AuthorizationRevoked  AuthorizationState = "revoked"
	AuthorizationExpired  AuthorizationState = "expired"
)

// Authorization is an approval as the service knows it, with its refund once there is one.
type Authorization struct {
	OperationID string             `json:"operation_id"`
	CaseID      string             `json:"case_id"`
	OrderID     string             `json:"order_id"`
	AmountCents int64              `json:"amount_cents"` // minor units
	Currency    string             `json:"currency"`
	Reason      *string            `json:"reason"`
	Metadata    map[string]string  `json:"metadata"`
	ApprovedBy  string             `json:"approved_by"`
	ExpiresAt   *time.Time         `json:"expires_at"`
	CreatedAt   time.Time          `json:"created_at"`
	State       AuthorizationState `json:"state"`
	Refund      *Refund            `json:"refund"`
}

// PutAuthorization approves a refund under an operation id. It reserves nothing.
func (c *Client) PutAuthorization(ctx context.Context, operationID string, a Approval) (Authorization, error) {
	q := &call{method: http.MethodPut, path: authorizationPath(operationID), names: operationID}
	return send(ctx, c, q, a, func(got Authorization) bool { return got.OperationID == operationID })
}

// GetAuthorization returns an approval as it stands now.
func (c *Client) GetAuthorization(ctx context.Context, operationID string) (Authorization, error) {
	q := &call{method: http.MethodGet, path: authorizationPath(operationID), names: operationID}
	return get(ctx, c, q, func(got Authorization) bool { return got.OperationID == operationID })
}

// FindAuthorizations returns ALL approvals of a case, executed, revoked and expired ones included.
func (c *Client) FindAuthorizations(ctx context.Context, caseID string) (Matches[Authorization], error) {
	v := url.Values{"case_id": {caseID}}
	return get(ctx, c, &call{method: http.MethodGet, path: withQuery("/v1/authorizations", v)}, complete[Authorization])
}

// Revocation says why an approval is withdrawn, and by whom.
type Revocation struct {
	Reason    string `json:"reason,omitempty"`
	RevokedBy string `json:"revoked_by,omitempty"`
}

// RevokeAuthorization withdraws an approval that was not executed.
func (c *Client) RevokeAuthorization(ctx context.Context, operationID string, r Revocation) (Authorization, error) {
	q := &call{method: http.MethodPost, path: authorizationPath(operationID) + "/revoke", names: operationID}
	return send(ctx, c, q, r, func(got Authorization) bool { return got.OperationID == operationID })
}

func authorizationPath(operationID string) string {
	return "/v1/authorizations/" + url.PathEscape(operationID)
}
