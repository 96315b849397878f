package blackbox

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"refundd/test/harness"
)

// K succeeded and its answer was lost. Whatever its retry meets before K's row is read says unknown, never no; then the
// same retry tells the truth.
func TestA52_ARetryThatMeetsARefusal_NeverHearsThatNothingMoved(t *testing.T) {
	t.Parallel()
	service := harness.New(t, "--request-timeout", "10s")
	tenant := service.OpenTenant(t)
	c := tenant.Client()
	tenant.Order("P", 10000)
	want(t, c.Refund("K", "P", 600), "processed")
	good := `{"operation_id":"K","order_id":"P","amount_cents":600}`
	retry := func(name, body string, header http.Header, client harness.Client) {
		t.Helper()
		for _, r := range []harness.Request{
			{Method: http.MethodPost, Path: "/v1/refunds", Body: []byte(body), Header: header},
			{Method: http.MethodPost, Path: "/v1/refunds",
				Body: []byte(strings.Replace(body, `"operation_id":"K",`, "", 1)), Header: withKey(header)},
		} {
			a := client.Do(r)
			if moved := harness.Read[harness.Problem](t, a).MoneyMoved; a.Status < 400 || moved != "unknown" {
				t.Errorf("%s: %d says money_moved %q: %s", name, a.Status, moved, a.Body)
			}
		}
	}
	for name, r := range map[string]struct {
		body   string
		header http.Header
		key    string
	}{
		"no key":         {good, nil, ""},
		"wrong key":      {good, nil, "wrong"},
		"no scope":       {good, nil, tenant.NewKey("read")},
		"cut short":      {good[:len(good)-1], nil, tenant.Key},
		"unknown member": {strings.Replace(good, "{", `{"x":1,`, 1), nil, tenant.Key},
		"wrong type":     {strings.Replace(good, "600", `"600"`, 1), nil, tenant.Key},
		"too large": {strings.Replace(good, "{", `{"reason":"`+strings.Repeat("x", 64<<10)+`",`, 1), nil,
			tenant.Key},
		"media type":          {good, http.Header{"Content-Type": {"text/plain"}}, tenant.Key},
		"zero":                {strings.Replace(good, "600", "0", 1), nil, tenant.Key},
		"too large an amount": {strings.Replace(good, "600", "9007199254740992", 1), nil, tenant.Key},
		"no order":            {strings.Replace(good, `"order_id":"P",`, "", 1), nil, tenant.Key},
		"bad currency":        {strings.Replace(good, "{", `{"currency":"eur",`, 1), nil, tenant.Key},
		"long reason": {strings.Replace(good, "{", `{"reason":"`+strings.Repeat("x", 1001)+`",`, 1), nil,
			tenant.Key},
	} {
		retry(name, r.body, r.header, c.With(r.key))
	}
	limited := c
	limited.URL = harness.Serve(t, service.DB.ServiceURL, "--rate-limit", "1").URL
	limited.Get("/v1/refunds/K")
	retry("rate limited", good, nil, limited)

	hurried := c
	hurried.URL = harness.Serve(t, service.DB.ServiceURL, "--request-timeout", "300ms", "--max-queue", "1").URL
	release := service.Hold(t, lockAll)
	together(8, func(int) { retry("late or overloaded", good, nil, hurried) })
	release()

	tenant.Exec(`REVOKE SELECT ON refund_operations FROM refundd_service`)
	faulty := c
	faulty.Faulty = true
	retry("internal", good, nil, faulty)
	tenant.Exec(`GRANT SELECT ON refund_operations TO refundd_service`)

	end := service.Outage(t)
	retry("database unavailable", good, nil, c)
	end()
	again := c.Refund("K", "P", 600)
	for began := time.Now(); again.Status >= 500 &&
		time.Since(began) < 20*time.Second; again = c.Refund("K", "P", 600) {
		time.Sleep(50 * time.Millisecond)
	}
	want(t, again, "already_processed")
	wantMoved(t, tenant, "P", 600)
	service.Audit(t)
}

func withKey(h http.Header) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Idempotency-Key", `"K"`)
	return h
}

// Requests that wait behind a locked order past their deadline, or whose callers left, never execute afterwards.
func TestA52_AQueuedRequestPastItsDeadline_NeverExecutes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout string
		leave   time.Duration // when callers hang up; 0 never
	}{
		"deadline":       {"700ms", 0},
		"caller hung up": {"20s", 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := harness.New(t, "--request-timeout", c.timeout)
			tenant := service.OpenTenant(t)
			tenant.Order("P", 10000)
			tenant.Order("Q", 10000)
			release := service.Hold(t, `SELECT FROM orders FOR UPDATE`)
			const n = 40
			together(n, func(i int) {
				a, err := tenant.Client().Try(harness.Request{Method: http.MethodPost, Path: "/v1/refunds", Valid: true,
					Wait: c.leave,
					Body: fmt.Appendf(nil, `{"operation_id":"K%d","order_id":%q,"amount_cents":1}`, i,
						[]string{"P", "Q"}[i%2])})
				if (err == nil) == (c.leave > 0) || err == nil && a.Code() != "deadline_exceeded" {
					t.Errorf("K%d: %d %s %v", i, a.Status, a.Body, err)
				}
			})
			time.Sleep(200 * time.Millisecond) // let the server see that callers left
			release()
			time.Sleep(2 * time.Second) // whatever wants to execute now, does
			wantMoved(t, tenant, "P", 0)
			wantMoved(t, tenant, "Q", 0)
			together(n, func(i int) {
				want(t, tenant.Client().Refund(fmt.Sprint("K", i), []string{"P", "Q"}[i%2], 1), "processed")
			})
			wantMoved(t, tenant, "P", n/2)
			service.Audit(t)
		})
	}
}

// A refund whose order somebody keeps locked is given up, by a service that does reach its database: it says nothing
// else.
func TestA52_AnOrderStaysLocked_TheDatabaseIsNotSaidToBeAway(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	tenant := service.OpenTenant(t)
	tenant.Order("P", 10000)
	release := service.Hold(t, `SELECT FROM orders FOR UPDATE`)
	a := tenant.Client().Refund("K", "P", 100)
	want(t, a, "database_unavailable")
	if said := harness.Read[harness.Problem](t, a).Detail; strings.Contains(said, "can not reach") {
		t.Errorf("it is reached, and the detail is %q", said)
	}
	ready(t, service, http.StatusOK)
	release()
	wantMoved(t, tenant, "P", 0)
	want(t, tenant.Client().Refund("K", "P", 100), "processed")
	wantMoved(t, tenant, "P", 100)
}
