package api

import (
	"net/http"
	"regexp"
	"strconv"

	"refundd/operations"
)

// listed is a page of rows and the next one's cursor.
type listed[T any] struct {
	rows []T
	next string
}

// list is a page on the wire.
type list[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"`
}

// matches is a search's answer on the wire: all of them.
type matches[T any] struct {
	Data  []T `json:"data"`
	Count int `json:"count"`
}

func showList[Row, Shown any](l listed[Row], show func(Row) Shown) reply {
	shown := list[Shown]{Data: each(l.rows, show)}
	if l.next != "" {
		shown.NextCursor = &l.next
	}
	return reply{status: http.StatusOK, body: &shown}
}

func showMatches[Row, Shown any](rows []Row, show func(Row) Shown) reply {
	return reply{status: http.StatusOK, body: &matches[Shown]{Data: each(rows, show), Count: len(rows)}}
}

func each[Row, Shown any](rows []Row, show func(Row) Shown) []Shown {
	shown := make([]Shown, len(rows))
	for i, row := range rows {
		shown[i] = show(row)
	}
	return shown
}

const (
	defaultLimit = 20
	maxLimit     = 100
	maxCursor    = 1024
)

// page reads the parameters that all lists have.
func (in *input) page(q map[string]string) operations.Page {
	p := operations.Page{Limit: defaultLimit}
	if v, ok := q["limit"]; ok {
		p.Limit = in.limit(v)
	}
	if v, ok := q["cursor"]; ok {
		in.blame("query:cursor", textFault(v, maxCursor))
		p.Cursor = v
	}
	if v, ok := q["created_after"]; ok {
		p.CreatedAfter = in.instant("query:created_after", &v)
	}
	if v, ok := q["created_before"]; ok {
		p.CreatedBefore = in.instant("query:created_before", &v)
	}
	return p
}

// decimal is an integer in its one spelling.
var decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func (in *input) limit(v string) int {
	if !decimal.MatchString(v) {
		in.blame("query:limit", faultInvalid)
		return defaultLimit
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxLimit {
		in.blame("query:limit", faultOutOfRange)
	}
	return n
}
