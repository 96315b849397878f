package operations

import (
	"errors"
	"time"
)

// ErrTooManyMatches reports a search that matches more than MaxMatches rows: an incomplete answer would mislead.
var ErrTooManyMatches = errors.New("too many matches")

// ErrInvalidCursor reports a cursor that no list of this kind handed out.
var ErrInvalidCursor = errors.New("invalid cursor")

// Page bounds a list.
type Page struct {
	Limit         int // 1 to 100
	Cursor        string
	CreatedAfter  *time.Time
	CreatedBefore *time.Time
}

// RefundFilter selects refunds; nil selects all.
type RefundFilter struct {
	OrderID *string
	State   *State
}

// TimelineEntry is one thing that happened to an operation: a ledger transfer, or an event.
type TimelineEntry struct {
	At       time.Time
	Event    *Event    // nil for a transfer
	Transfer *Transfer // nil for an event
}
