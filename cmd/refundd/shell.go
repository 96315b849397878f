package main

import (
	"net/url"
	"os"
	"slices"
)

// forgetShell takes out of the environment what programs of Postgres's read there. DATABASE_URL says all but the password: a
// PGSERVICE or PGOPTIONS of somebody's shell leads nowhere else, and changes no answer.
func forgetShell() {
	for _, name := range []string{
		"PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGOPTIONS",
		"PGAPPNAME", "PGSSLMODE", "PGREQUIRESSL", "PGSSLNEGOTIATION", "PGSSLCERT", "PGSSLCERTMODE", "PGSSLKEY", "PGSSLPASSWORD",
		"PGSSLROOTCERT", "PGSSLCRL", "PGSSLCRLDIR", "PGSSLSNI", "PGSSLMINPROTOCOLVERSION", "PGSSLMAXPROTOCOLVERSION",
		"PGMINPROTOCOLVERSION", "PGMAXPROTOCOLVERSION", "PGREQUIREPEER", "PGREQUIREAUTH", "PGCHANNELBINDING", "PGGSSENCMODE",
		"PGKRBSRVNAME", "PGGSSLIB", "PGGSSDELEGATION", "PGCONNECT_TIMEOUT", "PGCLIENTENCODING", "PGTARGETSESSIONATTRS",
		"PGLOADBALANCEHOSTS", "PGDATESTYLE", "PGTZ", "PGGEQO",
	} {
		_ = os.Unsetenv(name) // fails for an empty name alone
	}
}

// libpqParameters are those that psql takes in a URL.
var libpqParameters = []string{
	"host", "hostaddr", "port", "dbname", "user", "password", "passfile", "require_auth", "channel_binding", "connect_timeout",
	"client_encoding", "options", "application_name", "fallback_application_name", "keepalives", "keepalives_idle",
	"keepalives_interval", "keepalives_count", "tcp_user_timeout", "gssencmode", "sslmode", "sslcert", "sslkey", "sslpassword",
	"sslrootcert", "sslcrl", "sslcrldir", "sslsni", "target_session_attrs", "service",
}

// libpqURL is a database URL without what psql would refuse: pool_max_conns and the like are for programs of pgx's.
func libpqURL(databaseURL string) string {
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
