package webhooks

import (
	"fmt"
	"strings"

	"refundd/operations"
)

// where collects the conditions of a list, each behind an AND: only those that are asked for, so that each shape of
// list finds its index.
type where struct {
	sql  string
	args []any
}

// and adds a condition; the ? in it stands for value.
func (w *where) and(condition string, value any) {
	w.args = append(w.args, value)
	w.sql += " AND " + strings.Replace(condition, "?", fmt.Sprintf("$%d", len(w.args)), 1)
}

// created bounds the time of a table's rows.
func (w *where) created(table string, p operations.Page) {
	if p.CreatedAfter != nil {
		w.and(table+".created_at > ?", *p.CreatedAfter)
	}
	if p.CreatedBefore != nil {
		w.and(table+".created_at < ?", *p.CreatedBefore)
	}
}
