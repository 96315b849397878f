package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

var (
	// ErrKeyNotFound reports a key id that is not known.
	ErrKeyNotFound = errors.New("key not found")
	// ErrKeyEnded reports that a revoked or expired key was to be rotated.
	ErrKeyEnded = errors.New("key is revoked or expired")
	// ErrInvalidLifetime reports a lifetime that is not positive, or a negative grace.
	ErrInvalidLifetime = errors.New("invalid lifetime")
)

const (
	secretPrefix = "rfd_" // lets scanners of leaked secrets know it
	secretBytes  = 32
	secretLength = len(secretPrefix) + (secretBytes*8+5)/6 // base64url without padding
)

// KeyState says whether a key authenticates, by the database's clock at the time of reading.
type KeyState string

// The states of a key.
const (
	KeyActive  KeyState = "active"
	KeyExpired KeyState = "expired"
	KeyRevoked KeyState = "revoked"
)

// Key is an API key without its secret.
type Key struct {
	KeyID      string
	TenantID   string
	Scopes     []Scope
	State      KeyState
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: never
	RevokedAt  *time.Time
	LastUsedAt *time.Time // coarse: written about once a minute
}

// NewKey says what key to make.
type NewKey struct {
	TenantID string
	Scopes   []Scope
	TTL      *time.Duration // nil: it never expires
}

// CreateKey makes a key and returns its secret, which nobody can read again. Errors: ErrTenantNotFound,
// ErrInvalidScope, ErrInvalidLifetime, ErrUnavailable.
func (k *Keys) CreateKey(ctx context.Context, n NewKey) (secret string, key Key, err error) {
	scopes, err := stored(n.Scopes)
	if err != nil {
		return "", Key{}, err
	}
	var lifeMicros *int64
	if n.TTL != nil {
		if *n.TTL < time.Microsecond {
			return "", Key{}, ErrInvalidLifetime
		}
		micros := n.TTL.Microseconds()
		lifeMicros = &micros
	}
	keyID, secret, err := mint()
	if err != nil {
		return "", Key{}, err
	}
	h := sha256.Sum256([]byte(secret))
	key, err = pgtx.InTx(ctx, k.pool, func(tx *pgtx.Tx) (Key, error) {
		_, err := tx.Exec(ctx, `
			INSERT INTO api_keys (key_id, tenant_id, secret_hash, scopes, created_at, expires_at)
			SELECT $1, tenant_id, $3, $4::text[], t.now, t.now + $5::bigint * interval '1 microsecond'
			FROM tenants, (SELECT clock_timestamp() AS now) t WHERE tenant_id = $2
			ON CONFLICT (key_id) DO NOTHING`, keyID, n.TenantID, h[:], scopes,
			lifeMicros) // an earlier try may have committed
		if err != nil {
			return Key{}, err
		}
		return findKey(ctx, tx, keyID)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows), pgtx.SQLState(err) == pgerrcode.CharacterNotInRepertoire:
		return "", Key{}, ErrTenantNotFound
	case err != nil:
		return "", Key{}, named("create key", err)
	}
	return secret, key, nil
}

