package postgres

import (
	"net/url"
	"slices"
)

// libpqParameters are those that psql takes in a URL.
var libpqParameters = []string{
	"host", "hostaddr", "port", "dbname", "user", "password", "passfile", "require_auth", "channel_binding",
	"connect_timeout",
	"client_encoding", "options", "application_name", "fallback_application_name", "keepalives", "keepalives_idle",
	"keepalives_interval", "keepalives_count", "tcp_user_timeout", "gssencmode", "sslmode", "sslcert", "sslkey",
	"sslpassword",
	"sslrootcert", "sslcrl", "sslcrldir", "sslsni", "target_session_attrs", "service",
}

// LibpqURL is a database URL without what psql would refuse: pool_max_conns and the like are for programs of pgx's.
func LibpqURL(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return databaseURL
	}
	q := u.Query()
	for name := range q {
		if !slices.Contains(libpqParameters, name) {
			q.Del(name)
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}
