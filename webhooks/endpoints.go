package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"refundd/internal/pages"
	"refundd/internal/pgtx"
	"refundd/operations"
)

// MaxEndpoints is how many endpoints a tenant may have.
const MaxEndpoints = 20

// Reason is why an endpoint is disabled.
type Reason string

// The reasons.
const (
	Requested   Reason = "requested"   // by its tenant
	Unreachable Reason = "unreachable" // it took nothing for three days
	Gone        Reason = "gone"        // it answered 410
)

// Endpoint is a URL of a tenant that events are sent to.
type Endpoint struct {
	TenantID        string
	ID              string
	URL             string
	Description     *string
	EventTypes      []string // nil: all
	CreatedAt       time.Time
	DisabledAt      *time.Time // nil while it is sent to
	DisabledBecause *Reason
	FailingSince    *time.Time // when it began to take nothing
	OldSecretUntil  *time.Time // until when the secret before signs too
	DeletedAt       *time.Time // told by the act that deletes it
}

const endpointColumns = `e.tenant_id, e.endpoint_id::text AS id, e.url, e.description, e.event_types, e.created_at,
	e.disabled_at, e.disabled_because, e.failing_since, e.deleted_at,
	CASE WHEN e.old_secret_until > clock_timestamp() THEN e.old_secret_until END AS old_secret_until`

func collectEndpoints(rows pgx.Rows, err error) ([]Endpoint, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByNameLax[Endpoint])
}

// oneEndpoint reads the one row that a statement is about, or ErrNotFound.
func oneEndpoint(rows pgx.Rows, err error) (Endpoint, error) {
	found, err := collectEndpoints(rows, err)
	switch {
	case err != nil:
		return Endpoint{}, err
	case len(found) == 0:
		return Endpoint{}, ErrNotFound
	}
	return found[0], nil
}

// NewEndpoint is what an endpoint is made of.
type NewEndpoint struct {
	TenantID    string
	KeyID       string // the API key that asks
	URL         string
	Description *string
	EventTypes  []string // nil: all
}

// Create makes an endpoint, which is sent what happens from now on, and returns it with its secret, which is never
// shown again. Errors: ErrURL, ErrTooManyEndpoints.
func (o *Outbox) Create(ctx context.Context, n NewEndpoint) (Endpoint, Secret, error) {
	if err := o.checkURL(n.URL); err != nil {
		return Endpoint{}, Secret{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Endpoint{}, Secret{}, fmt.Errorf("make an endpoint's id: %w", err)
	}
	secret := newSecret()
	e, err := pgtx.InTx(ctx, o.pool, func(tx *pgtx.Tx) (Endpoint, error) {
		// The tenant's stream is locked, so that the endpoints are counted one creation at a time.
		var position, endpoints int64
		err := tx.QueryRow(ctx, `INSERT INTO webhook_streams AS s (tenant_id) VALUES ($1)
			ON CONFLICT (tenant_id) DO UPDATE SET last_position = s.last_position
			RETURNING last_position`, n.TenantID).Scan(&position)
		if err != nil {
			return Endpoint{}, err
		}
		err = tx.QueryRow(ctx, `SELECT count(*) FROM webhook_endpoints WHERE tenant_id = $1 AND deleted_at IS NULL
			AND endpoint_id <> $2::text::uuid`, n.TenantID, id.String()).Scan(&endpoints)
		if err == nil && endpoints >= MaxEndpoints {
			err = ErrTooManyEndpoints
		}
		if err != nil {
			return Endpoint{}, err
		}
		return oneEndpoint(tx.Query(ctx, `
			INSERT INTO webhook_endpoints AS e (tenant_id, endpoint_id, url, description, event_types, secret, position)
			VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7)
			ON CONFLICT (tenant_id, endpoint_id) DO UPDATE SET secret = excluded.secret
			RETURNING `+endpointColumns, n.TenantID, id.String(), n.URL, n.Description, n.EventTypes, secret.key,
			position))
	})
	if err != nil {
		return Endpoint{}, Secret{}, fmt.Errorf("create webhook endpoint: %w", err)
	}
	o.changed(EndpointKey{n.TenantID, n.KeyID, e.ID}, "created")
	return e, secret, nil
}

// EndpointKey names an endpoint, and who asks.
type EndpointKey struct{ TenantID, KeyID, EndpointID string }

// Endpoint returns an endpoint, or ErrNotFound.
func (o *Outbox) Endpoint(ctx context.Context, k EndpointKey) (Endpoint, error) {
	return pgtx.InTx(ctx, o.pool, func(tx *pgtx.Tx) (Endpoint, error) { return find(ctx, tx, k) })
}

func find(ctx context.Context, tx pgx.Tx, k EndpointKey) (Endpoint, error) {
	e, err := oneEndpoint(tx.Query(ctx, `SELECT `+endpointColumns+` FROM webhook_endpoints e
		WHERE e.tenant_id = $1 AND e.endpoint_id = $2::text::uuid AND e.deleted_at IS NULL`, k.TenantID, k.EndpointID))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return e, fmt.Errorf("find webhook endpoint: %w", err)
	}
	return e, err
}