// KeyAndTenant returns one key and its tenant, or ErrKeyNotFound.
func (k *Keys) KeyAndTenant(ctx context.Context, keyID string) (key Key, of Tenant, err error) {
	err = pgtx.Read(ctx, k.pool, func(b *pgx.Batch) {
		b.Queue(`SELECT `+keyColumns+` FROM api_keys WHERE key_id = $1`, keyID).Query(func(rows pgx.Rows) (err error) {
			key, err = oneKey(rows, nil)
			return err
		})
		b.Queue(`
			SELECT t.tenant_id, t.require_authorization, t.created_at
			FROM tenants t JOIN api_keys k ON k.tenant_id = t.tenant_id
			WHERE k.key_id = $1`, keyID).QueryRow(func(row pgx.Row) error {
			return row.Scan(&of.TenantID, &of.RequireAuthorization, &of.CreatedAt)
		})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Key{}, Tenant{}, ErrKeyNotFound
	}
	if err != nil {
		return Key{}, Tenant{}, fmt.Errorf("read key: %w", err)
	}
	return key, of, nil
}

// ListKeys returns a tenant's keys, ended ones included, oldest first. Errors: ErrTenantNotFound, ErrUnavailable.
func (k *Keys) ListKeys(ctx context.Context, tenantID string) ([]Key, error) {
	var keys []Key
	var exists bool
	err := pgtx.Read(ctx, k.pool, func(b *pgx.Batch) {
		b.Queue(`SELECT EXISTS (SELECT FROM tenants WHERE tenant_id = $1)`, tenantID).QueryRow(func(row pgx.Row) error {
			return row.Scan(&exists)
		})
		b.Queue(`SELECT `+keyColumns+` FROM api_keys WHERE tenant_id = $1 ORDER BY created_at, key_id`, tenantID).
			Query(func(rows pgx.Rows) (err error) {
				keys, err = pgx.CollectRows(rows, scanKey)
				return err
			})
	})
	switch {
	case err != nil:
		return nil, named("list keys", err)
	case !exists:
		return nil, ErrTenantNotFound
	}
	return keys, nil
}

// RevokeKey ends a key; it is refused everywhere within 5 s. Revoking it again changes nothing. Errors: ErrKeyNotFound,
// ErrUnavailable.
func (k *Keys) RevokeKey(ctx context.Context, keyID string) error {
	found, err := k.exec(ctx, `
		UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE key_id = $1`, keyID)
	if err != nil {
		return named("revoke key", err)
	}
	if found != 1 {
		return ErrKeyNotFound
	}
	return nil
}

// exec runs one statement and answers how many rows it touched.
func (k *Keys) exec(ctx context.Context, sql string, args ...any) (rows int64, err error) {
	return pgtx.InTx(ctx, k.pool, func(tx *pgtx.Tx) (int64, error) {
		tag, err := tx.Exec(ctx, sql, args...)
		return tag.RowsAffected(), err
	})
}

// RotateKey makes a key with the tenant, scopes and length of life of the old one, and ends the old one: at once where
// grace is 0, else after grace (or when it expires, where that is sooner). Errors: ErrKeyNotFound, ErrKeyEnded,
// ErrInvalidLifetime, ErrUnavailable.
func (k *Keys) RotateKey(ctx context.Context, keyID string, grace time.Duration) (secret string, key Key, err error) {
	if grace < 0 {
		return "", Key{}, ErrInvalidLifetime
	}
	newID, secret, err := mint()
	if err != nil {
		return "", Key{}, err
	}
	key, err = pgtx.InTx(ctx, k.pool, func(tx *pgtx.Tx) (Key, error) {
		key, err := findKey(ctx, tx, newID)
		if !errors.Is(err, pgx.ErrNoRows) {
			return key, err // an earlier try committed unheard
		}
		if err := lockActive(ctx, tx, keyID); err != nil {
			return Key{}, err
		}
		if key, err = succeedKey(ctx, tx, keyID, newID, secret); err != nil {
			return Key{}, err
		}
		return key, endKey(ctx, tx, keyID, grace)
	})
	switch {
	case errors.Is(err, ErrKeyNotFound), errors.Is(err, ErrKeyEnded):
		return "", Key{}, err
	case err != nil:
		return "", Key{}, named("rotate key", err)
	}
	return secret, key, nil
}

// lockActive lets one rotation of a key at a time go on. Of two without grace, the second finds it ended.
func lockActive(ctx context.Context, tx pgx.Tx, keyID string) error {
	var active bool
	err := tx.QueryRow(ctx, `
		SELECT revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
		FROM api_keys WHERE key_id = $1 FOR NO KEY UPDATE`, keyID).Scan(&active)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrKeyNotFound
	case err != nil:
		return fmt.Errorf("lock old key: %w", err)
	case !active:
		return ErrKeyEnded
	}
	return nil
}

// endKey revokes the old key, or lets it expire after the grace; least ignores a null expiry.
func endKey(ctx context.Context, tx pgx.Tx, keyID string, grace time.Duration) error {
	_, err := tx.Exec(ctx, `
		UPDATE api_keys
		SET revoked_at = CASE WHEN $2::bigint = 0 THEN clock_timestamp() END,
		    expires_at = CASE WHEN $2::bigint = 0 THEN expires_at
		                      ELSE least(expires_at, clock_timestamp() + $2::bigint * interval '1 microsecond') END
		WHERE key_id = $1`, keyID, grace.Microseconds())
	if err != nil {
		return fmt.Errorf("end old key: %w", err)
	}
	return nil
}

// succeedKey copies what the old key may do to a new one.
func succeedKey(ctx context.Context, tx pgx.Tx, oldID, newID, secret string) (Key, error) {
	h := sha256.Sum256([]byte(secret))
	rows, err := tx.Query(ctx, `
		INSERT INTO api_keys (key_id, tenant_id, secret_hash, scopes, created_at, expires_at)
		SELECT $2, old.tenant_id, $3, old.scopes, t.now, t.now + old.life
		FROM (SELECT clock_timestamp() AS now) t,
		     (SELECT tenant_id, scopes, CASE WHEN isfinite(expires_at) THEN expires_at - created_at END AS life
		      FROM api_keys WHERE key_id = $1) old
		RETURNING `+keyColumns, oldID, newID, h[:])
	key, err := oneKey(rows, err)
	if err != nil {
		return Key{}, fmt.Errorf("insert new key: %w", err)
	}
	return key, nil
}

// keyColumns go with scanKey. An infinite expiry is none.
const keyColumns = `key_id, tenant_id, scopes,
	CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= clock_timestamp() THEN 'expired' ELSE 'active' END,
	created_at, CASE WHEN isfinite(expires_at) THEN expires_at END, revoked_at, last_used_at`

func scanKey(row pgx.CollectableRow) (key Key, err error) {
	var scopes []string
	err = row.Scan(&key.KeyID, &key.TenantID, &scopes, &key.State,
		&key.CreatedAt, &key.ExpiresAt, &key.RevokedAt, &key.LastUsedAt)
	key.Scopes = scopesOf(scopes)
	return key, err
}

// findKey answers one key, or pgx.ErrNoRows.
func findKey(ctx context.Context, tx pgx.Tx, keyID string) (Key, error) {
	rows, err := tx.Query(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE key_id = $1`, keyID)
	return oneKey(rows, err)
}

func oneKey(rows pgx.Rows, err error) (Key, error) {
	if err != nil {
		return Key{}, err
	}
	return pgx.CollectExactlyOneRow(rows, scanKey)
}

// mint makes a key's id, and its secret of 256 random bits.
func mint() (keyID, secret string, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", "", fmt.Errorf("mint key id: %w", err)
	}
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	return "key_" + id.String(), secretPrefix + base64.RawURLEncoding.EncodeToString(random), nil
}
