package operations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
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

// Approval is what is approved: one refund, under the operation id that its execution will carry.
type Approval struct {
	TenantID    string
	OperationID string
	CaseID      string
	OrderID     string
	AmountCents int64   // minor units
	Currency    *string // ISO 4217; nil means the order's
	ApprovedBy  string
	Actor       string // the API key that approves; of the same approval again, the first one's stays
	Reason      *string
	Metadata    map[string]string
	ExpiresAt   *time.Time // kept in microseconds
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

// Authorize stores an approval and tells whether it is new. The same approval again answers the stored one (reason and
// metadata are not compared), another one under its id is ErrOperationConflict. It reserves nothing.
func (e *Engine) Authorize(ctx context.Context, a Approval) (Authorization, bool, error) {
	if a.ExpiresAt != nil {
		micros := a.ExpiresAt.Truncate(time.Microsecond)
		a.ExpiresAt = &micros
	}
	type authorized struct {
		stored Authorization
		isNew  bool
	}
	lane := orderLane(OrderKey{TenantID: a.TenantID, OrderID: a.OrderID})
	done, err := inTurn(ctx, e, lane, func(ctx context.Context, tx *pgtx.Tx) (authorized, error) {
		stored, isNew, err := AuthorizeIn(ctx, tx, a)
		return authorized{stored, isNew}, err
	})
	return done.stored, done.isNew, err
}

// AuthorizeIn is Authorize in a transaction of the caller's, for who decides what is approved. It judges an approval by
// the key's row first, as Submit does, then by the approval that has the id already.
func AuthorizeIn(ctx context.Context, tx pgx.Tx, a Approval) (Authorization, bool, error) {
	key := operationKey{a.TenantID, a.OperationID}
	op, err := a.claimed(ctx, tx)
	if err != nil {
		return Authorization{}, false, err
	}
	stored, err := findAuthorization(ctx, tx, key)
	if !errors.Is(err, ErrAuthorizationNotFound) {
		return a.again(stored, err)
	}
	currency, err := a.lockCurrency(ctx, tx)
	if err != nil {
		return Authorization{}, false, refuse(err, op)
	}
	// Where no approval is required, the key may have been claimed for another amount while we waited.
	if _, err := a.claimed(ctx, tx); err != nil {
		return Authorization{}, false, err
	}
	inserted, err := insertApproval(ctx, tx, a, currency)
	if err != nil {
		return Authorization{}, false, err
	}
	stored, err = findAuthorization(ctx, tx, key)
	if !inserted {
		return a.again(stored, err)
	}
	return stored, true, err
}

// claimed answers the refund that holds the key already, or refuses an approval of another one.
func (a Approval) claimed(ctx context.Context, tx pgx.Tx) (*Operation, error) {
	op, err := readOperation(ctx, tx, operationKey{a.TenantID, a.OperationID})
	switch {
	case err != nil:
		return nil, err
	case op != nil && op.State == StateRevoked:
		return nil, ErrAuthorizationRevoked
	case op != nil && op.Fingerprint != Fingerprint(a.OrderID, a.AmountCents):
		return nil, ErrOperationConflict
	}
	return op, nil
}

// again answers an approval whose id has one already.
func (a Approval) again(stored Authorization, err error) (Authorization, bool, error) {
	if err == nil && !a.same(stored) {
		err = ErrOperationConflict
	}
	if err != nil {
		return Authorization{}, false, err
	}
	return stored, false, nil
}

// same tells whether a says again what stored says. An approval without a currency means the order's, which never
// changes.
func (a Approval) same(stored Authorization) bool {
	return a.CaseID == stored.CaseID && a.OrderID == stored.OrderID && a.AmountCents == stored.AmountCents &&
		(a.Currency == nil || *a.Currency == stored.Currency) && a.ApprovedBy == stored.ApprovedBy &&
		(a.ExpiresAt == nil) == (stored.ExpiresAt == nil) &&
		(a.ExpiresAt == nil || a.ExpiresAt.Equal(*stored.ExpiresAt))
}

// refuse attaches the operation's row to a refusal, so that what is said of its money is true.
func refuse(err error, op *Operation) error {
	if op == nil {
		return err
	}
	return &Refusal{Err: err, Operation: op}
}

// lockCurrency answers the order's currency. Its lock waits for refunds of the order and makes later ones wait, so that
// an approval and a refund of one order see each other.
func (a Approval) lockCurrency(ctx context.Context, tx pgx.Tx) (currency string, err error) {
	err = tx.QueryRow(ctx, `SELECT currency FROM orders WHERE tenant_id = $1 AND order_id = $2 FOR SHARE`, a.TenantID,
		a.OrderID).
		Scan(&currency)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", ErrOrderNotFound
	case err != nil:
		return "", fmt.Errorf("lock order: %w", err)
	case a.Currency != nil && *a.Currency != currency:
		return "", ErrCurrencyMismatch
	}
	return currency, nil
}

