package pgtx

import (
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// transient tells whether the same work may succeed on another try: the connection broke, a deadlock, a serialization
// failure, or a server that is starting, stopping, full or a standby.
func transient(err error) bool {
	if errors.Is(err, ErrUnavailable) {
		return true
	}
	switch code := SQLState(err); code {
	case pgerrcode.SerializationFailure, pgerrcode.DeadlockDetected, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown,
		pgerrcode.CannotConnectNow, pgerrcode.TooManyConnections, pgerrcode.ReadOnlySQLTransaction,
		pgerrcode.IdleInTransactionSessionTimeout:
		return true
	default:
		return pgerrcode.IsConnectionException(code)
	}
}

// Poisoned reports whether one row of a batch may have spoilt it for the others: Postgres refused what it would refuse again,
// such as bad data (class 22), a constraint (class 23) or whatever a trigger raises, or a wait reached its limit.
func Poisoned(err error) bool {
	return waitedTooLong(err) || SQLState(err) != "" && !transient(err) && !crippled(err)
}

// crippled tells a server that can not do its work, whatever the work is: the disk, the memory or a limit is exhausted (class
// 53), its files can not be read or written (58), it is not in the state for it (55000), or it contradicts itself (XX).
func crippled(err error) bool {
	code := SQLState(err)
	return pgerrcode.IsInsufficientResources(code) || pgerrcode.IsSystemError(code) || pgerrcode.IsInternalError(code) ||
		code == pgerrcode.ObjectNotInPrerequisiteState
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
