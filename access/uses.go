package access

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// uses collects which keys were used in the current round; a round ends when they are written.
type uses struct {
	round atomic.Uint64
	mu    sync.Mutex
	keys  map[string]struct{} // key ids; only valid keys get in
}

// note costs an atomic read where the key was noted in this round already.
func (u *uses) note(r *cachedKey) {
	round := u.round.Load() + 1 // 0 is a reading that was never noted
	if r.usedIn.Load() == round || r.usedIn.Swap(round) == round {
		return
	}
	u.add(r.principal.KeyID)
}

func (u *uses) add(keyIDs ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range keyIDs {
		u.keys[id] = struct{}{}
	}
}

// take ends the round.
func (u *uses) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.round.Add(1)
	keyIDs := make([]string, 0, len(u.keys))
	for id := range u.keys {
		keyIDs = append(keyIDs, id)
	}
	clear(u.keys)
	return keyIDs
}

// runUses writes the uses every interval, and once more when ctx ends.
func (k *Keys) runUses(ctx context.Context, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.writeUses(ctx)
		case <-ctx.Done():
			k.writeUses(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// writeUses sets last_used_at to the time of writing: it is coarse, and later than the use by the interval at most.
// Uses that could not be written wait for the next round.
func (k *Keys) writeUses(ctx context.Context) {
	keyIDs := k.uses.take()
	if len(keyIDs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	// Replicas write overlapping sets: a row that another one is writing needs no second write, and waiting for it
	// could deadlock.
	_, err := k.exec(ctx, `
		UPDATE api_keys SET last_used_at = clock_timestamp()
		WHERE key_id IN (
			SELECT key_id FROM api_keys WHERE key_id = ANY ($1::text[])
			ORDER BY key_id FOR NO KEY UPDATE SKIP LOCKED)`, keyIDs)
	if err != nil {
		k.uses.add(keyIDs...)
		k.logger.WarnContext(ctx, "api key uses not written", "keys", len(keyIDs), "error", err)
	}
}
