package api

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"refundd/operations"
)

const totalsPath = "/v1/refund-totals"

// total is how many refunds are in one state and currency on the wire, and their sum: an integer that may be larger
// than that of one refund.
type total struct {
	State       operations.State `json:"state"`
	Currency    string           `json:"currency"`
	Count       int64            `json:"count"`
	AmountCents jsontext.Value   `json:"amount_cents"`
}

// openTotal is a total of refunds that have no end yet.
type openTotal struct {
	total
	OldestCreatedAt timestamp `json:"oldest_created_at"`
}

// bucketTotal is a total of a stretch of time.
type bucketTotal struct {
	Bucket timestamp `json:"bucket"`
	total
}

// totals are all of them. Where there is more than an answer may read, complete is false and they speak of a part.
type totals[T any] struct {
	Data         []T        `json:"data"`
	Complete     bool       `json:"complete"`
	CountedSince *timestamp `json:"counted_since"`
}

func totalOf(t operations.Total) total {
	return total{State: t.State, Currency: t.Currency, Count: t.Count, AmountCents: jsontext.Value(t.Sum)}
}

func openTotalOf(t operations.Total) openTotal { return openTotal{totalOf(t), timestamp(t.Bucket)} }

func bucketTotalOf(t operations.Total) bucketTotal {
	return bucketTotal{timestamp(t.Bucket), totalOf(t)}
}

func showTotals[T any](t operations.Totals, show func(operations.Total) T) reply {
	return reply{status: http.StatusOK, body: &totals[T]{
		Data: each(t.Rows, show), Complete: t.Complete, CountedSince: optionalTime(t.Since),
	}}
}

func readTenant(in *input) string { return in.tenant() }

func showOpenTotals(t operations.Totals) reply { return showTotals(t, openTotalOf) }

// windowQuery asks for the totals of a window.
type windowQuery struct {
	tenantID string
	window   operations.Window
}

func readWindowQuery(in *input) windowQuery {
	q := in.query("created_after", "created_before", "unit")
	query := windowQuery{tenantID: in.tenant(), window: operations.Window{Unit: operations.Hourly}}
	w := &query.window
	if unit, ok := q["unit"]; ok {
		if w.Unit = operations.Unit(unit); w.Unit != operations.Hourly && w.Unit != operations.Daily {
			in.blame("query:unit", faultInvalid)
		}
	}
	w.After, w.Before = in.requiredInstant(q, "created_after"), in.requiredInstant(q, "created_before")
	if in.faults == nil && (!w.After.Before(w.Before) ||
		w.Before.Sub(w.After) > operations.MaxBuckets*w.Unit.Length()) {
		in.blame("query:created_before", faultOutOfRange)
	}
	return query
}

// requiredInstant is a time of the query that must be given.
func (in *input) requiredInstant(q map[string]string, name string) time.Time {
	v, ok := q[name]
	if !ok {
		in.blame("query:"+name, faultRequired)
		return time.Time{}
	}
	if t := in.instant("query:"+name, &v); t != nil {
		return *t
	}
	return time.Time{}
}

func (s *server) totals(ctx context.Context, q windowQuery) (operations.Totals, error) {
	return s.engine.Totals(ctx, q.tenantID, q.window)
}

func showBucketTotals(t operations.Totals) reply { return showTotals(t, bucketTotalOf) }
