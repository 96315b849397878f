package operations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

// Revocation asks to withdraw an authorization.
type Revocation struct {
	TenantID    string
	OperationID string
	Reason      *string
	RevokedBy   *string // as the caller says
	Actor       string  // the API key that revokes
}

// Revoke withdraws an approval by claiming its key, under the primary key that an execution claims: exactly one of them
// wins. Again it answers the same; after an execution it is a Refusal of ErrAlreadyExecuted with the operation.
func (e *Engine) Revoke(ctx context.Context, r Revocation) (Authorization, error) {
	lane := operationKey{r.TenantID, r.OperationID}.lane()
	return inTurn(ctx, e, lane,
		func(ctx context.Context, tx *pgtx.Tx) (Authorization, error) { return e.revoke(ctx, tx, r) })
}

func (e *Engine) revoke(ctx context.Context, tx pgx.Tx, r Revocation) (Authorization, error) {
	key := operationKey{r.TenantID, r.OperationID}
	claimed, err := claimRevoked(ctx, tx, key)
	if err != nil {
		return Authorization{}, err
	}
	if claimed != nil {
		if err := e.recordRevocation(ctx, tx, r, *claimed); err != nil {
			return Authorization{}, err
		}
		return findAuthorization(ctx, tx, key)
	}
	// Either the key is claimed, by an execution or an earlier withdrawal, or there is nothing to withdraw.
	op, err := readOperation(ctx, tx, key)
	switch {
	case err != nil:
		return Authorization{}, err
	case op == nil:
		return Authorization{}, ErrAuthorizationNotFound
	case op.State != StateRevoked:
		return Authorization{}, refuse(ErrAlreadyExecuted, op)
	default:
		return findAuthorization(ctx, tx, key)
	}
}

// claimRevoked claims the key of an approval for its withdrawal and answers when, or nil where there is no such
// approval or the key is not free.
func claimRevoked(ctx context.Context, tx pgx.Tx, key operationKey) (*time.Time, error) {
	a, err := approvedTerms(ctx, tx, key)
	if a == nil || err != nil {
		return nil, err
	}
	var at time.Time
	err = tx.QueryRow(ctx, `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, order_id, amount_cents, currency, state,
			created_at, settled_at)
		SELECT $1, $2, $3, $4, $5, $6, 'revoked', clock.at, clock.at
		FROM (SELECT clock_timestamp() AS at) AS clock
		ON CONFLICT (tenant_id, operation_id) DO NOTHING
		RETURNING created_at`,
		key.TenantID, key.OperationID, Fingerprint(a.orderID,
			a.amountCents), a.orderID, a.amountCents, a.currency).Scan(&at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("claim key for revocation: %w", err)
	}
	return &at, nil
}

// approved is what an authorization allows.
type approved struct {
	orderID     string
	amountCents int64
	currency    string
}

func approvedTerms(ctx context.Context, tx pgx.Tx, key operationKey) (*approved, error) {
	rows, err := tx.Query(ctx, `
		SELECT order_id, amount_cents, currency FROM refund_authorizations WHERE tenant_id = $1 AND operation_id = $2`,
		key.TenantID, key.OperationID)
	if err != nil {
		return nil, fmt.Errorf("read authorization: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*approved, error) {
		var a approved
		err := row.Scan(&a.orderID, &a.amountCents, &a.currency)
		return &a, err
	})
	if err != nil {
		return nil, fmt.Errorf("read authorization: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found[0], nil
}

func (e *Engine) recordRevocation(ctx context.Context, tx pgx.Tx, r Revocation, at time.Time) error {
	revoked := StateRevoked
	event := Event{
		TenantID: r.TenantID, OperationID: r.OperationID, Kind: "revoked", ToState: &revoked, Actor: optional(r.Actor),
		Detail: merged(nil, "reason", deref(r.Reason), "revoked_by", deref(r.RevokedBy)), CreatedAt: at,
	}
	return e.appendEvents(ctx, tx, []Event{event})
}
