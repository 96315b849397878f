package pgtx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is a pool's configuration for a database URL. Of several hosts it takes the one that can be written to,
// whatever target_session_attrs says. A pool that was configured otherwise does not hear what Postgres remarks on a
// COMMIT.
func Config(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.OnNotice = noteUnreplicated
	config.ConnConfig.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // we do, with a limit
	if config.ConnConfig.ValidateConnect != nil || severalHosts(config.ConnConfig.Config) {
		config.ConnConfig.ValidateConnect = validatePrimary
	}
	return config, nil
}

// keepAlive finds out within seconds about a peer that is gone while Postgres works for us.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}

func severalHosts(c pgconn.Config) bool {
	for _, f := range c.Fallbacks {
		if f.Host != c.Host || f.Port != c.Port {
			return true
		}
	}
	return false
}

var errNotPrimary = errors.New("a standby, or read-only")

// validatePrimary refuses a server that does not take writes, so that the next host is tried.
func validatePrimary(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := conn.Exec(ctx, readWrite+"; SELECT "+refuseFenced+"; COMMIT").ReadAll()
	if ofThePast(err) {
		return errNotPrimary
	}
	if err != nil {
		return fmt.Errorf("ask whether the server takes writes: %w", err)
	}
	return nil
}

// noteUnreplicated hears the warning of a COMMIT that was told to stop waiting for its standbys. Its own words are in
// the server's language, and its code is that of any warning.
func noteUnreplicated(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine != "SyncRepWaitForLSN" {
		return
	}
	if s, ok := conn.CustomData()[ours].(*session); ok {
		s.unreplicated = true
	}
}
