package operations

import (
	"context"
	"errors"

	"refundd/internal/batch"
	"refundd/internal/clocks"
	"refundd/internal/pgtx"
)

// claimed is what tx 1 answers a call that was not refused: its own row, or the row of who was first.
type claimed struct {
	stored *Operation
	order  Order // of a row that is the call's own
}

// claimAll takes calls through tx 1. Those that have to be judged again are, and one that spoils the transaction for the
// others is left to itself.
func (e *Engine) claimAll(ctx context.Context, calls []*call) []batch.Result[claimed] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	results := make([]batch.Result[claimed], len(calls))
	all := make([]int, len(calls))
	for i, c := range calls {
		all[i], c.began = i, clocks.Now()
		e.metrics.wait.Observe(c.began.Monotonic.Sub(c.queued).Seconds())
	}
	e.claimSome(ctx, calls, all, results)
	return results
}

// claimSome takes the calls at the places that are given through tx 1, and fills in their results. Where one row may have
// spoilt it for the others, each half is tried for itself.
func (e *Engine) claimSome(ctx context.Context, calls []*call, places []int, results []batch.Result[claimed]) {
	for len(places) > 0 {
		e.metrics.size.Observe(float64(len(places)))
		again, err := e.tx1(ctx, calls, places, results)
		orders := byOrder(calls, places)
		switch {
		case pgtx.StaysLocked(err) && len(orders) > 1: // one of them; it costs its calls one wait in all
			for _, those := range orders {
				e.claimSome(ctx, calls, those, results)
			}
			return
		case pgtx.Poisoned(err) && !pgtx.StaysLocked(err) && len(places) > 1:
			e.metrics.split.Inc()
			half := len(places) / 2
			e.claimSome(ctx, calls, places[:half], results)
			places = places[half:]
		case err != nil:
			for _, i := range places {
				results[i].Err = err
			}
			return
		default:
			places = again
		}
	}
}

// byOrder sorts places by the orders of their calls.
func byOrder(calls []*call, places []int) map[OrderKey][]int {
	orders := make(map[OrderKey][]int)
	for _, i := range places {
		k := calls[i].orderKey()
		orders[k] = append(orders[k], i)
	}
	return orders
}

// tx1 runs one transaction and fills in the results of its calls, but for those at the places that it returns: they are to be
// judged again, since they were refused for money because of a call of their order that lost its key to somebody else.
func (e *Engine) tx1(ctx context.Context, calls []*call, places []int, results []batch.Result[claimed]) (again []int, err error) {
	some := make([]*call, len(places))
	for i, place := range places {
		some[i] = calls[place]
	}
	var verdicts []verdict
	err = pgtx.Do(ctx, e.config.Pool, func(tx *pgtx.Tx) (err error) {
		verdicts, err = e.claim(ctx, tx, some)
		return err
	})
	if err != nil {
		return nil, err
	}
	failpoint("reserve.committed")
	var lost []operationKey
	short := make(map[OrderKey]struct{}) // orders whose remainder was judged smaller than it is
	for i, v := range verdicts {
		if v.stored == nil && v.refused == nil {
			lost = append(lost, some[i].key)
			short[some[i].orderKey()] = struct{}{}
		}
	}
	var winners map[operationKey]Operation
	if len(lost) > 0 {
		if winners, err = readOperations(ctx, e.config.Pool, lost); err != nil {
			return nil, err
		}
	}
	for i, v := range verdicts {
		result := &results[places[i]]
		_, misjudged := short[some[i].orderKey()]
		winner, found := winners[some[i].key]
		switch {
		case v.stored != nil:
			result.Out = claimed{v.stored, v.order}
		case v.refused != nil && misjudged && errors.Is(v.refused, ErrAmountExceedsRefundable), v.refused == nil && !found:
			again = append(again, places[i])
		case v.refused != nil:
			result.Err = v.refused
		default:
			result.Out = claimed{stored: &winner}
		}
	}
	return again, nil
}
