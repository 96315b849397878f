package escalations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"refundd/escalations"
	"refundd/operations"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const tenant = "acme"

// bundle is a desk on a database of the test's own, with orders O0 … O9 of 10000 captured.
type bundle struct {
	*escalations.Desk
	t  *testing.T
	db *testdb.DB
}

func newBundle(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	b := &bundle{t: t, db: testdb.New(t, testdb.MaxConns(20))}
	var err error
	if b.Desk, err = escalations.New(escalations.Config{Pool: b.db.Pool, Policy: readPolicy(t)}); err != nil {
		t.Fatal(err)
	}
	b.exec(`INSERT INTO tenants (tenant_id) VALUES ($1)`, tenant)
	b.exec(`INSERT INTO orders (tenant_id, order_id, currency, captured_cents)
		SELECT $1, 'O' || i, 'EUR', 10000 FROM generate_series(0, 9) i`, tenant)
	return b
}

func readPolicy(t *testing.T) *escalations.Policy {
	t.Helper()
	file, err := os.Open("testdata/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	policy, err := escalations.ReadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Owner.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.db.Owner.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func asks(caseID, orderID string, cents int64) escalations.Request {
	return escalations.Request{
		TenantID: tenant, KeyID: "key-agent", CaseID: caseID, OrderID: orderID, AmountCents: cents, ReasonCode: "damaged",
	}
}

func (b *bundle) decide(r escalations.Request) escalations.Answer {
	b.t.Helper()
	a, err := b.Decide(b.t.Context(), r)
	if err != nil {
		b.t.Fatalf("%+v: %v", r, err)
	}
	return a
}

// says is an answer in a word.
func says(a escalations.Answer) string {
	word := string(a.Trigger)
	if a.Approved {
		word = "approved"
	}
	if a.Replayed {
		word += " again"
	}
	return word
}

func (b *bundle) want(r escalations.Request, word string) escalations.Answer {
	b.t.Helper()
	a := b.decide(r)
	if says(a) != word {
		b.t.Errorf("%+v: %s, want %s", r, says(a), word)
	}
	return a
}

func (b *bundle) approvals(want int) {
	b.t.Helper()
	if n := b.count(`SELECT count(*) FROM refund_authorizations`); n != want {
		b.t.Errorf("%d authorizations, want %d", n, want)
	}
}

func TestDecide_AnApproval_IsMintedOnceAndToldAgain(t *testing.T) {
	b := newBundle(t)
	first := b.want(asks("C1", "O0", 4000), "approved")
	again := b.want(asks("C1", "O0", 4000), "approved again")
	if first.OperationID == nil || diff(first.OperationID, again.OperationID) {
		t.Errorf("operation ids %v and %v", first.OperationID, again.OperationID)
	}
	b.approvals(1)
	if by := b.count(`SELECT count(*) FROM refund_authorizations
		WHERE approved_by = 'policy:test-1' AND case_id = 'C1' AND amount_cents = 4000`); by != 1 {
		t.Error("the authorization is not the policy's")
	}
}

// The rule that fired and the version that it is of stand in the row and in the log, approved or not; a case asks for
// an order once, by constraint.
func TestDecide_TheRuleThatFired_IsStoredAndLogged(t *testing.T) {
	b := newBundle(t)
	var log bytes.Buffer
	policy := readPolicy(t)
	desk, err := escalations.New(escalations.Config{Pool: b.db.Pool, Policy: policy,
		Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cents         int64
		rule, trigger string
	}{{4000, "damaged", ""}, {9000, "damaged", "beyond_limit"}} {
		log.Reset()
		r := asks(fmt.Sprint("C", c.cents), "O0", c.cents)
		if _, err := desk.Decide(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if n := b.count(`SELECT count(*) FROM refund_requests WHERE case_id = $1 AND rule = $2
			AND coalesce(trigger, '') = $3
			AND policy_version = 'test-1' AND facts->>'reason_code' = 'damaged'`, r.CaseID, c.rule, c.trigger); n != 1 {
			t.Errorf("%d: %d rows tell the rule", c.cents, n)
		}
		for _, word := range []string{`"rule":"` + c.rule + `"`, `"trigger":"` + c.trigger + `"`,
			`"policy_version":"test-1"`} {
			if !strings.Contains(log.String(), word) {
				t.Errorf("%d: the log lacks %s: %s", c.cents, word, log.String())
			}
		}
	}
	_, err = b.db.Owner.Exec(t.Context(), `INSERT INTO refund_requests (tenant_id, case_id, order_id, amount_cents,
		currency, reason_code, facts,
			decision, policy_version, operation_id, requested_by)
		SELECT tenant_id, case_id, order_id, 1, currency, reason_code, facts, decision, policy_version, 'another',
			requested_by
		FROM refund_requests WHERE case_id = 'C4000'`)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.ConstraintName != "refund_requests_pkey" {
		t.Errorf("a second request of the case for the order is stored: %v", err)
	}
}

func diff(a, b *string) bool { return cmp.Diff(a, b) != "" }

func TestDecide_AnotherAmountOrASecondRefund_IsEscalatedOnce(t *testing.T) {
	b := newBundle(t)
	b.want(asks("C1", "O0", 1000), "approved")
	other := b.want(asks("C1", "O0", 1001), "repeated_request")
	again := b.want(asks("C1", "O0", 1001), "repeated_request again")
	if other.Escalation.ID != again.Escalation.ID {
		t.Error("asked again it is another case")
	}
	b.want(asks("C1", "O0", 1000), "approved again")
	// An approval that people made counts as much as one of the policy's.
	b.exec(`INSERT INTO refund_authorizations (tenant_id, operation_id, case_id, order_id, amount_cents, currency,
		approved_by)
		VALUES ($1, 'by-hand', 'C2', 'O1', 100, 'EUR', 'ann')`, tenant)
	b.want(asks("C2", "O1", 1000), "repeated_request")
	b.approvals(2)
}

func TestDecide_SumsOfTheCaseAndTheOrder(t *testing.T) {
	b := newBundle(t)
	b.want(asks("C1", "O0", 4000), "approved")
	b.want(asks("C1", "O1", 3000), "beyond_limit") // 7000 of the case
	b.want(asks("C2", "O0", 5000), "beyond_limit") // 9000 of the order
	b.want(asks("C3", "O0", 4000), "approved")
	b.exec(`UPDATE refund_authorizations SET expires_at = now() - interval '1 s' WHERE case_id = 'C1'`)
	b.want(asks("C4", "O0", 4000), "approved") // what expired is not counted
	b.approvals(3)
}

func TestDecide_AWishForAPersonAndCategories_ComeFirstAlsoLater(t *testing.T) {
	b := newBundle(t)
	wish := asks("C1", "O0", 1000)
	b.want(wish, "approved")
	wish.AskedForHuman = true
	if a := b.want(wish, "asked_for_human"); a.Queue != "people" || a.Escalation.Subject != escalations.SubjectHandoff {
		t.Errorf("%+v", a)
	}
	b.want(wish, "asked_for_human again")
	wish.AskedForHuman, wish.Categories = false, []escalations.Category{"fraud_allegation", "self_harm"}
	if a := b.want(wish, "self_harm"); a.Queue != "care" {
		t.Errorf("%+v", a)
	}
	threat := asks("C2", "O1", 1000)
	threat.Categories = []escalations.Category{"violence_threat"}
	b.want(threat, "violence_threat")
	b.want(threat, "violence_threat again")
	threat.Categories = nil
	b.want(threat, "violence_threat again") // the first decision stays
	b.approvals(1)
}

func TestDecide_AnOpenOperation_IsEscalated(t *testing.T) {
	for i, state := range []string{"reserved", "pending", "needs_attention"} {
		t.Run(state, func(t *testing.T) {
			b := newBundle(t)
			b.operation("K", fmt.Sprint("O", i), state)
			b.want(asks("C1", fmt.Sprint("O", i), 1000), "operation_open")
		})
	}
}

// operation writes one of a provider's.
func (b *bundle) operation(id, orderID, state string) {
	b.t.Helper()
	b.exec(`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state,
			provider, provider_key, provider_key_expires_at, attempts)
		VALUES ($1, $2::text, $3, gen_random_uuid(), $4, 100, 'EUR', $5, 'simulator', $2::text, 'infinity', 1)`,
		tenant, id, operations.Fingerprint(orderID, 100), orderID, state)
}

func TestDecide_UnknownOrders_AreNotFoundAndStoreNothing(t *testing.T) {
	b := newBundle(t)
	for _, r := range []escalations.Request{asks("C1", "nowhere", 1),
		{TenantID: "other", KeyID: "k", CaseID: "C1", OrderID: "O0", AmountCents: 1}} {
		if _, err := b.Decide(t.Context(), r); !errors.Is(err, operations.ErrOrderNotFound) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if n := b.count(`SELECT (SELECT count(*) FROM refund_requests) + (SELECT count(*) FROM escalations)`); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestPreview_AnswersTheDecisionAndStoresNothing(t *testing.T) {
	b := newBundle(t)
	for _, r := range []escalations.Request{asks("C1", "O0", 1000), asks("C1", "O0", 9000)} {
		p, err := b.Preview(t.Context(), r)
		if err != nil || !p.Preview || p.OperationID != nil || p.Escalation != nil {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if n := b.count(`SELECT (SELECT count(*) FROM refund_requests) + (SELECT count(*) FROM escalations) +
		(SELECT count(*) FROM refund_authorizations)`); n != 0 {
		t.Errorf("%d rows", n)
	}
	b.want(asks("C1", "O0", 1000), "approved")
	if p, err := b.Preview(t.Context(), asks("C1", "O0", 1000)); err != nil || !p.Replayed || !p.Approved {
		t.Errorf("%+v, %v", p, err)
	}
}

// Twenty identical requests at once, and twenty of one case that only three orders' worth of authority covers.
func TestDecide_Races(t *testing.T) {
	b := newBundle(t)
	var approved, said atomic.Int64
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			a, err := b.Decide(t.Context(), asks("C1", "O0", 1000))
			if err != nil || !a.Approved {
				t.Errorf("%+v, %v", a, err)
			}
			if !a.Replayed {
				said.Add(1)
			}
		})
	}
	callers.Wait()
	b.approvals(1)
	if said.Load() != 1 {
		t.Errorf("%d of 20 were the first", said.Load())
	}
	for i := range 10 {
		callers.Go(func() {
			a, err := b.Decide(t.Context(), asks("C2", fmt.Sprint("O", i), 2000))
			if err != nil {
				t.Error(err)
			}
			if a.Approved {
				approved.Add(1)
			}
		})
	}
	callers.Wait()
	if approved.Load() != 3 { // 6000 is the authority of a case
		t.Errorf("%d approved", approved.Load())
	}
	b.approvals(4)
}

func verdict(id, key string) escalations.Verdict {
	return escalations.Verdict{TenantID: tenant, EscalationID: id, KeyID: key}
}

// Double clicks, two approvers and an approval against a refusal: exactly one decision, and at most one authorization.
func TestApprove_ManyAtOnce_EndInOneDecision(t *testing.T) {
	b := newBundle(t)
	declined, decisions := 0, 0
	for ; decisions < 10 || decisions < 100 && (declined == 0 || declined == decisions); decisions++ {
		id := b.want(asks("C1", fmt.Sprint("O", decisions), 5500), "beyond_limit").Escalation.ID
		before := b.count(`SELECT count(*) FROM refund_authorizations`)
		var ends [3]atomic.Int64
		var clicks sync.WaitGroup
		for i := range 6 {
			clicks.Go(func() {
				act := b.Approve
				if i%3 == 2 {
					act = b.Decline
				}
				e, err := act(context.Background(), verdict(id, fmt.Sprint("key-", i%2)))
				switch {
				case errors.Is(err, escalations.ErrNotApprovable):
					ends[2].Add(1)
				case err != nil:
					t.Error(err)
				case e.State == escalations.StateApproved:
					ends[0].Add(1)
				case e.State == escalations.StateDeclined:
					ends[1].Add(1)
				}
			})
		}
		clicks.Wait()
		e, err := b.Get(t.Context(), tenant, id)
		if err != nil || e.State == escalations.StateOpen {
			t.Fatalf("%+v, %v", e, err)
		}
		minted := b.count(`SELECT count(*) FROM refund_authorizations`) - before
		if e.State == escalations.StateApproved && (minted != 1 || ends[0].Load() != 4 || ends[1].Load() != 0) ||
			e.State == escalations.StateDeclined && (minted != 0 || ends[1].Load() != 2 || ends[0].Load() != 0) {
			t.Errorf("%s: %d minted, %d approved, %d declined, %d refused", e.State, minted, ends[0].Load(),
				ends[1].Load(),
				ends[2].Load())
		}
		if e.State == escalations.StateDeclined {
			declined++
		}
	}
	if declined == 0 || declined == decisions {
		t.Errorf("no race: %d of %d were declined", declined, decisions)
	}
}

func TestApprove_WhatIsNotApprovable(t *testing.T) {
	b := newBundle(t)
	refuse := func(id, key string) {
		t.Helper()
		if _, err := b.Approve(t.Context(), verdict(id, key)); !errors.Is(err, escalations.ErrNotApprovable) {
			t.Errorf("%s: %v", id, err)
		}
	}
	own := b.want(asks("C1", "O0", 9000), "beyond_limit").Escalation.ID
	refuse(own, "key-agent") // the requester's own
	b.exec(`UPDATE orders SET refunded_cents = 1001 WHERE order_id = 'O0'`)
	refuse(own, "key-ann") // the order cannot cover it any more
	b.exec(`UPDATE orders SET refunded_cents = 1000 WHERE order_id = 'O0'`)
	e, err := b.Approve(t.Context(), verdict(own, "key-ann"))
	if err != nil || e.OperationID == nil || e.State != escalations.StateApproved {
		t.Fatalf("%+v, %v", e, err)
	}
	if again, err := b.Approve(t.Context(), verdict(own, "key-bob")); err != nil ||
		diff(again.OperationID, e.OperationID) {
		t.Errorf("%+v, %v", again, err)
	}
	if a := b.want(asks("C1", "O0", 9000), "beyond_limit again"); diff(a.OperationID, e.OperationID) {
		t.Errorf("the requester is not told of the approval: %+v", a)
	}
	handed, _, err := b.HandOver(t.Context(),
		escalations.Handoff{TenantID: tenant, KeyID: "key-agent", CaseID: "C1", Trigger: "tool_failure"})
	if err != nil {
		t.Fatal(err)
	}
	refuse(handed.ID, "key-ann")
	if _, err := b.Decline(t.Context(), verdict(handed.ID, "key-ann")); err != nil {
		t.Error(err)
	}
	for _, v := range []escalations.Verdict{
		verdict("00000000-0000-0000-0000-000000000000", "key-ann"), {TenantID: "other", EscalationID: own,
			KeyID: "key"},
	} {
		if _, err := b.Approve(t.Context(), v); !errors.Is(err, escalations.ErrNotFound) {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

// An operation that needs attention has one open case, which its settling closes in the same transaction.
func TestOnEvents_AnOperationsCase_OpensAndClosesWithIt(t *testing.T) {
	b := newBundle(t)
	b.operation("K", "O0", "needs_attention")
	event := func(from, to operations.State) {
		t.Helper()
		tx, err := b.db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		told := &pgx.Batch{}
		err = b.OnEvents(told, []operations.Event{{
			TenantID: tenant, OperationID: "K", Kind: "transition", FromState: &from, ToState: &to,
			Detail: map[string]string{"failure_code": "outcome_overdue"},
		}})
		if err = errors.Join(err, tx.SendBatch(t.Context(), told).Close(), tx.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	open := escalations.StateOpen
	list := func(state *escalations.State) []escalations.Escalation {
		t.Helper()
		found, _, err := b.List(t.Context(), tenant, escalations.Filter{State: state}, operations.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	event(operations.StateReserved, operations.StateNeedsAttention)
	event(operations.StateReserved, operations.StateNeedsAttention)
	found := list(&open)
	if len(found) != 1 || found[0].Subject != escalations.SubjectOperation || *found[0].OperationID != "K" {
		t.Fatalf("%+v", found)
	}
	var evidence struct{ Cause string }
	if err := json.Unmarshal(found[0].Evidence, &evidence); err != nil || evidence.Cause != "outcome_overdue" {
		t.Errorf("%s, %v", found[0].Evidence, err)
	}
	for _, act := range []func(context.Context, escalations.Verdict) (escalations.Escalation, error){b.Approve,
		b.Decline} {
		if _, err := act(t.Context(), verdict(found[0].ID, "key-ann")); !errors.Is(err, escalations.ErrNotApprovable) {
			t.Error(err)
		}
	}
	event(operations.StateNeedsAttention, operations.StateSucceeded)
	if len(list(&open)) != 0 || len(list(nil)) != 1 {
		t.Error("the case outlives its operation")
	}
}

func TestHandOver_CarriesWhatWasAskedTriedAndFound(t *testing.T) {
	b := newBundle(t)
	b.want(asks("C1", "O0", 1000), "approved")
	b.operation("K", "O0", "reserved")
	order, summary := "O0", "The customer\nasked twice."
	h := escalations.Handoff{TenantID: tenant, KeyID: "key-agent", CaseID: "C1", OrderID: &order,
		Trigger: "asked_for_human", Summary: &summary}
	e, isNew, err := b.HandOver(t.Context(), h)
	if err != nil || !isNew || e.Queue != "people" || *e.Summary != summary {
		t.Fatalf("%+v, %t, %v", e, isNew, err)
	}
	for _, word := range []string{`"approvals": [{`, `"policy:test-1"`, `"operations": [{`, `"reserved"`} {
		if !strings.Contains(string(e.Evidence), word) {
			t.Errorf("%s lacks %s", e.Evidence, word)
		}
	}
	if again, isNew, err := b.HandOver(t.Context(), h); err != nil || isNew || again.ID != e.ID {
		t.Errorf("%+v, %t, %v", again, isNew, err)
	}
	if d := time.Until(e.DueAt); d < 50*time.Minute || d > time.Hour {
		t.Errorf("due in %v, want the queue's hour", d)
	}
	if taken, err := b.Take(t.Context(), verdict(e.ID, "key-ann"), "ann"); err != nil || *taken.Owner != "ann" {
		t.Errorf("%+v, %v", taken, err)
	}
}

func TestList_PagesAreWholeAndTenantsApart(t *testing.T) {
	b := newBundle(t)
	for i := range 7 {
		b.want(asks(fmt.Sprint("C", i), "O0", 9000), "beyond_limit")
	}
	b.exec(`UPDATE escalations SET created_at = '2026-01-01Z'`) // all at once
	page := operations.Page{Limit: 3}
	seen := make(map[string]bool)
	for range 10 {
		found, next, err := b.List(t.Context(), tenant, escalations.Filter{}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			if seen[e.ID] {
				t.Errorf("%s twice", e.ID)
			}
			seen[e.ID] = true
		}
		if page.Cursor = next; next == "" {
			break
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d of 7 seen", len(seen))
	}
	if found, _, err := b.List(t.Context(), "other", escalations.Filter{}, page); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	page.Cursor = "x"
	if _, _, err := b.List(t.Context(), tenant, escalations.Filter{}, page); !errors.Is(err,
		operations.ErrInvalidCursor) {
		t.Errorf("a cursor that was never handed out: %v", err)
	}
}

// The queue as it is due: pages follow the SLA, not the arrival, and miss nothing while cases are closed.
func TestList_AsCasesAreDue(t *testing.T) {
	b := newBundle(t)
	for i := range 7 {
		b.want(asks(fmt.Sprint("C", i), "O0", 9000), "beyond_limit")
	}
	// The later it was opened, the earlier it is due; two are due at once.
	b.exec(`UPDATE escalations SET due_at = '2026-01-09Z'::timestamptz - least(right(case_id, 1)::int,
		5) * interval '1 day'`)
	open := escalations.StateOpen
	page, seen := operations.Page{Limit: 2}, []string{}
	for range 10 {
		found, next, err := b.List(t.Context(), tenant, escalations.Filter{State: &open, Due: true}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			seen = append(seen, *e.CaseID)
			if _, err := b.Decline(t.Context(), verdict(e.ID, "key-ann")); err != nil {
				t.Fatal(err)
			}
		}
		if page.Cursor = next; next == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"C5", "C6", "C4", "C3", "C2", "C1", "C0"}, seen); diff != "" {
		t.Errorf("cases (-want +got):\n%s", diff)
	}
}

// One policy is swapped for another while requests are decided: each decision is wholly of one version.
func TestSetPolicy_WhileRequestsAreDecided(t *testing.T) {
	b := newBundle(t)
	none := escalations.NoPolicy()
	stop := make(chan struct{})
	var callers sync.WaitGroup
	callers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				b.SetPolicy(none)
			}
		}
	})
	for i := range 40 {
		a := b.decide(asks(fmt.Sprint("C", i), fmt.Sprint("O", i%10), 100))
		if a.Approved != (a.PolicyVersion == "test-1") {
			t.Errorf("%+v", a)
		}
	}
	close(stop)
	callers.Wait()
}
