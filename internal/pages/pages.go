// Package pages is what the lists of several rooms have in common: the conditions of a query, of which only those stand
// that are asked for, the cut behind a page's last row, and cursors of lists that their rows' own ids sort.
package pages

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Where collects the conditions of a list: only those that are asked for, so that each shape of list finds its index.
type Where struct {
	Args       []any // of the whole query
	conditions []string
}

// And adds a condition; each ? in it stands for the next argument.
func (w *Where) And(condition string, args ...any) {
	for _, a := range args {
		w.Args = append(w.Args, a)
		condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(w.Args)), 1)
	}
	w.conditions = append(w.conditions, condition)
}

// Between bounds a column of times, both ends exclusive; nil sets no bound.
func (w *Where) Between(column string, after, before *time.Time) {
	if after != nil {
		w.And(column+" > ?", *after)
	}
	if before != nil {
		w.And(column+" < ?", *before)
	}
}

// String returns the conditions, all of which hold.
func (w *Where) String() string { return strings.Join(w.conditions, " AND ") }

// Cut leaves out the row that was read beyond the limit, and returns the cursor of the page after: empty at the end.
func Cut[T any](rows []T, limit int, cursor func(T) string) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	rows = rows[:limit]
	return rows, cursor(rows[limit-1])
}

// CursorOf is the cursor behind the row of that id, a UUID.
func CursorOf(id string) string { return base64.RawURLEncoding.EncodeToString([]byte(id)) }

// IDOf reads a cursor back, and reports whether CursorOf made it: base64 passes over line ends, and an id has other
// spellings.
func IDOf(cursor string) (id string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", false
	}
	parsed, err := uuid.ParseBytes(raw)
	id = parsed.String()
	return id, err == nil && CursorOf(id) == cursor
}
