package pgtx

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is what we remember of a connection. Nothing of it is of Postgres's session: behind a pooler that is another
// one in every transaction.
type session struct {
	born         time.Time           // when it was used first; zero until then
	used         time.Time           // when it was used last
	describes    bool                // statements are described before they are sent, each time
	caches       bool                // once
	known        map[string]struct{} // statements whose description was made under our settings
	unreplicated bool                // the last COMMIT did not hear of its standbys
}

const (
	ours     = "pgtx"
	maxKnown = 400 // pgx forgets the description of what was used longest ago beyond 512
)

func sessionOf(conn *pgx.Conn) *session {
	kept := conn.PgConn().CustomData()
	if s, ok := kept[ours].(*session); ok {
		return s
	}
	mode := conn.Config().DefaultQueryExecMode
	s := &session{
		describes: mode == pgx.QueryExecModeDescribeExec,
		caches:    mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeCacheDescribe,
	}
	s.forget()
	kept[ours] = s
	return s
}

// takeUp notes a use, and tells whether it is not the first one, how long ago that was, and when the last one ended.
func (s *session) takeUp() (used bool, age, idle time.Duration) {
	s.unreplicated = false
	if s.born.IsZero() {
		s.born = time.Now()
		return false, 0, 0
	}
	return true, time.Since(s.born), time.Since(s.used)
}

// putDown notes the end of a use.
func (s *session) putDown() { s.used = time.Now() }

func (s *session) forget() { s.known = make(map[string]struct{}) }

// mayGoWithBegin reports whether Postgres will read the statements of b only after BEGIN and the settings, which travel
// before them in the same message. What pgx has to have described first would be described by the session's own
// search_path.
func (s *session) mayGoWithBegin(b *pgx.Batch) bool {
	if s.describes {
		return false
	}
	if !s.caches {
		return true
	}
	for _, q := range b.QueuedQueries {
		if _, known := s.known[q.SQL]; !known {
			return false
		}
	}
	return true
}

// remember notes the statements of b, which were described under our settings.
func (s *session) remember(b *pgx.Batch) {
	if !s.caches {
		return
	}
	if len(s.known) > maxKnown {
		s.forget()
	}
	for _, q := range b.QueuedQueries {
		s.known[q.SQL] = struct{}{}
	}
}

// speaksPlainly reports whether the session reads strings as pgx writes them. In the simple protocol that has to be so
// before a message is sent.
func speaksPlainly(conn *pgconn.PgConn) bool {
	return conn.ParameterStatus("standard_conforming_strings") == "on" &&
		conn.ParameterStatus("client_encoding") == "UTF8"
}
