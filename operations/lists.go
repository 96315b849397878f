package operations

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"refundd/internal/pages"
)

// MaxMatches is how many matches a search by customer or case may have before it answers ErrTooManyMatches instead.
const MaxMatches = 200

// Why a list or a search has no answer.
var (
	// ErrTooManyMatches reports a search that matches more than MaxMatches rows: an incomplete answer would mislead.
	ErrTooManyMatches = errors.New("too many matches")
	// ErrInvalidCursor reports a cursor that no list of this kind handed out.
	ErrInvalidCursor = errors.New("invalid cursor")
)

// Page bounds a list.
type Page struct {
	Limit         int        // rows, at least 1
	Cursor        string     // where the page before ended; empty for the first
	CreatedAfter  *time.Time // exclusive
	CreatedBefore *time.Time // exclusive
}

// RefundFilter selects refunds; nil selects all.
type RefundFilter struct {
	OrderID          *string
	State            *State
	ProviderRefundID *string  // of a refund at one of Providers
	Providers        []string // the names that orders may have
	Ref              *string  // the reference of a call that had its provider asked; see Request
}

// cursor is the sort key of a page's last row: any time that a row may have, infinity included.
type cursor struct {
	at pgtype.Timestamptz
	id string
}

// cursorAt is the cursor of a row whose time is finite.
func cursorAt(at time.Time, id string) cursor {
	return cursor{pgtype.Timestamptz{Time: at, Valid: true}, id}
}

func (c cursor) encode() string {
	at := c.at.InfinityModifier.String()
	if c.at.InfinityModifier == pgtype.Finite {
		at = strconv.FormatInt(c.at.Time.UnixMicro(), 10)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(at + " " + c.id))
}

func decodeCursor(s string) (*cursor, error) {
	if s == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, ErrInvalidCursor
	}
	at, id, ok := strings.Cut(string(b), " ")
	if !ok || id == "" || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return nil, ErrInvalidCursor
	}
	c := cursor{id: id}
	switch at {
	case pgtype.Infinity.String():
		c.at = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	case pgtype.NegativeInfinity.String():
		c.at = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	default:
		micros, err := strconv.ParseInt(at, 10, 64)
		if err != nil || micros < minMicros || micros > maxMicros {
			return nil, ErrInvalidCursor
		}
		c = cursorAt(time.UnixMicro(micros).UTC(), id)
	}
	if c.encode() != s { // base64 passes over line ends, and a number has other spellings
		return nil, ErrInvalidCursor
	}
	return &c, nil
}

// The years 1 and 9999: no row has a finite time beyond them.
const (
	minMicros = -62135596800000000
	maxMicros = 253402300799999999
)

// source is what a list reads: all refunds, or the few that a name selects. Those are found before anything else is
// asked of them, behind a fence (OFFSET 0), so that no plan reads a tenant in the list's order to come upon them.
func (f RefundFilter) source(tenantID string) (string, pages.Where) {
	var w pages.Where
	switch {
	case f.ProviderRefundID != nil:
		if w.Args = []any{f.Providers, *f.ProviderRefundID}; f.Ref != nil {
			w.And(`EXISTS (SELECT FROM operation_events e WHERE e.tenant_id = o.tenant_id AND e.operation_id = o.operation_id
				AND e.detail ->> 'diagnostic_ref' = ? OFFSET 0)`, *f.Ref)
		}
		return `(SELECT * FROM refund_operations
			WHERE provider = ANY ($1::text[]) AND provider_refund_id = $2 OFFSET 0) AS o`, w
	case f.Ref != nil:
		w.Args = []any{tenantID, *f.Ref}
		return `(SELECT DISTINCT named.operation_id FROM (
				SELECT operation_id FROM operation_events
				WHERE tenant_id = $1 AND detail ->> 'diagnostic_ref' = $2 OFFSET 0) AS named) AS k
			CROSS JOIN LATERAL (
				SELECT * FROM refund_operations WHERE tenant_id = $1 AND operation_id = k.operation_id OFFSET 0) AS o`, w
	default:
		return `refund_operations o`, w
	}
}

// Refunds lists refunds, newest first, and answers the next page's cursor, empty at the end.
func (r Reads) Refunds(ctx context.Context, tenantID string, f RefundFilter, p Page) ([]Operation, string, error) {
	from, err := decodeCursor(p.Cursor)
	if err != nil {
		return nil, "", err
	}
	source, w := f.source(tenantID)
	w.And(`o.tenant_id = ?`, tenantID)
	w.And(`o.state <> 'revoked'`)
	if f.OrderID != nil {
		w.And(`o.order_id = ?`, *f.OrderID)
	}
	switch {
	case f.State != nil && f.OrderID != nil:
		w.And(`o.state || '' = ?`, *f.State) // no index of states reads an order: it has few refunds, a state has many
	case f.State != nil:
		w.And(`o.state = ?`, *f.State)
		if *f.State != StateSucceeded {
			w.And(`o.state <> 'succeeded'`) // says to the planner that the index of the other states has them all
		}
	}
	w.Between(`o.created_at`, p.CreatedAfter, p.CreatedBefore)
	if from != nil {
		w.And(`(o.created_at, o.operation_id) < (?, ?)`, from.at, from.id)
	}
	var found []listed
	err = r.query(ctx, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, scanListed)
		return err
	}, fmt.Sprintf(`SELECT %s, o.created_at FROM %s WHERE %s ORDER BY o.created_at DESC, o.operation_id DESC LIMIT %d`,
		operationColumns, source, &w, p.Limit+1), w.Args...)
	if err != nil {
		return nil, "", fmt.Errorf("list refunds: %w", err)
	}
	page, next := pages.Cut(found, p.Limit, func(l listed) string { return cursor{l.at, l.OperationID}.encode() })
	operations := make([]Operation, len(page))
	for i, l := range page {
		operations[i] = l.Operation
	}
	return operations, next, nil
}

// listed is an operation and the time that it is sorted by, which CreatedAt may be too narrow for.
type listed struct {
	Operation
	at pgtype.Timestamptz
}

func scanListed(row pgx.CollectableRow) (listed, error) {
	var l listed
	err := row.Scan(append(l.targets(), &l.at)...)
	return l, err
}

// allMatches passes a complete search on.
func allMatches[T any](found []T, err error) ([]T, error) {
	if err == nil && len(found) > MaxMatches {
		err = ErrTooManyMatches
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}
