package migrations

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/text/secure/precis"

	"refundd/internal/pgtx"
)

// Role is one of the two that Up makes. Neither can log in.
type Role string

// The roles.
const (
	Service  Role = "refundd_service"  // moves money as callers ask, and lets nobody in
	Operator Role = "refundd_operator" // makes and ends tenants and keys, and reads everything
)

var (
	// ErrLoginTaken reports a login that is somebody else's, or may do more than a login of refundd's should.
	ErrLoginTaken = errors.New("the login exists already")
	// ErrRolesMissing reports a cluster without refundd's roles.
	ErrRolesMissing = errors.New("the roles of refundd do not exist yet")
	// ErrMayNotCreateLogin reports an owner that may not make logins or give them the role.
	ErrMayNotCreateLogin = errors.New("this owner may not create the login")
)

// Login is whom a process of refundd connects as.
type Login struct {
	Name     string
	Role     Role
	Password string // in any UTF-8; "" leaves the one that it has
}

// limits are the time limits of a login. They are not inherited from its role, and are no start-up parameters, which
// PgBouncer refuses. A tool may read for longer than a request.
var limits = map[Role][]string{
	Service:  {"statement_timeout = '20s'", "lock_timeout = '10s'", "idle_in_transaction_session_timeout = '30s'"},
	Operator: {"lock_timeout = '10s'", "idle_in_transaction_session_timeout = '10min'"},
}

// MakeLogin makes the login, or makes one that exists what it should be: again with the same result. It needs a role
// with CREATEROLE. The password reaches no log of the server's: what is sent is what the server would store of it (RFC
// 5802). Errors: ErrLoginTaken, ErrRolesMissing, ErrMayNotCreateLogin.
func MakeLogin(ctx context.Context, conn *pgx.Conn, l Login) (err error) {
	for range 5 { // roles are cluster-wide: another process may be at the same one
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return l.make(ctx, tx) })
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case ok && pgErr.Code == "42501":
			return fmt.Errorf("%w: %w", ErrMayNotCreateLogin, err)
		case ok && (pgErr.Code == "42710" || pgErr.Code == "23505" || pgErr.Code == "XX000"):
			continue // it exists now, or its row was updated at the same moment
		}
		return err
	}
	return err
}

func (l Login) make(ctx context.Context, tx pgx.Tx) error {
	verb, err := l.look(ctx, tx)
	if err != nil {
		return err
	}
	name := pgx.Identifier{l.Name}.Sanitize()
	statements := []string{verb + " ROLE " + name + " LOGIN", "GRANT " + string(l.Role) + " TO " + name}
	if l.Password != "" {
		statements = append(statements, "ALTER ROLE "+name+" PASSWORD '"+verifier(l.Password)+"'") // base64 and signs
	}
	settings := limits[l.Role]
	if l.Role == Service {
		settings = append(pgtx.OfLogin(), settings...)
	}
	for _, setting := range settings {
		statements = append(statements, "ALTER ROLE "+name+" SET "+setting)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make login: %w", err)
		}
	}
	return nil
}

// look tells whether the login is to be created or altered, and that it is ours.
func (l Login) look(ctx context.Context, tx pgx.Tx) (verb string, err error) {
	var ready, exists, mighty, ours bool
	err = tx.QueryRow(ctx, `
		SELECT to_regrole($2) IS NOT NULL, r.oid IS NOT NULL,
		       coalesce(r.rolsuper OR r.rolcreaterole OR r.rolreplication OR r.rolbypassrls
			OR r.rolname = current_user, false),
		       -- Not pg_has_role, which holds for every role of a superuser's.
		       EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
		               WHERE m.member = r.oid AND g.rolname IN ('refundd_service', 'refundd_operator'))
		FROM (SELECT 1) one LEFT JOIN pg_roles r ON r.rolname = $1`, l.Name, string(l.Role)).Scan(&ready, &exists,
		&mighty, &ours)
	switch {
	case err != nil:
		return "", fmt.Errorf("look up login: %w", err)
	case !ready:
		return "", ErrRolesMissing
	case l.Name == string(Service) || l.Name == string(Operator) || mighty:
		return "", fmt.Errorf("%w, and may do more than a login of refundd's should: choose another name",
			ErrLoginTaken)
	case exists && !ours:
		return "", fmt.Errorf("%w, and is not refundd's: choose another name, or give it the role first: GRANT %s TO %s",
			ErrLoginTaken, l.Role, pgx.Identifier{l.Name}.Sanitize())
	case exists:
		return "ALTER", nil
	}
	return "CREATE", nil
}

// verifier is what Postgres stores of a password: it proves the password and does not tell it (RFC 5802,
// SCRAM-SHA-256).
func verifier(password string) string {
	const rounds = 4096 // as Postgres does
	if prepared, err := precis.OpaqueString.String(password); err == nil {
		password = prepared // as pgx does when it logs in
	}
	salt := make([]byte, 16)
	_, _ = rand.Read(salt)                                                   // never fails (crypto/rand)
	salted, _ := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size) // fails for short keys in FIPS mode alone
	stored := sha256.Sum256(keyed(salted, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return strings.Join([]string{"SCRAM-SHA-256", fmt.Sprintf("%d:%s", rounds, text(salt)),
		text(stored[:]) + ":" + text(keyed(salted, "Server Key"))}, "$")
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
