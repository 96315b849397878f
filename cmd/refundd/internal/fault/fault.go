// Package fault holds the sentences for the person at the terminal.
//
// Its promise: an error becomes one line that says what to do, in which neither a database URL nor a password stands,
// whoever worded it.
package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrUsage marks a command line or configuration that cannot be carried out.
	ErrUsage = errors.New("wrong use")
	// ErrFound reports a command that ran and found something for a human, and has already said what.
	ErrFound = errors.New("found something for a human")
)

// fault is a sentence for the person at the terminal.
type fault struct {
	text  string
	cause error // its kind, for errors.Is; not printed
}

func (f *fault) Error() string { return f.text }

func (f *fault) Unwrap() error { return f.cause }

// New returns a sentence of our own. Its kind, for errors.Is, is the cause's; the cause is not printed.
func New(cause error, format string, args ...any) error {
	return &fault{text: fmt.Sprintf(format, args...), cause: cause}
}

// Usage returns a sentence about a command line or a configuration that cannot be carried out.
func Usage(format string, args ...any) error { return New(ErrUsage, format, args...) }

// Connect says why Postgres could not be used, without a word of the URL: what stands in a URL that was quoted badly
// is not known to be harmless.
func Connect(err error) error {
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return Usage("DATABASE_URL is not a valid Postgres URL " +
			"(postgres://user:password@host:5432/database; percent-encode what is special in a password)")
	}
	return New(err, "cannot use the Postgres that DATABASE_URL names: %s", connectCause(err))
}

func connectCause(err error) string {
	var dns *net.DNSError
	pgErr, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case refused:
		return refusalCause(pgErr)
	case errors.As(err, &dns):
		return "its host name does not resolve"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused; is it running, and are host and port right?"
	case errors.Is(err, os.ErrNotExist):
		return "there is no such socket; is it running?"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "it did not answer in time; are host and port right?"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to its host"
	case strings.Contains(err.Error(), "refused TLS"):
		return "it does not speak TLS, which sslmode asks for"
	}
	return "the connection failed"
}

// refusalCause words a server's own refusal by its SQLSTATE.
func refusalCause(err *pgconn.PgError) string {
	switch err.Code {
	case "28P01", "28000":
		return "it refuses the login; check user, password and pg_hba.conf"
	case "3D000":
		return "the database does not exist; create it first"
	case "53300":
		return "it has no free connection slot"
	case "57P03":
		return "it is starting up or shutting down; try again"
	case "42501":
		return "the login has no right to connect"
	}
	return "it answers with SQLSTATE " + err.Code // its words may quote the user and the database
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Listen says why an address could not be served.
func Listen(flag, addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return New(err, "%s %s: the port is in use; stop the other program or choose another port", flag, addr)
	case errors.Is(err, syscall.EACCES):
		return New(err, "%s %s: this account may not listen there; choose a port above 1023", flag, addr)
	}
	return New(err, "%s %s: cannot listen there; choose an address of this machine", flag, addr)
}

// secret is what may hold a password wherever it stands: a URL with an authority, or a key=value of one.
var secret = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://\S*@\S*|(?i:postgres(ql)?)://\S*|(?i:password)=\S*`)

// Sentence returns an error as one line for the person at the terminal.
func Sentence(err error) string {
	if own, ok := errors.AsType[*fault](err); ok && own.text == err.Error() {
		return own.text // all of it is our own words
	}
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return Connect(connect).Error()
	}
	return Foreign(err)
}

// Foreign returns the text of an error that others worded, in one line.
func Foreign(err error) string {
	return secret.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), "[redacted]")
}
