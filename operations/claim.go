package operations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"refundd/internal/batch"
	"refundd/internal/clocks"
	"refundd/internal/pgtx"
)

// claimed is what tx 1 says of a call that it did not refuse.
type claimed struct {
	own        *Operation // the row that this call claimed its key with
	known      *Operation // the row that the key had before
	paymentRef string     // of the payment that a provider is to refund
	account    string     // which took it
	lookFirst  bool       // a history that was lost may have sent it
	locked     bool       // nothing was done: somebody else holds the order
}

// errSwallowed reports an INSERT that neither made the row nor met another: something in the database took it.
var errSwallowed = errors.New("the database swallowed the operation's row")

// claimAll is tx 1 in company, where nobody waits for a lock.
func (e *Engine) claimAll(ctx context.Context, calls []*call) []batch.Result[claimed] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	for _, c := range calls {
		c.began = clocks.Now()
		e.metrics.wait.Observe(c.began.Monotonic.Sub(c.queued).Seconds())
	}
	return inRounds(calls, func(c *call) operationKey { return c.key }, func(calls []*call) []batch.Result[claimed] {
		results := apart(e, calls, func(calls []*call) ([]batch.Result[claimed], error) {
			e.metrics.size.Observe(float64(len(calls)))
			return e.claim(ctx, calls, false)
		})
		for i, r := range results {
			if pgtx.StaysLocked(r.Err) { // a key, by somebody who is about to claim it: whose is not known
				results[i] = batch.Result[claimed]{Out: claimed{locked: true}}
			}
		}
		return results
	}, (*call).alike)
}

// alike answers a call as the one before it in its batch that has the same key, so that no storm of retries costs its
// neighbours a transaction for each: a key that was found to have its row still has it, and the same request is refused
// for the same reason.
func (c *call) alike(before *call, answered batch.Result[claimed]) (batch.Result[claimed], bool) {
	switch own := answered.Out.own; {
	case own != nil && own.State == StateSucceeded:
		return batch.Result[claimed]{Out: claimed{known: own}}, true
	case own != nil: // reserved: its lease is read
		return batch.Result[claimed]{}, false
	case answered.Out.known != nil, answered.Out.locked:
		return answered, true
	}
	same := c.fingerprint == before.fingerprint && deref(c.Currency) == deref(before.Currency)
	return answered, same && refused(answered.Err)
}

// refused reports whether err says why nothing was claimed, and not that time was up or that nobody could tell.
func refused(err error) bool {
	return slices.ContainsFunc([]error{
		ErrOrderNotFound, ErrCurrencyMismatch, ErrAuthorizationNotFound, ErrAuthorizationExpired, ErrAuthorizationMismatch,
		ErrAmountExceedsRefundable, ErrProviderUnavailable,
	}, func(reason error) bool { return errors.Is(err, reason) })
}

// claimPatiently is tx 1 of calls of one order that somebody else had locked. It waits for that lock, and then leaves
// out whose caller has gone meanwhile.
func (e *Engine) claimPatiently(ctx context.Context, calls []*call) []batch.Result[claimed] {
	ctx, cancel := context.WithTimeout(ctx, batchDeadline)
	defer cancel()
	for _, c := range calls {
		c.began = clocks.Now()
	}
	return apart(e, calls, func(calls []*call) ([]batch.Result[claimed], error) { return e.claim(ctx, calls, true) })
}

// claim is tx 1. All of it is one message, unless it waits for a lock first.
func (e *Engine) claim(ctx context.Context, calls []*call, patient bool) ([]batch.Result[claimed], error) {
	results, err := pgtx.Kept(ctx, e.config.Pool, func(tx *pgtx.Tx) ([]batch.Result[claimed], error) {
		if patient {
			if err := lockOrder(ctx, tx, calls[0].orderKey()); err != nil {
				return nil, err
			}
		}
		rows, err := e.newClaimRows(calls)
		if err != nil {
			return nil, err
		}
		results := make([]batch.Result[claimed], len(calls))
		b := &pgx.Batch{}
		rows.queue(b, patient, func(v verdict) {
			i := rows.calls[v.place-1]
			results[i] = e.answerTo(calls[i], v)
		})
		failpoint("reserve.uncommitted")
		if err := tx.CommitWith(ctx, b); err != nil {
			return nil, fmt.Errorf("claim keys: %w", err)
		}
		return results, nil
	})
	if slices.ContainsFunc(results, func(r batch.Result[claimed]) bool { return r.Out.own != nil }) {
		failpoint("reserve.committed")
	}
	return results, err
}

