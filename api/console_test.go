package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/access"
	"refundd/operations"
	"refundd/reconcile"
)

func TestMe_IsTheCallersKeyAlone(t *testing.T) {
	t.Parallel()
	s := start(t)
	if err := s.operator.CreateTenant(t.Context(), "other", true); err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	secret, key, err := s.operator.CreateKey(t.Context(), access.NewKey{
		TenantID: "other", Scopes: []access.Scope{access.Read, access.RefundsResolve}, TTL: &day,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := s.do(t, "GET", "/v1/me", "", as(secret))
	want := map[string]any{
		"tenant_id": "other", "require_authorization": true, "key_id": key.KeyID, "scopes": []any{"read",
			"refunds:resolve"},
		"expires_at": key.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	if d := cmp.Diff(want, got.body); d != "" {
		t.Errorf("another tenant's key (-want +got):\n%s", d)
	}
	if own := s.do(t, "GET", "/v1/me", ""); own.body["tenant_id"] != tenant || own.body["expires_at"] != nil ||
		own.body["require_authorization"] != false || len(own.body["scopes"].([]any)) != len(access.AllScopes()) {
		t.Errorf("the own key: %s", own.raw)
	}
	wantAnswer(t, s.do(t, "GET", "/v1/me", "", as(s.key(t, "other", access.RefundsWrite))), http.StatusForbidden)
}

// lines tells totals without times, one a line.
func lines(a answered) (told []string) {
	for _, row := range a.body["data"].([]any) {
		r := row.(map[string]any)
		told = append(told, fmt.Sprint(r["state"], " ", r["currency"], " ", r["count"], " ", r["amount_cents"]))
	}
	return told
}

func TestTotals_CountEachStateAndCurrencyOfTheTenant(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	for i, id := range []string{"A", "B", "C"} {
		p.paid(t, id)
		p.registered(t, "L-"+id)
		if i > 0 { // B and C are left without an answer
			p.fault(t, `{"mode":"error_before","count":1}`)
		}
		p.refund(t, id)
		wantAnswer(t, p.do(t, "POST", "/v1/refunds",
			`{"operation_id":"L-`+id+`","order_id":"L-`+id+`","amount_cents":70}`), http.StatusCreated)
	}
	if _, err := p.db.Owner.Exec(t.Context(), `
		UPDATE refund_operations SET created_at = '2026-01-01T10:30:00Z' WHERE operation_id IN ('C', 'L-C');
		UPDATE refund_operations SET created_at = 'infinity' WHERE operation_id = 'L-B'`); err != nil {
		t.Fatal(err)
	}
	open := p.do(t, "GET", "/v1/refund-totals/open", "")
	if d := cmp.Diff([]string{"reserved EUR 2 12000"}, lines(open)); d != "" || open.body["complete"] != true {
		t.Errorf("open (-want +got):\n%s%s", d, open.raw)
	}
	if oldest := open.body["data"].([]any)[0].(map[string]any)["oldest_created_at"]; oldest != "2026-01-01T10:30:00.000000Z" {
		t.Errorf("oldest: %v", oldest)
	}
	window := func(after, before, unit string) answered {
		q := url.Values{"created_after": {after}, "created_before": {before}, "unit": {unit}}
		return p.do(t, "GET", "/v1/refund-totals?"+q.Encode(), "")
	}
	past := window("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "hour")
	if d := cmp.Diff([]string{"reserved EUR 1 6000", "succeeded EUR 1 70"}, lines(past)); d != "" {
		t.Errorf("of that day (-want +got):\n%s", d)
	}
	for unit, want := range map[string]string{"hour": "2026-01-01T10:00:00.000000Z",
		"day": "2026-01-01T00:00:00.000000Z"} {
		a := window("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", unit)
		if got := a.body["data"].([]any)[0].(map[string]any)["bucket"]; got != want {
			t.Errorf("by %s the bucket is %v, want %s", unit, got, want)
		}
	}
	now := time.Now()
	lately := window(now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339), "day")
	if d := cmp.Diff([]string{"reserved EUR 1 6000", "succeeded EUR 2 6070"}, lines(lately)); d != "" {
		t.Errorf("of now (-want +got):\n%s", d)
	}
	if err := p.operator.CreateTenant(t.Context(), "other", true); err != nil {
		t.Fatal(err)
	}
	stranger := as(p.key(t, "other", access.Read))
	if a := p.do(t, "GET", "/v1/refund-totals/open", "", stranger); len(lines(a)) != 0 || a.body["complete"] != true {
		t.Errorf("another tenant: %s", a.raw)
	}
}

// A sum may be larger than any refund.
func TestTotals_SumsBeyondAnInteger_AreExact(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A")
	_, err := s.db.Owner.Exec(t.Context(), `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state, settled_at)
		SELECT 'acme', 'op-' || n, repeat('0', 64), gen_random_uuid(), 'A', 9007199254740991, 'EUR', 'succeeded', now()
		FROM generate_series(1, 1100) AS n`)
	if err != nil {
		t.Fatal(err)
	}
	a := s.do(t, "GET", "/v1/refund-totals?unit=day&created_after="+time.Now().Add(-48*time.Hour).UTC().Format(time.RFC3339)+
		"&created_before="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "")
	if want := `"count":1100,"amount_cents":9907919180215090100}`; a.status != 200 || !strings.Contains(a.raw, want) {
		t.Errorf("%s lacks %s", a.raw, want)
	}
}

func TestRefunds_AreFoundByTheirProvidersIDAndByTheReferenceOfACall(t *testing.T) {
	t.Parallel()
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.paid(t, "B")
	paid := p.refund(t, "A")
	p.fault(t, `{"mode":"drop_after","count":1}`)
	lost := p.refund(t, "B")
	wantAnswer(t, lost, http.StatusAccepted)
	p.later(t, "B")
	resumed := p.refund(t, "B")
	wantAnswer(t, resumed, http.StatusCreated)
	replayed := p.refund(t, "B")
	find := func(name, value string, options ...option) (ids []string) {
		a := p.do(t, "GET", "/v1/refunds?"+url.Values{name: {value}}.Encode(), "", options...)
		for _, row := range a.body["data"].([]any) {
			ids = append(ids, row.(map[string]any)["operation_id"].(string))
		}
		return ids
	}
	ref := func(a answered) string { return a.header.Get("Request-Id") }
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{"provider_refund_id", paid.text("provider_refund_id"), []string{"A"}},
		{"provider_refund_id", "nobody's", nil},
		{"diagnostic_ref", ref(paid), []string{"A"}},
		{"diagnostic_ref", ref(lost), []string{"B"}},
		{"diagnostic_ref", ref(resumed), []string{"B"}},
		{"diagnostic_ref", ref(replayed), nil},
		{"diagnostic_ref", "nobody's", nil},
	} {
		if d := cmp.Diff(c.want, find(c.name, c.value)); d != "" {
			t.Errorf("by %s %s (-want +got):\n%s", c.name, c.value, d)
		}
	}
	if err := p.operator.CreateTenant(t.Context(), "other", true); err != nil {
		t.Fatal(err)
	}
	stranger := as(p.key(t, "other", access.Read))
	if found := append(find("provider_refund_id", paid.text("provider_refund_id"), stranger),
		find("diagnostic_ref", ref(paid), stranger)...); found != nil {
		t.Errorf("another tenant finds %q", found)
	}
}

func TestRunsAndAudits_AreListedNewestFirst(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, err := s.db.Owner.Exec(t.Context(), `
		INSERT INTO reconciliation_runs (run_id, started_at, finished_at, claimed, succeeded, errors, error,
			duration_ms) VALUES
			('01900000-0000-7000-8000-000000000001', '2026-01-01Z', '2026-01-01Z', 3, 2, 0, NULL, 12),
			('01900000-0000-7000-8000-000000000002', '2026-01-02Z', '2026-01-02Z', 9, 0, 1,
				'provider "stripe" is not configured', 7),
			('01900000-0000-7000-8000-000000000003', '2026-01-03Z', NULL, 0, 0, 0, NULL, NULL)`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := reconcile.RecordAudit(t.Context(), s.db.Pool, reconcile.Report{Operations: int64(i), LieCount: 2},
			time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for path, member := range map[string]string{"/v1/reconciliation-runs": "result", "/v1/audits": "operations"} {
		var got []string
		for next := "?limit=2"; next != ""; {
			a := s.do(t, "GET", path+next, "")
			for _, row := range a.body["data"].([]any) {
				got = append(got, fmt.Sprint(row.(map[string]any)[member]))
			}
			if strings.Contains(a.raw, "stripe") {
				t.Errorf("a run tells more than counts: %s", a.raw)
			}
			if next = ""; a.body["next_cursor"] != nil {
				next = "?limit=2&cursor=" + a.text("next_cursor")
			}
		}
		want := map[string][]string{"result": {"unfinished", "failed", "success"},
			"operations": {"2", "1", "0"}}[member]
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", path, d)
		}
	}
	a := s.do(t, "GET", "/v1/reconciliation-runs?created_after=2026-01-01T00:00:00Z&created_before=2026-01-03T00:00:00Z", "")
	if rows := a.body["data"].([]any); len(rows) != 1 || rows[0].(map[string]any)["claimed"] != float64(9) {
		t.Errorf("of one day: %s", a.raw)
	}
}
