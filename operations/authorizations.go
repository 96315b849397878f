package operations

import (
	"context"
	"errors"
	"time"
)

// Why an authorization does not allow a refund, or can not be changed.
var (
	// ErrAuthorizationNotFound reports an operation that nobody approved.
	ErrAuthorizationNotFound = errors.New("authorization not found")
	// ErrAuthorizationMismatch reports an approval of another order, amount or currency.
	ErrAuthorizationMismatch = errors.New("authorization mismatch")
	// ErrAuthorizationExpired reports an approval whose time has passed by the database's clock.
	ErrAuthorizationExpired = errors.New("authorization expired")
	// ErrAuthorizationRevoked reports an approval that was withdrawn before it was executed.
	ErrAuthorizationRevoked = errors.New("authorization revoked")
	// ErrAlreadyExecuted reports a withdrawal that came too late.
	ErrAlreadyExecuted = errors.New("authorization already executed")
)

// AuthorizationState is where an approval stands.
type AuthorizationState string

// The states of an authorization.
const (
	AuthorizationOpen     AuthorizationState = "open"
	AuthorizationExecuted AuthorizationState = "executed" // a refund holds its key, in whatever state
	AuthorizationRevoked  AuthorizationState = "revoked"
	AuthorizationExpired  AuthorizationState = "expired"
)

// Approval is what PUT of an authorization says.
type Approval struct {
	TenantID    string
	OperationID string
	CaseID      string
	OrderID     string
	AmountCents int64   // minor units
	Currency    *string // ISO 4217; nil means the order's
	ApprovedBy  string
	Reason      *string
	Metadata    map[string]string
	ExpiresAt   *time.Time
}

// Authorization is an approval as it stands, with the refund that executed it.
type Authorization struct {
	TenantID    string
	OperationID string
	CaseID      string
	OrderID     string
	AmountCents int64  // minor units
	Currency    string // ISO 4217
	Reason      *string
	Metadata    map[string]string
	ApprovedBy  string
	ExpiresAt   *time.Time
	CreatedAt   time.Time
	State       AuthorizationState
	Refund      *Operation // nil until it is executed
}

// Revocation asks to withdraw an authorization.
type Revocation struct {
	TenantID    string
	OperationID string
	Reason      *string
	RevokedBy   *string
}

// Authorize stores an approval and tells whether it is new. The same approval again answers the stored one (reason and
// metadata are not compared); a different one is ErrOperationConflict. It reserves nothing.
func (e *Engine) Authorize(ctx context.Context, a Approval) (Authorization, bool, error) {
	return Authorization{}, false, errors.ErrUnsupported
}

// Authorization answers one approval, or ErrAuthorizationNotFound.
func (e *Engine) Authorization(ctx context.Context, tenantID, operationID string) (Authorization, error) {
	return Authorization{}, errors.ErrUnsupported
}

// AuthorizationsOfCase answers all approvals of a case, oldest first, or ErrTooManyMatches.
func (e *Engine) AuthorizationsOfCase(ctx context.Context, tenantID, caseID string) ([]Authorization, error) {
	return nil, errors.ErrUnsupported
}

// Revoke withdraws an approval by claiming its key; again it answers the same. After the execution it is ErrAlreadyExecuted.
func (e *Engine) Revoke(ctx context.Context, r Revocation) (Authorization, error) {
	return Authorization{}, errors.ErrUnsupported
}
