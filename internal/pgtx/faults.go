package pgtx

import (
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// transient tells whether the same work may succeed on another try: the connection broke, a deadlock, a serialization
// failure, or a server that is starting, stopping, full, read-only or a standby.
func transient(err error) bool {
	if errors.Is(err, ErrUnavailable) {
		return true
	}
	said := refusalOf(err)
	switch said.Code {
	case pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown,
		pgerrcode.CannotConnectNow, pgerrcode.TooManyConnections, pgerrcode.IdleInTransactionSessionTimeout,
		transactionTimeout, pgerrcode.ReadOnlySQLTransaction, pgerrcode.ActiveSQLTransaction, pgerrcode.FeatureNotSupported:
		return !raised(said)
	default:
		return pgerrcode.IsConnectionException(said.Code) && !raised(said)
	}
}

const transactionTimeout = "25P04" // since Postgres 17

// ofThePast tells what a session that is older than a failover, a migration or a change of settings may be refused: it
// was opened on what has become a standby or read-only (READ WRITE is no feature of a standby), or its statements were
// described when columns had other types.
func ofThePast(err error) bool {
	said := refusalOf(err)
	switch said.Code {
	case pgerrcode.ReadOnlySQLTransaction, pgerrcode.ActiveSQLTransaction, pgerrcode.FeatureNotSupported,
		pgerrcode.InvalidSQLStatementName, pgerrcode.InvalidBinaryRepresentation, pgerrcode.ProtocolViolation:
		return !raised(said)
	case pgerrcode.InsufficientPrivilege:
		return false
	default:
		return pgerrcode.IsSyntaxErrororAccessRuleViolation(said.Code) && !raised(said)
	}
}

// hopeless tells what another try at once would meet again, though nothing is wrong with the work: somebody else's
// lock, a server that can not work until somebody mends it, standbys that do not answer.
func hopeless(err error) bool {
	return errors.Is(err, errUncertain) || waitedTooLong(err) || crippled(err)
}

// raised tells a refusal that a function of the owner's raised, whatever it calls it: it speaks of a row, not of the
// server.
func raised(said pgconn.PgError) bool { return said.Routine == "exec_stmt_raise" }

// Poisoned reports whether one row of a batch may have spoilt it for the others: Postgres refused what it would refuse
// again, such as bad data (class 22), a constraint (class 23) or whatever a trigger raises, or a wait reached its
// limit.
func Poisoned(err error) bool {
	return waitedTooLong(err) || SQLState(err) != "" && !transient(err) && !crippled(err)
}

// crippled tells a server that can not do its work, whatever the work is: the disk, the memory or a limit is exhausted
// (class 53), its files can not be read or written (58), it is not in the state for it (55000), or it contradicts
// itself (XX). Too many connections are fewer soon.
func crippled(err error) bool {
	said := refusalOf(err)
	switch code := said.Code; {
	case raised(said), code == pgerrcode.TooManyConnections:
		return false
	default:
		return pgerrcode.IsInsufficientResources(code) || pgerrcode.IsSystemError(code) ||
			pgerrcode.IsInternalError(code) ||
			code == pgerrcode.ObjectNotInPrerequisiteState
	}
}

// waitedTooLong tells a lock or a statement that reached its limit.
func waitedTooLong(err error) bool {
	return StaysLocked(err) || SQLState(err) == pgerrcode.QueryCanceled
}

// StaysLocked reports a lock that somebody else holds for longer than we wait.
func StaysLocked(err error) bool { return SQLState(err) == pgerrcode.LockNotAvailable }

// SQLState returns Postgres's five-character code for err, or the empty string where err is not Postgres's.
func SQLState(err error) string { return refusalOf(err).Code }

// Constraint names the constraint that err is about, or is empty.
func Constraint(err error) string { return refusalOf(err).ConstraintName }

// refusalOf is what Postgres said, empty where err is not Postgres's.
func refusalOf(err error) pgconn.PgError {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return *said
	}
	return pgconn.PgError{}
}
