package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
	"refundd/operations"
)

var (
	// ErrNotFound reports an endpoint or an event that the tenant does not have.
	ErrNotFound = errors.New("webhook endpoint or event not found")
	// ErrTooManyEndpoints reports a tenant that has MaxEndpoints.
	ErrTooManyEndpoints = errors.New("too many webhook endpoints")
	// ErrURL reports a URL that nothing is sent to.
	ErrURL = errors.New("not a URL that webhooks are sent to")
)

// Config is what an Outbox needs.
type Config struct {
	Pool         *pgxpool.Pool
	Logger       *slog.Logger // optional
	AllowPrivate bool         // http, and addresses inside the network
}

// Outbox holds events and the endpoints that they go to. Its methods may be called at once from any number of
// goroutines.
type Outbox struct {
	pool         *pgxpool.Pool
	log          *slog.Logger
	allowPrivate bool
}

// New returns an outbox, or the fault of its configuration.
func New(c Config) (*Outbox, error) {
	if c.Pool == nil {
		return nil, errors.New("configure webhooks: no database pool")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Outbox{pool: c.Pool, log: c.Logger, allowPrivate: c.AllowPrivate}, nil
}

// Type is what an event tells.
type Type string

// The types.
const (
	RefundPending        Type = "refund.pending"         // the provider accepted it, its final word is to come
	RefundSucceeded      Type = "refund.succeeded"       // the money moved
	RefundFailed         Type = "refund.failed"          // it did not, or it came back
	RefundNeedsAttention Type = "refund.needs_attention" // a person has to find out
)

// Types returns all types.
func Types() []Type {
	return []Type{RefundPending, RefundSucceeded, RefundFailed, RefundNeedsAttention}
}

// typeOf is the type of a transition to a state; a reservation and a withdrawal have none.
func typeOf(s operations.State) (Type, bool) {
	t := Type(refunds + string(s))
	return t, slices.Contains(Types(), t)
}

// state is what the transition led to.
func (t Type) state() operations.State {
	return operations.State(strings.TrimPrefix(string(t), refunds))
}

const refunds = "refund."

// OnEvents writes the transitions of an engine in the transaction that makes them. It is the engine's hook.
func (o *Outbox) OnEvents(b *pgx.Batch, events []operations.Event) error {
	var tenants, ids, types []string
	var at []time.Time
	for _, ev := range events {
		if ev.ToState == nil {
			continue
		}
		if t, ok := typeOf(*ev.ToState); ok {
			tenants, ids, types = append(tenants, ev.TenantID), append(ids, ev.OperationID), append(types, string(t))
			at = append(at, ev.CreatedAt)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	b.Queue(`
		INSERT INTO webhook_events (tenant_id, type, operation_id, provider_refund_id, failure_code, settled_at,
			created_at)
		SELECT k.tenant, k.type, k.operation, op.provider_refund_id, op.failure_code, op.settled_at, k.at
		FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) WITH ORDINALITY
			AS k (tenant, operation, type, at, place)
		CROSS JOIN LATERAL (
			SELECT o.provider_refund_id, o.failure_code, o.settled_at FROM refund_operations o
			WHERE o.tenant_id = k.tenant AND o.operation_id = k.operation OFFSET 0) AS op
		ORDER BY k.place`, tenants, ids, types, at)
	return nil
}

// numberAtOnce is how many events get their position in one transaction.
const numberAtOnce = 1000

// number gives positions to events that were committed without one, of a tenant or of all (nil), and reports whether
// there may be more.
func (o *Outbox) number(ctx context.Context, tenantID *string) (more bool, err error) {
	more, err = pgtx.InTx(ctx, o.pool, func(tx *pgtx.Tx) (more bool, err error) {
		err = tx.QueryRow(ctx, `SELECT number_webhook_events($1, $2)`, tenantID, numberAtOnce).Scan(&more)
		return more, err
	})
	if err != nil {
		return false, fmt.Errorf("number webhook events: %w", err)
	}
	return more, nil
}
