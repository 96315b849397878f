package webhooks

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Secret is what an endpoint's messages are signed with. It shows itself to nobody who does not ask for Text.
type Secret struct{ key []byte }

const secretBytes = 32

func newSecret() Secret {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never fails
	return Secret{key}
}

// Text is the secret as Standard Webhooks writes it.
func (s Secret) Text() string { return "whsec_" + base64.StdEncoding.EncodeToString(s.key) }

// String implements fmt.Stringer.
func (Secret) String() string { return "[secret]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[secret]" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// The overlap of a rotation.
const (
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 7 * 24 * time.Hour
)

// Rotate gives an endpoint a new secret; the one before signs too for as long as overlap says. Where two would, the
// older one ends.
func (o *Outbox) Rotate(ctx context.Context, k EndpointKey, overlap time.Duration) (Endpoint, Secret, error) {
	secret := newSecret()
	// A transaction that is run again finds the new secret stored already.
	e, err := o.change(ctx, k, "given another secret", `
		UPDATE webhook_endpoints e SET secret = $3,
			old_secret = CASE WHEN e.secret = $3 THEN e.old_secret WHEN $4::interval > '0' THEN e.secret END,
			old_secret_until = CASE WHEN e.secret = $3 THEN e.old_secret_until
				WHEN $4::interval > '0' THEN clock_timestamp() + $4::interval END
		WHERE e.tenant_id = $1 AND e.endpoint_id = $2::text::uuid AND e.deleted_at IS NULL RETURNING `+endpointColumns,
		secret.key, overlap)
	return e, secret, err
}

// signatures signs a message with each key, for the header webhook-signature.
func signatures(keys [][]byte, id string, at time.Time, body []byte) (string, error) {
	signed := make([]string, len(keys))
	for i, key := range keys {
		hook, err := standardwebhooks.NewWebhookRaw(key)
		if err == nil {
			signed[i], err = hook.Sign(id, at, body)
		}
		if err != nil {
			return "", fmt.Errorf("sign message: %w", err)
		}
	}
	return strings.Join(signed, " "), nil
}
