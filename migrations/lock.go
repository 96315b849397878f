package migrations

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"refundd/internal/pgtx"
)

var (
	// ErrDatabaseURL reports a database URL that cannot be parsed. It does not quote it: it may hold a password.
	ErrDatabaseURL = errors.New("the database URL is malformed")
	// ErrLockTimeout reports that another process kept migrating this database for longer than lockWait.
	ErrLockTimeout = errors.New("another process is migrating this database")
)

const (
	lockWait       = 2 * time.Minute        // how long to wait for another process that migrates
	lockPoll       = 100 * time.Millisecond // how often to ask whether it has finished
	connectTimeout = 10 * time.Second       // where the URL names none
	lockKey        = 0x7265_6675_6e64_6401  // "refundd" and 1; advisory locks are per database
)

func parseURL(databaseURL string) (*pgx.ConnConfig, error) {
	pool, err := pgtx.Config(databaseURL) // which takes out what is said to a pool alone
	if err != nil {
		return nil, ErrDatabaseURL
	}
	config := pool.ConnConfig
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	return config, nil
}

// hangUp ends a session, and with it whatever it holds, whatever its goodbye meets.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	_ = conn.Close(closing)
}

// lock takes the right to migrate, for as long as the connection lives. Whoever waits for it asks again and again and
// is idle in between: the snapshot of a statement that waits would be in the way of some migrations.
func lock(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, ErrLockTimeout)
	defer cancel()
	for {
		var mine bool
		err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(lockKey)).Scan(&mine)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return terse(err)
		case mine:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}

// terse keeps an error's cause and drops what a message must not carry: the connection's user and database names, which
// hold a piece of the password where the URL was quoted badly.
func terse(err error) error {
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok && connect.Unwrap() != nil {
		return connect.Unwrap()
	}
	return err
}