// lockOrder waits for an order, so that claim_refunds finds it ours.
func lockOrder(ctx context.Context, tx *pgtx.Tx, k OrderKey) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT FROM orders WHERE tenant_id = $1 AND order_id = $2 FOR NO KEY UPDATE`, k.TenantID, k.OrderID)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("wait for order: %w", err)
	}
	return nil
}

// verdict is a row of claim_refund or claim_refunds.
type verdict struct {
	place                          int // from 1
	word                           string
	at                             time.Time
	currency, provider, paymentRef *string
	account                        *string
	remainder                      *int64
	lookFirst                      bool
	known                          *Operation // the key's row,
	unread                         error      // or why it could not be read
}

// refusals are the verdicts that say why nothing was claimed.
var refusals = map[string]error{
	"deadline_exceeded":       ErrDeadlineExceeded,
	"order_not_found":         ErrOrderNotFound,
	"currency_mismatch":       ErrCurrencyMismatch,
	"authorization_not_found": ErrAuthorizationNotFound,
	"authorization_expired":   ErrAuthorizationExpired,
	"authorization_mismatch":  ErrAuthorizationMismatch,
	"swallowed":               errSwallowed,
}

// answerTo is what the verdict says to the call.
func (e *Engine) answerTo(c *call, v verdict) batch.Result[claimed] {
	switch v.word {
	case "claimed":
		return batch.Result[claimed]{Out: claimed{
			own: c.row(v), paymentRef: deref(v.paymentRef), account: deref(v.account), lookFirst: v.lookFirst,
		}}
	case "known":
		return batch.Result[claimed]{Out: claimed{known: v.known}, Err: v.unread}
	case "locked":
		return batch.Result[claimed]{Out: claimed{locked: true}}
	case "amount_exceeds_refundable":
		left := max(*v.remainder, 0)
		return batch.Result[claimed]{Err: &Refusal{Err: ErrAmountExceedsRefundable, Refundable: &left}}
	case "provider_unavailable":
		return batch.Result[claimed]{Err: &Refusal{Err: ErrProviderUnavailable, RetryAfter: e.config.BreakerOpen}}
	}
	err, known := refusals[v.word]
	if !known {
		err = fmt.Errorf("claim_refunds answered %q", v.word)
	}
	return batch.Result[claimed]{Err: err}
}

// row is the row that the call claimed its key with: without a provider it is settled at once, with one it is reserved.
func (c *call) row(v verdict) *Operation {
	o := &Operation{
		TenantID: c.TenantID, OperationID: c.OperationID, Fingerprint: c.fingerprint, RefundID: c.refundID,
		OrderID: c.OrderID, AmountCents: c.AmountCents, Currency: deref(v.currency), Reason: c.Reason, Metadata: c.Metadata,
		State: StateReserved, Provider: v.provider, CreatedAt: v.at,
	}
	if v.provider == nil {
		o.State, o.SettledAt = StateSucceeded, &v.at
	}
	return o
}

func (c *call) eventDetail() map[string]string {
	return merged(nil, callersAttempt, ordinal(c.Attempt), detailRef, c.Ref)
}

// claimRows are the arguments of claim_refunds.
type claimRows struct {
	calls                                         []int // by place: the call's
	tenants, ids, orders, fingerprints, refundIDs []string
	ahead, amounts                                []int64
	currencies, reasons, layers                   []*string
	metadata, details                             []string
	left                                          []time.Duration
	providers                                     []string
	admitted, keyLengths                          []int32
	retentions                                    []time.Duration
	lease, callLimit                              time.Duration
}

// newClaimRows sorts the calls by order: those of one order stay in their own.
func (e *Engine) newClaimRows(calls []*call) (*claimRows, error) {
	r := &claimRows{calls: make([]int, len(calls)), lease: e.config.Lease, callLimit: e.config.ProviderTimeout}
	for i := range calls {
		r.calls[i] = i
	}
	slices.SortStableFunc(r.calls,
		func(i, j int) int { return compareOrders(calls[i].orderKey(), calls[j].orderKey()) })
	var order OrderKey
	var ahead int64
	for _, i := range r.calls {
		c := calls[i]
		if c.orderKey() != order {
			order, ahead = c.orderKey(), 0
		}
		if err := r.add(c, ahead); err != nil {
			return nil, err
		}
		ahead += c.AmountCents
	}
	for name, p := range e.providers {
		r.providers, r.retentions = append(r.providers, name), append(r.retentions, p.setup.KeyRetention)
		r.keyLengths = append(r.keyLengths, int32(min(p.setup.MaxKeyLength, 1<<20)))
		r.admitted = append(r.admitted, p.breaker.admits())
	}
	return r, nil
}

// compareOrders sorts as Postgres does in the locks' order.
func compareOrders(a, b OrderKey) int {
	return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.OrderID, b.OrderID))
}

// add adds a call, of whose order those ahead ask for so much together.
func (r *claimRows) add(c *call, ahead int64) error {
	metadata, err := encodeMetadata(c.Metadata)
	if err != nil {
		return err
	}
	detail, err := encodeMetadata(c.eventDetail())
	if err != nil {
		return err
	}
	r.tenants, r.ids, r.orders = append(r.tenants, c.TenantID), append(r.ids, c.OperationID),
		append(r.orders, c.OrderID)
	r.ahead, r.amounts = append(r.ahead, ahead), append(r.amounts, c.AmountCents)
	r.currencies, r.reasons = append(r.currencies, c.Currency), append(r.reasons, c.Reason)
	r.fingerprints, r.refundIDs = append(r.fingerprints, c.fingerprint), append(r.refundIDs, c.refundID)
	r.metadata, r.details = append(r.metadata, metadata), append(r.details, detail)
	r.layers, r.left = append(r.layers, optional(c.Layer)), append(r.left, c.timeLeft())
	return nil
}

// timeLeft is the time that the call may still wait: none once its caller has left.
func (c *call) timeLeft() time.Duration {
	if c.ctx.Err() != nil {
		return 0
	}
	if deadline, ok := c.ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return 24 * time.Hour
}

// claimKey and claimKeys call claim_refund and claim_refunds; the rows of both are read by scanVerdict.
var (
	verdicts = `
	SELECT c.place, c.verdict, c.at, c.currency, c.provider, c.payment_ref, c.remainder, coalesce(c.look_first, false),
		c.payment_account, ` + strings.ReplaceAll(operationColumns, "o.", "(c.operation).")
	claimKey = verdicts + `
	FROM claim_refund($1::boolean, $2::text, $3::text, $4::text, $5::bigint, $6::text, $7::text, $8::uuid,
		$9::text, $10::jsonb, $11::interval, $12::text, $13::text, $14::text[], $15::integer[], $16::interval[],
		$17::integer[], $18::interval, $19::interval) AS c`
	claimKeys = verdicts + `
	FROM claim_refunds($1::boolean, $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
		$8::text[], $9::text[], $10::text[], $11::text[], $12::interval[], $13::text[], $14::text[], $15::text[],
		$16::integer[], $17::interval[], $18::integer[], $19::interval, $20::interval) AS c`
)

// queue queues the function's call; of each of its rows in turn it tells found.
func (r *claimRows) queue(b *pgx.Batch, patient bool, found func(verdict)) {
	var q *pgx.QueuedQuery
	if len(r.calls) == 1 {
		q = b.Queue(claimKey,
			patient, r.tenants[0], r.ids[0], r.orders[0], r.amounts[0], r.currencies[0], r.fingerprints[0],
			r.refundIDs[0], r.reasons[0], r.metadata[0], r.left[0], r.layers[0], r.details[0],
			r.providers, r.admitted, r.retentions, r.keyLengths, r.lease, r.callLimit)
	} else {
		q = b.Queue(claimKeys,
			patient, r.tenants, r.ids, r.orders, r.ahead, r.amounts, r.currencies, r.fingerprints, r.refundIDs,
			r.reasons, r.metadata, r.left, r.layers, r.details, r.providers, r.admitted, r.retentions, r.keyLengths,
			r.lease, r.callLimit)
	}
	q.Query(func(rows pgx.Rows) error {
		for rows.Next() {
			v, err := scanVerdict(rows)
			if err != nil {
				rows.Close()
				return err
			}
			found(v)
		}
		return rows.Err()
	})
}

// scanVerdict reads a row of claim_refunds. A key's row that can not be read is its own caller's trouble, and nobody
// else's.
func scanVerdict(rows pgx.Rows) (verdict, error) {
	var v verdict
	var o Operation
	row := o.targets()
	targets := append([]any{&v.place, &v.word, &v.at, &v.currency, &v.provider, &v.paymentRef, &v.remainder,
		&v.lookFirst,
		&v.account},
		make([]any, len(row))...)
	if err := rows.Scan(targets...); err != nil || v.word != "known" {
		return v, err
	}
	clear(targets)
	copy(targets[len(targets)-len(row):], row)
	if err := pgx.ScanRow(rows.Conn().TypeMap(), rows.FieldDescriptions(), rows.RawValues(), targets...); err != nil {
		v.unread = fmt.Errorf("read operation: %w", err)
		return v, nil
	}
	v.known = &o
	return v, nil
}

func encodeMetadata(m map[string]string) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	return string(b), nil
}