// Disable stops sending to an endpoint: what it was not sent waits. Again it answers the same.
func (o *Outbox) Disable(ctx context.Context, k EndpointKey) (Endpoint, error) {
	return o.change(ctx, k, "disabled", `UPDATE webhook_endpoints e SET
			disabled_at = coalesce(e.disabled_at, clock_timestamp()),
			disabled_because = coalesce(e.disabled_because, 'requested')
		WHERE e.tenant_id = $1 AND e.endpoint_id = $2::text::uuid AND e.deleted_at IS NULL RETURNING `+endpointColumns)
}

// Enable goes on with an endpoint where it stood: what waits is sent at once, and has three days again. Again it
// answers the same.
func (o *Outbox) Enable(ctx context.Context, k EndpointKey) (Endpoint, error) {
	return o.change(ctx, k, "enabled", `
		WITH waiting AS (
			UPDATE webhook_deliveries d SET next_attempt_at = clock_timestamp(), first_attempt_at = NULL
			FROM webhook_endpoints e
			WHERE d.tenant_id = $1 AND d.endpoint_id = $2::text::uuid AND d.state = 'queued'
				AND e.tenant_id = d.tenant_id
				AND e.endpoint_id = d.endpoint_id AND e.disabled_at IS NOT NULL)
		UPDATE webhook_endpoints e SET disabled_at = NULL, disabled_because = NULL, failures = 0, failing_since = NULL,
			paused_until = '-infinity', due_at = '-infinity'
		WHERE e.tenant_id = $1 AND e.endpoint_id = $2::text::uuid AND e.deleted_at IS NULL RETURNING `+endpointColumns)
}

// Delete ends an endpoint for ever: nothing more is sent to it.
func (o *Outbox) Delete(ctx context.Context, k EndpointKey) (Endpoint, error) {
	return o.change(ctx, k, "deleted", `UPDATE webhook_endpoints e SET deleted_at = clock_timestamp()
		WHERE e.tenant_id = $1 AND e.endpoint_id = $2::text::uuid AND e.deleted_at IS NULL RETURNING `+endpointColumns)
}

func (o *Outbox) change(ctx context.Context, k EndpointKey, what, sql string, args ...any) (Endpoint, error) {
	e, err := pgtx.InTx(ctx, o.pool, func(tx *pgtx.Tx) (Endpoint, error) {
		return oneEndpoint(tx.Query(ctx, sql, append([]any{k.TenantID, k.EndpointID}, args...)...))
	})
	if errors.Is(err, ErrNotFound) {
		return e, err
	}
	if err != nil {
		return e, fmt.Errorf("webhook endpoint to be %s: %w", what, err)
	}
	o.changed(k, what)
	return e, nil
}

// changed logs what was asked of an endpoint, and by whom.
func (o *Outbox) changed(k EndpointKey, what string) {
	o.log.Info("webhook endpoint changed", slog.String("tenant_id", k.TenantID),
		slog.String("endpoint_id", k.EndpointID),
		slog.String("act", what), slog.String("key_id", k.KeyID))
}

// Endpoints returns a page of a tenant's endpoints, newest first (their ids are UUIDv7), and the next page's cursor.
func (o *Outbox) Endpoints(ctx context.Context, tenantID string, p operations.Page) ([]Endpoint, string, error) {
	w := pages.Where{Args: []any{tenantID, p.Limit + 1}}
	w.And("e.tenant_id = $1 AND e.deleted_at IS NULL")
	w.Between("e.created_at", p.CreatedAfter, p.CreatedBefore)
	if p.Cursor != "" {
		last, ok := pages.IDOf(p.Cursor)
		if !ok {
			return nil, "", operations.ErrInvalidCursor
		}
		w.And("e.endpoint_id < ?::text::uuid", last)
	}
	var found []Endpoint
	err := pgtx.Query(ctx, o.pool, func(rows pgx.Rows) (err error) {
		found, err = collectEndpoints(rows, nil)
		return err
	}, `SELECT `+endpointColumns+` FROM webhook_endpoints e
		WHERE `+w.String()+` ORDER BY e.endpoint_id DESC LIMIT $2`, w.Args...)
	if err != nil {
		return nil, "", fmt.Errorf("list webhook endpoints: %w", err)
	}
	page, next := pages.Cut(found, p.Limit, func(e Endpoint) string { return pages.CursorOf(e.ID) })
	return page, next, nil
}
