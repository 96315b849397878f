// Package scrape keeps what a collector of metrics reads from the database for a moment: however many scrapes there
// are, they cannot hammer the database, and none waits for it for long.
package scrape

import (
	"context"
	"sync"
	"time"
)

const (
	limit = 2 * time.Second // for what a scrape asks the database
	rest  = time.Second     // during which scrapes are answered alike
)

// Reading is what was read last. Its zero value has read nothing.
type Reading[T any] struct {
	mu    sync.Mutex
	at    time.Time // of value
	value T
}

// Get returns what was read less than a moment ago, or what read returns now.
func (r *Reading[T]) Get(read func(context.Context) T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < rest {
		return r.value
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r.value, r.at = read(ctx), time.Now()
	return r.value
}
