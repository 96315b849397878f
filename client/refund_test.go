package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/client"
)

var asked = client.RefundRequest{OperationID: "K", OrderID: "A-1", AmountCents: 4999}

// quick answers that the service asks to be called again at once, so that the tests need not wait.
var quick = map[string]string{"Retry-After": "0"}

// Every way not to answer, after the refund was executed: the operation is looked up, and never sent again.
func TestRefund_ExecutedAndTheAnswerIsLost_IsLookedUpInsteadOfSentAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]act{
		"reset": reset, "truncated": truncate, "hang": hang, "slow body": drip, "another answer": garble, "half an answer": halve,
		"endless body": swell, "proxy's 502": page(502, quick), "proxy's 529": page(529, nil),
		"internal": refuse(500, "internal", true, "unknown", nil),
		"deadline": refuse(504, "deadline_exceeded", true, "unknown", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.after = []act{lose}
			got, err := s.client(t, nil).Refund(t.Context(), asked)
			if err != nil || got.Status != client.StatusAlreadyProcessed || !got.Replayed ||
				got.MoneyMoved != client.MoneyMovedYes {
				t.Fatalf("answers %+v, %v", got, err)
			}
			seen, executed := s.requests()
			if diff := cmp.Diff([]string{"POST K 1", "GET K 1"}, seen); diff != "" || executed != 1 {
				t.Errorf("%d executed; requests (-want +got):\n%s", executed, diff)
			}
		})
	}
}

// Every refusal that passes, before anything was executed: sent again with the same operation id.
func TestRefund_RefusedForNow_IsSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse act
		want   []string
	}{
		"408": {page(408, quick), []string{"POST K 1", "GET K 1", "POST K 2"}},
		"409": {refuse(409, "operation_in_progress", true, "unknown", quick),
			[]string{"POST K 1", "POST K 2"}},
		"429": {refuse(429, "rate_limited", true, "unknown", quick), []string{"POST K 1", "POST K 2"}},
		"500": {refuse(500, "internal", true, "unknown", quick),
			[]string{"POST K 1", "GET K 1", "POST K 2"}},
		"503":   {refuse(503, "overloaded", true, "unknown", quick), []string{"POST K 1", "POST K 2"}},
		"529":   {page(529, quick), []string{"POST K 1", "GET K 1", "POST K 2"}},
		"reset": {reset, []string{"POST K 1", "GET K 1", "POST K 2"}},
		"422 with X-Should-Retry": {refuse(422, "odd", false, "no",
			map[string]string{"X-Should-Retry": "true", "Retry-After": "0"}), []string{"POST K 1", "POST K 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.before = []act{c.refuse}
			got, err := s.client(t, nil).Refund(t.Context(), asked)
			if err != nil || got.Status != client.StatusProcessed || got.Replayed {
				t.Fatalf("answers %+v, %v", got, err)
			}
			if seen, _ := s.requests(); !cmp.Equal(c.want, seen) {
				t.Errorf("requests %q, want %q", seen, c.want)
			}
		})
	}
}

func TestRefund_RefusedForGood_IsNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse act
		class  error
	}{
		"422": {refuse(422, "amount_exceeds_refundable", false, "no", nil), client.ErrFatal},
		"401": {refuse(401, "unauthenticated", false, "unknown", nil), client.ErrUnknown},
		"503 with X-Should-Retry": {refuse(503, "provider_unavailable", true, "no",
			map[string]string{"X-Should-Retry": "false"}), client.ErrFatal},
		"403 of a proxy": {page(403, nil), client.ErrUnknown},
		"redirect":       {page(307, map[string]string{"Location": "http://127.0.0.1:1/"}), client.ErrUnknown},
		"a wait that is too long": {refuse(503, "provider_unavailable", true, "no",
			map[string]string{"Retry-After": "61"}), client.ErrTransient},
		"a wait until a date far away": {refuse(503, "provider_unavailable", true, "no",
			map[string]string{"Retry-After": time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}),
			client.ErrTransient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.before = []act{c.refuse, c.refuse, c.refuse}
			began := time.Now()
			_, err := s.client(t, nil).Refund(t.Context(), asked)
			_ = onlyClass(t, err, c.class)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			posts := 0
			seen, executed := s.requests()
			for _, r := range seen {
				if strings.HasPrefix(r, "POST") {
					posts++
				}
			}
			if posts != 1 || executed != 0 {
				t.Errorf("requests %q, %d executed", seen, executed)
			}
		})
	}
}