func insertApproval(ctx context.Context, tx pgx.Tx, a Approval, currency string) (inserted bool, err error) {
	metadata, err := encodeMetadata(a.Metadata)
	if err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency, reason,
			metadata, approved_by, expires_at, key_id, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10, nullif($11, ''), clock_timestamp())
		ON CONFLICT (tenant_id, operation_id) DO NOTHING`,
		a.TenantID, a.OperationID, a.CaseID, a.OrderID, a.AmountCents, currency, a.Reason, metadata, a.ApprovedBy, a.ExpiresAt, a.Actor)
	if err != nil {
		return false, fmt.Errorf("insert authorization: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// Authorization answers one approval, or ErrAuthorizationNotFound.
func (r Reads) Authorization(ctx context.Context, tenantID, operationID string) (Authorization, error) {
	var a Authorization
	err := pgtx.Do(ctx, r.pool, func(tx *pgtx.Tx) (err error) {
		key := operationKey{tenantID, operationID}
		if a, err = findAuthorization(ctx, tx, key); !errors.Is(err, ErrAuthorizationNotFound) {
			return err
		}
		// A tenant that requires no authorization may have executed the key all the same.
		op, readErr := readOperation(ctx, tx, key)
		if readErr != nil {
			return readErr
		}
		return refuse(err, op)
	})
	return a, err
}

// AuthorizationsOfCase answers all approvals of a case, oldest first, or ErrTooManyMatches.
func (r Reads) AuthorizationsOfCase(ctx context.Context, tenantID, caseID string) ([]Authorization, error) {
	var found []Authorization
	err := pgtx.Do(ctx, r.pool, func(tx *pgtx.Tx) (err error) {
		found, err = selectAuthorizations(ctx, tx, // of too many it reads no more than tells so
			`WHERE tenant_id = $1 AND case_id = $2 AND amount_cents > 0 LIMIT $3`, tenantID, caseID, MaxMatches+1)
		return err
	})
	return allMatches(found, err)
}

func findAuthorization(ctx context.Context, tx pgx.Tx, key operationKey) (Authorization, error) {
	found, err := selectAuthorizations(ctx, tx, `WHERE tenant_id = $1 AND operation_id = $2`, key.TenantID,
		key.OperationID)
	if err != nil {
		return Authorization{}, err
	}
	if len(found) == 0 {
		return Authorization{}, ErrAuthorizationNotFound
	}
	return found[0], nil
}

// selectAuthorizations reads the approvals that picked says, oldest first, with the operations that claimed their keys.
func selectAuthorizations(ctx context.Context, tx pgx.Tx, picked string, args ...any) ([]Authorization, error) {
	rows, err := tx.Query(ctx, `
		SELECT a.tenant_id, a.operation_id, a.case_id, a.order_id, a.amount_cents, a.currency, a.reason, a.metadata,
			a.approved_by, CASE WHEN a.expires_at < 'infinity' THEN greatest(a.expires_at, '0001-01-01T00:00:00Z') END,
				a.created_at,
			CASE WHEN o.state = 'revoked' THEN 'revoked' WHEN o.state IS NOT NULL THEN 'executed'
			     WHEN a.expires_at <= clock_timestamp() THEN 'expired' ELSE 'open' END
		FROM (SELECT * FROM refund_authorizations `+picked+`) a
		LEFT JOIN refund_operations o ON o.tenant_id = a.tenant_id AND o.operation_id = a.operation_id
		ORDER BY a.created_at, a.operation_id`, args...)
	if err != nil {
		return nil, fmt.Errorf("select authorizations: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Authorization, error) {
		var a Authorization
		err := row.Scan(&a.TenantID, &a.OperationID, &a.CaseID, &a.OrderID, &a.AmountCents, &a.Currency, &a.Reason,
			&a.Metadata, &a.ApprovedBy, &a.ExpiresAt, &a.CreatedAt, &a.State)
		return a, err
	})
	if err != nil {
		return nil, fmt.Errorf("select authorizations: %w", err)
	}
	return found, attachRefunds(ctx, tx, found)
}

// attachRefunds gives executed approvals their refunds. A refund is never undone, so that a later statement finds it.
func attachRefunds(ctx context.Context, tx pgx.Tx, found []Authorization) error {
	var keys []operationKey
	for _, a := range found {
		if a.State == AuthorizationExecuted {
			keys = append(keys, operationKey{a.TenantID, a.OperationID})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	var known map[operationKey]Operation
	b := &pgx.Batch{}
	queueOperations(b, keys, func(operations map[operationKey]Operation) { known = operations })
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("read refunds of authorizations: %w", err)
	}
	for i, a := range found {
		if op, executed := known[operationKey{a.TenantID, a.OperationID}]; executed {
			found[i].Refund = &op
		}
	}
	return nil
}
