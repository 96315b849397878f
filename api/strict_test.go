package api

import (
	"net/http"
	"strings"
	"testing"

	"refundd/operations"
)

// TestA76_Times_AreRFC3339Exactly has what Go's parser takes and RFC 3339 does not, and what both take.
func TestA76_Times_AreRFC3339Exactly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-01-31T09:26:53Z":                "2026-01-31T09:26:53.000000Z",
		"2026-01-31T09:26:53.5+01:00":         "2026-01-31T08:26:53.500000Z",
		"2026-01-31T09:26:53.1234567891Z":     "2026-01-31T09:26:53.123456Z",
		"2026-01-31T00:00:00-00:00":           "2026-01-31T00:00:00.000000Z",
		"2024-02-29T23:59:59+23:59":           "2024-02-29T00:00:59.000000Z",
		"0001-01-01T00:00:00Z":                "0001-01-01T00:00:00.000000Z",
		"9999-12-31T23:59:59.999999Z":         "9999-12-31T23:59:59.999999Z",
		"2026-01-31T9:26:53Z":                 faultInvalid,
		"2026-01-31T09:26:53,5Z":              faultInvalid,
		"2026-01-31T09:26:53+24:00":           faultInvalid,
		"2026-01-31T09:26:53+99:00":           faultInvalid,
		"2026-01-31T09:26:53+01:60":           faultInvalid,
		"2026-01-31T09:26:53+0100":            faultInvalid,
		"2026-01-31T09:26:53+01":              faultInvalid,
		"2026-01-31T09:26:53.Z":               faultInvalid,
		"2026-01-31T09:26:53":                 faultInvalid,
		"2026-01-31t09:26:53Z":                faultInvalid,
		"2026-01-31T09:26:53z":                faultInvalid,
		"2026-01-31 09:26:53Z":                faultInvalid,
		"2026-01-31T24:00:00Z":                faultInvalid,
		"2016-12-31T23:59:60Z":                faultInvalid, // a leap second that there was
		"2026-02-29T00:00:00Z":                faultInvalid,
		"2026-13-01T00:00:00Z":                faultInvalid,
		"2026-00-01T00:00:00Z":                faultInvalid,
		"0000-01-01T00:00:00Z":                faultInvalid,
		"+2026-01-31T09:26:53Z":               faultInvalid,
		"12026-01-31T09:26:53Z":               faultInvalid,
		"2026-01-31T09:26:53Z\n":              faultInvalid,
		" 2026-01-31T09:26:53Z":               faultInvalid,
		"2026-01-31T09:26:53\u2212" + "01:00": faultInvalid, // a minus that is none of ASCII's
		"\u0662026-01-31T09:26:53Z":           faultInvalid,
		"infinity":                            faultInvalid,
		"":                                    faultInvalid,
		"0001-01-01T00:00:00+00:01":           faultOutOfRange,
		"9999-12-31T23:59:59-00:01":           faultOutOfRange,
	} {
		at, got := parseInstant(text)
		if got == "" {
			b, err := timestamp(at).AppendText(nil)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// TestA76_Times_AreRefusedWhereverTheyStand sends one time that Go takes to each place that takes a time.
func TestA76_Times_AreRefusedWhereverTheyStand(t *testing.T) {
	t.Parallel()
	s := start(t)
	const comma = "2026-01-31T09:26:53,5Z"
	for path, pointer := range map[string]string{
		"/v1/refunds?created_after=" + comma:           "query:created_after invalid",
		"/v1/refunds?created_before=" + comma:          "query:created_before invalid",
		"/v1/refunds/k/events?created_after=" + comma:  "query:created_after invalid",
		"/v1/refunds/k/events?created_before=" + comma: "query:created_before invalid",
	} {
		if a := s.do(t, "GET", path, ""); a.status != 422 || strings.Join(a.errorsOf(), ", ") != pointer {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	a := s.do(t, "PUT", "/v1/authorizations/k",
		`{"case_id":"c","order_id":"o","amount_cents":1,"approved_by":"a","expires_at":"`+comma+`"}`)
	if a.status != 422 || strings.Join(a.errorsOf(), ", ") != "/expires_at invalid" {
		t.Errorf("expires_at: %d %s", a.status, a.raw)
	}
}

// TestMalformed_PointsToTheFirstFault has one body for each thing that can be wrong with one.
func TestMalformed_PointsToTheFirstFault(t *testing.T) {
	t.Parallel()
	s := start(t)
	long := strings.Repeat("n", 600)
	for body, want := range map[string]string{
		`{"order_id":"A","amount":1}`:         "/amount invalid",
		`{"Order_id":"A"}`:                    "/Order_id invalid",
		`{"amount_cents":1,"amount_cents":2}`: "/amount_cents invalid",
		`{"amount_cents":"4999"}`:             "/amount_cents invalid",
		`{"amount_cents":10.5}`:               "/amount_cents invalid",
		`{"amount_cents":1e2}`:                "/amount_cents invalid",
		`{"amount_cents":{}}`:                 "/amount_cents invalid",
		`{"order_id":1001}`:                   "/order_id invalid",
		`{"metadata":{"a":1}}`:                "/metadata/a invalid",
		`{"metadata":{"a":null}}`:             "/metadata/a invalid",
		`{"metadata":{"a/b~":null}}`:          "/metadata/a~1b~0 invalid",
		`{"metadata":{"a":"1","a":"2"}}`:      "/metadata/a invalid",
		`{"reason":"a\u0000b"}`:               "/reason invalid",
		`{"metadata":{"k":"a\u0000b"}}`:       "/metadata/k invalid",
		`{"order_id":"A","amount_cents":01}`:  " invalid",
		`{"order_id":"A"`:                     " invalid",
		`[]`:                                  " invalid",
		`null`:                                " invalid",
		``:                                    " invalid",
		`{} {}`:                               " invalid",
		`{"` + long + `":1}`:                  " invalid", // a name that is too long to be shown
		`{"\u202e":1}`:                        " invalid", // and one that would turn the line around
		`{"metadata":{"\u009b2J":null}}`:      "/metadata invalid",
	} {
		a := s.do(t, "POST", "/v1/refunds", body, header("Idempotency-Key", "k"),
			header("Content-Type", "application/json"))
		if got := strings.Join(a.errorsOf(), ", "); a.status != 400 || got != want {
			t.Errorf("%.60s: %d %s, want %s", body, a.status, a.raw, want)
		}
	}
	if a := s.do(t, "GET", "/v1/refunds?limit=5&state=%zz", ""); a.status != 400 ||
		strings.Join(a.errorsOf(), ", ") != "query:state invalid" {
		t.Errorf("a bad escape: %d %s", a.status, a.raw)
	}
}

func TestIdempotencyKey_IsOneHeaderWithOneKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "A")
	for name, keys := range map[string][]string{
		"two headers": {"a", "b"}, "two headers alike": {"a", "a"}, "joined": {"a,b"}, "joined with a space": {"a, b"},
		"joined, quoted": {`"a", "b"`}, "with parameters": {`"a";x=1`}, "half quoted": {`"a`}, "escaped": {`"a\"b"`}, "dots": {".."}, "a dot": {`"."`},
	} {
		a := s.do(t, "POST", "/v1/refunds", `{"order_id":"A","amount_cents":1}`, header("Idempotency-Key", keys...))
		if got := strings.Join(a.errorsOf(), ", "); a.status != 422 || got != "header:Idempotency-Key invalid" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	if a := s.do(t, "GET", "/v1/refunds", ""); a.raw != `{"data":[],"next_cursor":null}` {
		t.Errorf("refunds: %s", a.raw)
	}
}

func TestA76_Probes_AnswerHEAD(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml", "/"} {
		got, head := s.do(t, "GET", path, ""), s.do(t, "HEAD", path, "")
		if head.status != 200 || head.raw != "" {
			t.Errorf("HEAD %s: %d %q", path, head.status, head.raw)
		}
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Link"} {
			if g, h := got.header.Get(name), head.header.Get(name); g != h {
				t.Errorf("HEAD %s: %s %q, of GET %q", path, name, h, g)
			}
		}
	}
	s.db.Pool.Close()
	if head := s.do(t, "HEAD", "/readyz", ""); head.status != http.StatusServiceUnavailable {
		t.Errorf("HEAD /readyz without a database: %d", head.status)
	}
}

func TestRoot_PointsToTheContract(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.do(t, "GET", "/", "")
	if a.status != 200 || a.raw != `{"service":"refundd","contract":"/openapi.yaml"}` ||
		a.header.Get("Link") != `</openapi.yaml>; rel="service-desc"; type="application/yaml"` {
		t.Errorf("%d %v %s", a.status, a.header, a.raw)
	}
	if there := s.do(t, "GET", a.text("contract"), ""); there.status != 200 {
		t.Errorf("there is no contract: %d", there.status)
	}
}

// TestCreated_SaysWhereItIs follows each Location.
func TestCreated_SaysWhereItIs(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct{ method, path, body, at string }{
		{"PUT", "/v1/orders/a%2Fb%25c", `{"currency":"EUR","captured_cents":100}`, "/v1/orders/a%2Fb%25c"},
		{"PUT", "/v1/authorizations/op:1.a", `{"case_id":"c","order_id":"a/b%c","amount_cents":7,"approved_by":"ada"}`,
			"/v1/authorizations/op:1.a"},
		{"POST", "/v1/refunds", `{"operation_id":"op:1.a","order_id":"a/b%c","amount_cents":7}`, "/v1/refunds/op:1.a"},
	} {
		a := s.do(t, c.method, c.path, c.body)
		if a.status != 201 || a.header.Get("Location") != c.at {
			t.Fatalf("%s %s: %d, Location %q %s", c.method, c.path, a.status, a.header.Get("Location"), a.raw)
		}
		if there := s.do(t, "GET", a.header.Get("Location"), ""); there.status != 200 {
			t.Errorf("GET %s: %d %s", c.at, there.status, there.raw)
		}
		if again := s.do(t, c.method, c.path, c.body); again.status != 200 || again.header.Get("Location") != "" {
			t.Errorf("again: %d, Location %q", again.status, again.header.Get("Location"))
		}
	}
}

// TestRefund_SaysWhatToDoNext compares GET with POST where both have an answer.
func TestRefund_SaysWhatToDoNext(t *testing.T) {
	t.Parallel()
	for state, want := range map[operations.State]string{
		operations.StateReserved: nextWait, operations.StatePending: nextWait, operations.StateSucceeded: nextNone,
		operations.StateFailed: nextAuthorize, operations.StateNeedsAttention: nextEscalate,
	} {
		shown := refundOf(operations.Operation{State: state})
		if shown.NextAction != want || (shown.RetryAfterSeconds != nil) != (want == nextWait) {
			t.Errorf("%s: %s after %v", state, shown.NextAction, shown.RetryAfterSeconds)
		}
	}
	p := startProvided(t, operations.Config{})
	p.paid(t, "A")
	p.fault(t, `{"mode":"pending","count":1,"delay_ms":60000}`)
	posted := p.refund(t, "A")
	wantAnswer(t, posted, 202, "next_action=wait_then_get", "money_moved=unknown")
	read := p.do(t, "GET", "/v1/refunds/A", "")
	for _, name := range []string{"next_action", "retry_after_seconds"} {
		if posted.body[name] != read.body[name] {
			t.Errorf("%s: POST says %v, GET %v", name, posted.body[name], read.body[name])
		}
	}
}

// TestCurrencies_WithdrawnLately_AreKnown has ISO 4217's own dates: withdrawn since December 2016, and before.
func TestCurrencies_WithdrawnLately_AreKnown(t *testing.T) {
	t.Parallel()
	for _, code := range strings.Fields("HRK BGN ANG SLL VED VEF MRO STD ZWL CUC BYR EUR USD JPY KWD XCG SLE VES MRU STN BYN ZWG") {
		if !knownCurrency(code) {
			t.Errorf("%s is refused", code)
		}
	}
	for _, code := range strings.Fields("LTL LVL EEK ZMK DEM XXQ eur") {
		if knownCurrency(code) {
			t.Errorf("%s is taken", code)
		}
	}
}
