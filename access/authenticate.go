package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/internal/pgtx"
)

// ErrUnauthenticated reports a secret that is not, or no longer, that of a key: unknown, malformed, expired or revoked.
// Which of these it is is not told.
var ErrUnauthenticated = errors.New("unauthenticated")

type hash = [sha256.Size]byte

// Authenticate tells whose secret this is. Errors: ErrUnauthenticated; ErrUnavailable where the database cannot say;
// the context's own where the caller left. It may outlast ctx by readingTimeout at most, where others wait for its
// reading.
//
// Secrets are found by their SHA-256, in a map and in an index, neither of which takes constant time. That tells an
// attacker at most something about the hash of a guess, which it knows already; a secret of 256 bits is not reached
// from there.
func (k *Keys) Authenticate(ctx context.Context, secret string) (Principal, error) {
	if !wellFormed(secret) {
		return Principal{}, ErrUnauthenticated
	}
	h := sha256.Sum256([]byte(secret))
	known := k.readings.get(h)
	if known.valid(time.Now()) && !known.claimRenewal(time.Now()) {
		return k.admit(known), nil
	}
	// Nothing is known, or this caller was chosen to renew it early, so that nobody ever waits at the end of its life.
	fresh, err := k.read(ctx, h)
	switch {
	case err == nil:
		return k.admit(fresh), nil
	case !errors.Is(err, ErrUnauthenticated) && known.valid(time.Now()):
		known.renewing.Store(false)
		return k.admit(known), nil
	}
	return Principal{}, err
}

func (k *Keys) admit(r *cachedKey) Principal {
	k.uses.note(r)
	return r.principal
}

// cachedKey is what the database said of one valid key.
type cachedKey struct {
	principal Principal
	began     time.Time     // before the query was sent
	life      time.Duration // how long it may be answered from; ends no later than the key expires
	renewing  atomic.Bool
	usedIn    atomic.Uint64 // the round of uses that this key was noted in
}

// valid looks at both clocks: the monotonic one does not count the time for which a machine is suspended, and the wall
// clock may be set back.
func (r *cachedKey) valid(now time.Time) bool {
	return r != nil && now.Sub(r.began) < r.life && now.Round(0).Sub(r.began.Round(0)) < r.life
}

// claimRenewal is true for one caller, once half of the reading's life has passed.
func (r *cachedKey) claimRenewal(now time.Time) bool {
	return now.Sub(r.began) > r.life/2 && r.renewing.CompareAndSwap(false, true)
}

// keyCache holds the latest reading of each key in use. Only valid keys get in.
type keyCache struct {
	mu      sync.RWMutex
	entries map[hash]*cachedKey
}

func (c *keyCache) get(h hash) *cachedKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[h]
}

// put takes what a batch found, and forgets what it did not find.
func (c *keyCache) put(asked map[hash]struct{}, found map[hash]*cachedKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range asked {
		if r, ok := found[h]; ok {
			c.entries[h] = r
		} else {
			delete(c.entries, h)
		}
	}
	for h := range c.entries {
		if len(c.entries) <= maxReadings {
			return
		}
		delete(c.entries, h)
	}
}

// batch is one query on behalf of all callers that came while it waited for its turn. Its snapshot is taken after the
// last of them arrived: a key that existed when its caller called is found.
type batch struct {
	asked map[hash]struct{}
	done  chan struct{} // closed when found and err are set
	found map[hash]*cachedKey
	err   error
}

func (k *Keys) read(ctx context.Context, h hash) (*cachedKey, error) {
	b, first := k.join(h)
	if first {
		k.lead(ctx, b)
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("authenticate: %w", context.Cause(ctx))
	}
	if b.err != nil {
		return nil, b.err
	}
	r, ok := b.found[h]
	if !ok {
		return nil, ErrUnauthenticated
	}
	return r, nil
}

// join adds a key to the batch that waits, or begins one; its first caller leads it.
func (k *Keys) join(h hash) (b *batch, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == nil || len(k.next.asked) >= maxBatch {
		k.next = &batch{asked: make(map[hash]struct{}), done: make(chan struct{})}
		first = true
	}
	k.next.asked[h] = struct{}{}
	return k.next, first
}

// lead runs the batch's query when its turn comes. It is detached from the leader's context: others wait for it.
func (k *Keys) lead(ctx context.Context, b *batch) {
	defer close(b.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readingTimeout)
	defer cancel()
	select {
	case k.turns <- struct{}{}:
		defer func() { <-k.turns }()
	case <-ctx.Done():
		k.seal(b)
		b.err = named("wait to read keys", ctx.Err())
		return
	}
	k.seal(b)
	if b.found, b.err = k.query(ctx, b.asked); b.err == nil {
		k.readings.put(b.asked, b.found)
	}
}

// seal lets nobody else join.
func (k *Keys) seal(b *batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == b {
		k.next = nil
	}
}

func (k *Keys) query(ctx context.Context, asked map[hash]struct{}) (map[hash]*cachedKey, error) {
	hashes := make([][]byte, 0, len(asked))
	for h := range asked {
		hashes = append(hashes, h[:])
	}
	began := time.Now()
	var found map[hash]*cachedKey
	err := pgtx.Glimpse(ctx, k.pool, func(b *pgx.Batch) {
		b.Queue(`
			SELECT secret_hash, tenant_id, key_id, scopes,
			       CASE WHEN isfinite(expires_at) AND expires_at < clock_timestamp() + $2 * interval '1 microsecond'
			            THEN (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint
			            ELSE $2 END AS life_us
			FROM api_keys
			WHERE secret_hash = ANY ($1::bytea[]) AND revoked_at IS NULL
			  AND (expires_at IS NULL OR expires_at > clock_timestamp())`,
			hashes, readingLife.Microseconds()).Query(func(rows pgx.Rows) (err error) {
			found, err = collectReadings(rows, began)
			return err
		})
	})
	if err != nil {
		return nil, named("read keys", err)
	}
	return found, nil
}

func collectReadings(rows pgx.Rows, began time.Time) (map[hash]*cachedKey, error) {
	found := make(map[hash]*cachedKey)
	var secretHash []byte
	var tenantID, keyID string
	var scopes []string
	var lifeMicros int64
	_, err := pgx.ForEachRow(rows, []any{&secretHash, &tenantID, &keyID, &scopes, &lifeMicros}, func() error {
		found[hash(secretHash)] = &cachedKey{
			principal: Principal{TenantID: tenantID, KeyID: keyID, Scopes: scopesOf(scopes)},
			began:     began,
			life:      time.Duration(lifeMicros) * time.Microsecond,
		}
		return nil
	})
	return found, err
}

func wellFormed(secret string) bool {
	return len(secret) == secretLength && strings.HasPrefix(secret, secretPrefix)
}
