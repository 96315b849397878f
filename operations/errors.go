package operations

import (
	"refundd/internal/batch"
	"refundd/internal/pgtx"
)

// Errors that say nothing of an operation's row: the work did not get that far, or its end is not known.
var (
	// ErrOverloaded reports a full queue: nothing was claimed.
	ErrOverloaded = batch.ErrOverloaded
	// ErrDatabaseUnavailable reports that Postgres could not be reached, or was lost before it answered.
	ErrDatabaseUnavailable = pgtx.ErrUnavailable
	// ErrDeadlineExceeded reports that the caller's deadline passed, or that it left, before the outcome was known.
	ErrDeadlineExceeded = pgtx.ErrDeadline
)
