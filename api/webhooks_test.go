package api

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refundd/access"
	"refundd/operations"
	"refundd/webhooks"
)

const hookURL = `{"url":"http://127.0.0.1:1/hooks"}`

func TestWebhookEndpoints_ShowTheirSecretOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.do(t, "POST", endpointsPath,
		`{"url":"http://127.0.0.1:1/hooks","description":"the shop","event_types":["refund.failed"]}`)
	path := endpointsPath + "/" + made.text("endpoint_id")
	if made.status != http.StatusCreated || made.header.Get("Location") != path || made.text("state") != "enabled" {
		t.Fatalf("%d %s", made.status, made.raw)
	}
	rotated := s.do(t, "POST", path+"/rotate", `{"overlap_seconds":60}`)
	again := s.do(t, "POST", path+"/rotate", "")
	ended := s.do(t, "POST", path+"/rotate", `{"overlap_seconds":0}`)
	secrets := map[string]bool{}
	for _, a := range []answered{made, rotated, again, ended} {
		if !regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`).MatchString(a.text("secret")) {
			t.Errorf("%d %s", a.status, a.raw)
		}
		secrets[a.text("secret")] = true
	}
	if len(secrets) != 4 || again.text("old_secret_until") <= rotated.text("old_secret_until") ||
		ended.body["old_secret_until"] != nil {
		t.Errorf("%s\n%s\n%s", rotated.raw, again.raw, ended.raw)
	}
	for _, a := range []answered{
		s.do(t, "GET", path, ""), s.do(t, "GET", endpointsPath, ""), s.do(t, "POST", path+"/disable", ""), s.do(t,
			"POST", path+"/disable", "{}"),
		s.do(t, "POST", path+"/enable", ""), s.do(t, "GET", path+"/deliveries", ""), s.do(t, "DELETE", path, ""),
	} {
		if a.status != http.StatusOK || strings.Contains(a.raw, "secret\":\"") || strings.Contains(a.raw, "whsec") {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for secret := range secrets {
		if strings.Contains(s.log.buf.String(), strings.TrimPrefix(secret, "whsec_")) {
			t.Error("the log has a secret")
		}
	}
}

func TestWebhookEndpoints_StateIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := endpointsPath + "/" + s.do(t, "POST", endpointsPath, hookURL).text("endpoint_id")
	var states []string
	for _, do := range [][2]string{
		{"POST", "/disable"}, {"POST", "/disable"}, {"POST", "/enable"}, {"POST", "/enable"}, {"GET", ""}, {"DELETE",
			""}, {"DELETE", ""},
		{"GET", ""}, {"POST", "/enable"}, {"POST", "/rotate"}, {"GET", "/deliveries"},
	} {
		a := s.do(t, do[0], path+do[1], "")
		because, _ := a.body["disabled_because"].(string)
		states = append(states, strings.TrimSpace(fmt.Sprint(a.status, " ", a.text("state"), a.text("code"),
			" ", because)))
	}
	want := []string{
		"200 disabled requested", "200 disabled requested", "200 enabled", "200 enabled", "200 enabled", "200 deleted", "404 not_found",
		"404 not_found", "404 not_found", "404 not_found", "404 not_found",
	}
	if d := cmp.Diff(want, states); d != "" {
		t.Error(d)
	}
	if a := s.do(t, "GET", endpointsPath, ""); a.raw != `{"data":[],"next_cursor":null}` {
		t.Error(a.raw)
	}
}

func TestWebhookEndpoints_RefuseWhatNothingIsSentTo(t *testing.T) {
	t.Parallel()
	s := start(t)
	public := start(t)
	outbox, err := webhooks.New(webhooks.Config{Pool: public.db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	*public.handler.outbox = *outbox
	for body, fault := range map[string]string{
		`{}`:                                    "/url required",
		`{"url":""}`:                            "/url invalid",
		`{"url":"shop.example"}`:                "/url invalid",
		`{"url":"ftp://a.example"}`:             "/url invalid",
		`{"url":"https://"}`:                    "/url invalid",
		`{"url":"https://a:b@shop.example"}`:    "/url invalid",
		`{"url":"https://shop.example/#a"}`:     "/url invalid",
		`{"url":"https://shop.example:0/"}`:     "/url invalid",
		`{"url":"https://shop.example:99999/"}`: "/url invalid",
		`{"url":"https://shop.example/a b"}`:    "/url invalid",
		`{"url":"https://shop.example/` + strings.Repeat("a", 2048) + `"}`:               "/url too_long",
		`{"url":"https://shop.example","event_types":[]}`:                                "/event_types invalid",
		`{"url":"https://shop.example","event_types":["refund.reserved"]}`:               "/event_types/0 invalid",
		`{"url":"https://shop.example","event_types":["refund.failed","refund.failed"]}`: "/event_types/1 invalid",
		`{"url":"https://shop.example","description":" "}`:                               "/description invalid",
	} {
		if a := s.do(t, "POST", endpointsPath, body); a.text("code") != "invalid_request" ||
			strings.Join(a.errorsOf(), ",") != fault {
			t.Errorf("%.80s: %d %s", body, a.status, a.raw)
		}
	}
	for _, body := range []string{`{"url":"https://shop.example","event_types":[null]}`, `{"url":1}`,
		`{"url":"https://shop.example","secret":"x"}`, `[]`} {
		if a := s.do(t, "POST", endpointsPath, body); a.text("code") != "malformed_request" ||
			a.text("money_moved") != "no" {
			t.Errorf("%s: %d %s", body, a.status, a.raw)
		}
	}
	for _, url := range []string{
		"http://shop.example", "https://127.0.0.1", "https://[::1]/", "https://10.1.2.3", "https://[::ffff:8.8.8.8]", "https://169.254.169.254/",
		"https://100.64.0.1", "https://[fe80::1%25eth0]/", "https://0.0.0.0",
	} {
		if a := public.do(t, "POST", endpointsPath,
			`{"url":"`+url+`"}`); strings.Join(a.errorsOf(), ",") != "/url invalid" {
			t.Errorf("%s: %d %s", url, a.status, a.raw)
		}
	}
	if a := public.do(t, "POST", endpointsPath,
		`{"url":"https://shop.example:8443/hooks?a=b"}`); a.status != http.StatusCreated {
		t.Errorf("%d %s", a.status, a.raw)
	}
	path := endpointsPath + "/" + s.do(t, "POST", endpointsPath, hookURL).text("endpoint_id")
	for body, code := range map[string]string{
		`{"overlap_seconds":-1}`: "invalid_request", `{"overlap_seconds":604801}`: "invalid_request", `{"overlap_seconds":1.5}`: "malformed_request",
		`{"overlap_seconds":99999999999999999999}`: "invalid_request",
	} {
		if a := s.do(t, "POST", path+"/rotate", body); a.text("code") != code {
			t.Errorf("%s: %d %s", body, a.status, a.raw)
		}
	}
}

func TestWebhookEndpoints_AreTwentyAtMostAndPaged(t *testing.T) {
	t.Parallel()
	s := start(t)
	done := make(chan int, 30)
	for range 30 { // at once
		go func() {
			status := 0
			defer func() { done <- status }()
			status = s.do(t, "POST", endpointsPath, hookURL).status
		}()
	}
	counts := map[int]int{}
	for range 30 {
		counts[<-done]++
	}
	if d := cmp.Diff(map[int]int{201: webhooks.MaxEndpoints, 422: 30 - webhooks.MaxEndpoints}, counts); d != "" {
		t.Fatal(d)
	}
	if a := s.do(t, "POST", endpointsPath, hookURL); a.text("code") != "too_many_webhook_endpoints" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	seen := map[string]bool{}
	cursor := ""
	for range 3 {
		a := s.do(t, "GET", endpointsPath+"?limit=7"+cursor, "")
		for _, e := range a.body["data"].([]any) {
			seen[e.(map[string]any)["endpoint_id"].(string)] = true
		}
		cursor = "&cursor=" + a.text("next_cursor")
	}
	if len(seen) != webhooks.MaxEndpoints || cursor != "&cursor=" {
		t.Errorf("%d endpoints, then %s", len(seen), cursor)
	}
}

// A refund without a provider is an event for whoever has an endpoint.
func TestEvents_TellRefundsToWhoeverHasAnEndpoint(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A")
	refund := func(id string) {
		t.Helper()
		if a := s.do(t, "POST", "/v1/refunds",
			`{"operation_id":"`+id+`","order_id":"A","amount_cents":1,"metadata":{"a":"b"}}`); a.status != 201 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
	}
	refund("before")
	path := endpointsPath + "/" + s.do(t, "POST", endpointsPath, hookURL).text("endpoint_id")
	refund("k1")
	s.do(t, "POST", "/v1/refunds", `{"operation_id":"k1","order_id":"A","amount_cents":1}`) // a replay is no event
	s.do(t, "POST", path+"/disable", "")
	refund("k2")
	list := s.do(t, "GET", "/v1/events?limit=1", "")
	rest := s.do(t, "GET", "/v1/events?cursor="+list.text("next_cursor"), "")
	if ids := append(eventIDs(list), eventIDs(rest)...); !cmp.Equal(ids, []string{"k1", "k2"}) ||
		rest.body["next_cursor"] != nil {
		t.Errorf("%s\n%s", list.raw, rest.raw)
	}
	s.do(t, "DELETE", path, "")
	refund("after")
	if a := s.do(t, "GET", "/v1/events?cursor="+rest.text("resume_cursor"), ""); len(eventIDs(a)) != 0 ||
		a.text("resume_cursor") != rest.text("resume_cursor") {
		t.Error(a.raw)
	}
	if a := s.do(t, "GET", "/v1/events?type=refund.failed", ""); len(eventIDs(a)) != 0 {
		t.Error(a.raw)
	}
	event := list.body["data"].([]any)[0].(map[string]any)
	one := s.do(t, "GET", "/v1/events/"+event["event_id"].(string), "")
	stored := s.do(t, "GET", "/v1/refunds/k1", "")
	if d := cmp.Diff(stored.body, event["data"]); d != "" || !cmp.Equal(one.body, event) {
		t.Errorf("%s\n%s", d, one.raw)
	}
}

func eventIDs(a answered) []string {
	var ids []string
	for _, e := range a.body["data"].([]any) {
		ids = append(ids, e.(map[string]any)["data"].(map[string]any)["operation_id"].(string))
	}
	return ids
}

func TestEvents_AreSentAgainByRequest(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A")
	first := s.do(t, "POST", endpointsPath, hookURL).text("endpoint_id")
	s.do(t, "POST", endpointsPath, `{"url":"http://127.0.0.1:1/","event_types":["refund.failed"]}`)
	s.do(t, "POST", "/v1/refunds", `{"operation_id":"k1","order_id":"A","amount_cents":1}`)
	event := s.do(t, "GET", "/v1/events", "").body["data"].([]any)[0].(map[string]any)["event_id"].(string)
	for body, want := range map[string]float64{``: 1, `{}`: 1, `{"endpoint_id":"` + first + `"}`: 1} {
		a := s.do(t, "POST", "/v1/events/"+event+"/redeliver", body)
		if a.status != http.StatusAccepted || a.body["count"] != want ||
			a.body["data"].([]any)[0].(map[string]any)["state"] != "queued" {
			t.Errorf("%s: %d %s", body, a.status, a.raw)
		}
	}
	for path, code := range map[string]string{
		"/v1/events/" + strings.Repeat("0", 36) + "/redeliver":        "invalid_request",
		"/v1/events/0198c0de-7c1f-7b5e-9c7e-3a4f7d1f0a33/redeliver":   "not_found",
		"/v1/events/{0198c0de-7c1f-7b5e-9c7e-3a4f7d1f0a33}/redeliver": "invalid_request",
	} {
		if a := s.do(t, "POST", path, ""); a.text("code") != code {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	if a := s.do(t, "POST", "/v1/events/"+event+"/redeliver",
		`{"endpoint_id":"0198c0de-7c1f-7b5e-9c7e-3a4f7d1f0a33"}`); a.text("code") != "not_found" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := s.do(t, "GET", endpointsPath+"/"+first+"/deliveries?state=queued", ""); len(a.body["data"].([]any)) != 1 {
		t.Error(a.raw)
	}
	for _, q := range []string{"state=open", "cursor=x", "limit=0"} {
		if a := s.do(t, "GET", endpointsPath+"/"+first+"/deliveries?"+q, ""); a.text("code") != "invalid_request" {
			t.Errorf("%s: %d %s", q, a.status, a.raw)
		}
	}
}

func TestWebhooks_OfAnotherTenantAreUnknown(t *testing.T) {
	t.Parallel()
	s := start(t)
	if err := s.operator.CreateTenant(t.Context(), "other", false); err != nil {
		t.Fatal(err)
	}
	other := as(s.key(t, "other", access.AllScopes()...))
	s.registered(t, "A")
	id := s.do(t, "POST", endpointsPath, hookURL).text("endpoint_id")
	s.do(t, "POST", "/v1/refunds", `{"operation_id":"k1","order_id":"A","amount_cents":1}`)
	events := s.do(t, "GET", "/v1/events", "")
	event := events.body["data"].([]any)[0].(map[string]any)["event_id"].(string)
	own := s.do(t, "POST", endpointsPath, hookURL, other).text("endpoint_id")
	for _, r := range [][3]string{
		{"GET", endpointsPath + "/" + id}, {"DELETE", endpointsPath + "/" + id}, {"POST", endpointsPath + "/" + id +
			"/disable"},
		{"POST", endpointsPath + "/" + id + "/enable"}, {"POST", endpointsPath + "/" + id + "/rotate"}, {"GET",
			endpointsPath + "/" + id + "/deliveries"},
		{"GET", "/v1/events/" + event}, {"POST", "/v1/events/" + event + "/redeliver"},
		{"POST", "/v1/events/" + event + "/redeliver", `{"endpoint_id":"` + own + `"}`},
	} {
		if a := s.do(t, r[0], r[1], r[2], other); a.text("code") != "not_found" {
			t.Errorf("%v: %d %s", r, a.status, a.raw)
		}
	}
	if a := s.do(t, "GET", "/v1/events?cursor="+events.text("resume_cursor"),
		"", other); a.text("code") != "invalid_request" {
		t.Errorf("another tenant's cursor: %d %s", a.status, a.raw)
	}
	if a := s.do(t, "POST", "/v1/events/"+event+"/redeliver",
		`{"endpoint_id":"`+own+`"}`); a.text("code") != "not_found" {
		t.Errorf("another tenant's endpoint: %d %s", a.status, a.raw)
	}
	if a := s.do(t, "GET", "/v1/events", "", other); len(eventIDs(a)) != 0 || strings.Contains(a.raw, "k1") {
		t.Error(a.raw)
	}
}

func TestWebhookBody_LeavesOutWhatIsTooLong(t *testing.T) {
	t.Parallel()
	e := webhooks.Event{ID: "e", Type: webhooks.RefundFailed,
		Operation: operations.Operation{State: operations.StateFailed, Metadata: map[string]string{}}}
	for i := range maxMetadataPairs {
		e.Operation.Metadata[fmt.Sprint(i)] = strings.Repeat("\u202e", maxMetadataValue) // each is told as \u202e
	}
	raw, err := WebhookBody(e)
	if err != nil || len(raw) > maxBody || !strings.Contains(string(raw), `"truncated":true`) ||
		!strings.Contains(string(raw), `"metadata":{}`) {
		t.Errorf("%d bytes, %v: %.300s", len(raw), err, raw)
	}
	e.Operation.Metadata = map[string]string{"a": "b"}
	if raw, err := WebhookBody(e); err != nil || !strings.Contains(string(raw), `"truncated":false`) ||
		!strings.Contains(string(raw), `"a":"b"`) {
		t.Errorf("%v: %s", err, raw)
	}
}
