// Package access knows who calls: tenants, their API keys and what each key may do.
//
// Its promises: a secret is 256 random bits, shown once and stored only as its SHA-256; a revocation, an expiry and a
// rotation take effect on every replica within 5 s, also while the database cannot be reached, because no answer is
// given from a reading that began more than 2 s ago; a new key works at once, because a refusal is never remembered;
// the check costs microseconds, because a key in use is read about once a second per replica, not once per request.
//
// Every time that decides is the database's: an expiry is compared there, and Go's clock only measures how old a
// reading is.
package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/internal/pgtx"
)

// ErrUnavailable reports that the database could not be reached or did not answer in time: who calls is not known.
var ErrUnavailable = pgtx.ErrUnavailable

// Config is what Keys needs.
type Config struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger // optional
}

// Keys authenticates callers and manages tenants and their keys. Its methods may be called concurrently.
type Keys struct {
	pool     *pgxpool.Pool
	logger   *slog.Logger
	readings keyCache
	uses     uses
	// turns bounds the connections that readings take, so that a flood of invalid keys leaves the pool to others.
	turns chan struct{}
	mu    sync.Mutex
	next  *batch // the reading that still takes callers; nil where none does
}

// New returns Keys that work as the owner as well as the restricted role.
func New(config Config) (*Keys, error) {
	if config.Pool == nil {
		return nil, errors.New("access: Pool is missing")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Keys{
		pool:     config.Pool,
		logger:   config.Logger,
		readings: keyCache{entries: make(map[hash]*cachedKey)},
		uses:     uses{keys: make(map[string]struct{})},
		turns:    make(chan struct{}, maxConcurrentReadings),
	}, nil
}

// Run writes the times of last use until ctx ends. Authentication does not depend on it.
func (k *Keys) Run(ctx context.Context) error { return k.runUses(ctx, useInterval) }

// named wraps a database error with the act. Where time ran out the database was not there to answer either.
func named(act string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgtx.ErrDeadline), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w: %w", act, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", act, err)
}

const (
	readingLife           = 2 * time.Second // how long a reading may be answered from, counted from its beginning
	readingTimeout        = 2 * time.Second // how long callers wait for one before they hear ErrUnavailable
	maxReadings           = 10_000          // keys held in memory; beyond it, arbitrary ones are read again
	maxConcurrentReadings = 2
	maxBatch              = 1000 // keys in one reading
	useInterval           = time.Minute
)