// onlyClass fails the test where err is not of this class, or of another one too.
func onlyClass(t *testing.T, err, class error) *client.Error {
	t.Helper()
	for _, other := range []error{client.ErrFatal, client.ErrTransient, client.ErrUnknown} {
		if want := errors.Is(class, other); errors.Is(err, other) != want {
			t.Errorf("%v: is %q: %t", err, other, errors.Is(err, other))
		}
	}
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no client.Error", err)
	}
	return e
}

// Whatever never answers is never told as something that did not happen.
func TestRefund_NoAnswerAtAll_IsUnknown(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]act{"reset": reset, "truncated": truncate, "hang": hang, "502": page(502, quick),
		"garbled": garble} {
		for _, executed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " executed ", executed), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				lost := []act{lose, lose, lose, lose}
				if s.before = lost; executed {
					s.before, s.after = nil, lost
				}
				s.gets = []act{lose, lose, lose, lose}
				_, err := s.client(t, nil).Refund(t.Context(), asked)
				e := onlyClass(t, err, client.ErrUnknown)
				if e.MoneyMoved != client.MoneyMovedUnknown || !e.Retryable {
					t.Errorf("%+v", e)
				}
				if seen, _ := s.requests(); len(seen) != 6 {
					t.Errorf("requests %q, want 3 attempts and their look-ups", seen)
				}
			})
		}
	}
}

func TestRefund_AnotherRefundUnderTheKey_IsNoReceipt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.executed["K"] = 1
	s.before = []act{reset, refuse(422, "operation_id_conflict", false, "no", nil)}
	_, err := s.client(t, nil).Refund(t.Context(), asked)
	if e := onlyClass(t, err, client.ErrFatal); e.Code != client.CodeConflict {
		t.Errorf("%+v", e)
	}
}

func TestRefund_TheCallerLeaves_IsACancellationAndNoFault(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	c := s.client(t, func(c *client.Config) { c.BreakerFailures = 1; c.AttemptTimeout = 5 * time.Second })
	s.before = []act{hang}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Refund(ctx, asked)
	if e := onlyClass(t, err, client.ErrUnknown); e.Code != client.CodeDeadlineExceeded ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v", e)
	}

	s = newStage(t)
	c = s.client(t, func(c *client.Config) { c.BreakerFailures = 1; c.AttemptTimeout = 5 * time.Second })
	s.before = []act{hang}
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, leave)
	_, err = c.Refund(ctx, asked)
	if e := onlyClass(t, err, client.ErrUnknown); e.Code != client.CodeCanceled {
		t.Errorf("%+v", e)
	}
	if _, err := c.Refund(t.Context(), asked); err != nil {
		t.Errorf("a caller who left opened the breaker: %v", err)
	}
}

func TestErrors_HoldNoSecretAndNoURL(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	c := s.client(t, func(c *client.Config) { c.Attempts = 1 })
	for _, a := range []act{reset, truncate, hang, garble, page(502, nil),
		refuse(401, "unauthenticated", false, "unknown", nil)} {
		s.mu.Lock()
		s.before, s.gets = []act{a}, []act{a}
		s.mu.Unlock()
		_, err := c.Refund(t.Context(), asked)
		if err == nil {
			t.Fatal("no error")
		}
		for _, secret := range []string{apiKey, strings.TrimPrefix(s.URL, "http://"), "/v1/"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q holds %q", err, secret)
			}
		}
	}
}
