package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refundd/access"
)

func TestSubmission_IsCheckedInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *Config) { c.RateLimit = 3 })
	reader := s.key(t, tenant, access.Read)
	spent := s.key(t, tenant, access.AllScopes()...)
	for range 3 {
		s.do(t, "GET", "/v1/refunds", "", as(spent))
	}
	large := strings.Repeat(" ", maxBody) + `{"amount_cents":-1,"x":`
	malformed := `{"amount_cents":-1,"x":`
	plain := header("Content-Type", "text/plain")
	for _, c := range []struct {
		name, body string
		options    []option
		code       string
	}{
		{"key", large, []option{as("rfd_x"), plain}, "unauthenticated"},
		{"scope", large, []option{as(reader), plain}, "forbidden"},
		{"media type", large, []option{as(spent), plain}, "unsupported_media_type"},
		{"size", large, []option{as(spent)}, "request_too_large"},
		{"syntax", malformed, []option{as(spent), header("Idempotency-Key", "")}, "malformed_request"},
		{"no operation", `{"amount_cents":-1}`, []option{as(spent)}, "idempotency_key_required"},
		{"values", `{"amount_cents":-1}`, []option{as(spent), header("Idempotency-Key", "")}, "invalid_request"},
		{"rate", `{"operation_id":"k","order_id":"none","amount_cents":1}`, []option{as(spent)}, "rate_limited"},
		{"order", `{"operation_id":"k","order_id":"none","amount_cents":1}`, nil, "order_not_found"},
	} {
		a := s.do(t, "POST", "/v1/refunds", c.body, c.options...)
		if a.text("code") != c.code {
			t.Errorf("%s: %d %s, want %s", c.name, a.status, a.raw, c.code)
		}
		if want := map[bool]string{true: "no",
			false: "unknown"}[c.code == "order_not_found"]; a.text("money_moved") != want {
			t.Errorf("%s: money_moved %s, want %s", c.name, a.text("money_moved"), want)
		}
		if standing := a.header.Get("RateLimit"); (standing == "") != (c.code == "unauthenticated") {
			t.Errorf("%s: RateLimit %q", c.name, standing)
		}
	}
}

func TestSubmission_NamesEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	long := strings.Repeat("é", 1001)
	pairs := make([]string, 0, 21)
	for i := range 21 {
		pairs = append(pairs, `"`+strings.Repeat("k", i+1)+`":"v"`)
	}
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{"operation_id":"k"}`, []string{"/order_id required", "/amount_cents required"}},
		{`{"operation_id":"a b","order_id":null,"amount_cents":null}`,
			[]string{"/operation_id invalid", "/order_id required", "/amount_cents required"}},
		{`{"operation_id":"` + strings.Repeat("k", 256) + `","order_id":"` + strings.Repeat("o", 256) +
			`","amount_cents":9007199254740992}`,
			[]string{"/operation_id too_long", "/order_id too_long", "/amount_cents out_of_range"}},
		{`{"operation_id":"..","order_id":"a b","amount_cents":0,"currency":"eur","reason":"` + long + `"}`,
			[]string{"/operation_id invalid", "/order_id invalid", "/amount_cents out_of_range", "/currency invalid",
				"/reason too_long"}},
		{`{"operation_id":"","order_id":"","amount_cents":-0,"currency":"","reason":""}`,
			[]string{"/operation_id invalid", "/order_id invalid", "/amount_cents out_of_range", "/currency invalid"}},
		{`{"operation_id":"k","order_id":"o","amount_cents":1,"metadata":{"":"v","a/b~c":"` + long + `","` +
			strings.Repeat("k", 101) + `":"v"}}`,
			[]string{"/metadata invalid", "/metadata/a~1b~0c too_long", "/metadata too_long"}},
		{`{"operation_id":"k","order_id":"o","amount_cents":1,"metadata":{` + strings.Join(pairs, ",") + `}}`,
			[]string{"/metadata too_long"}},
	} {
		a := s.do(t, "POST", "/v1/refunds", c.body)
		if d := cmp.Diff(c.want, a.errorsOf()); a.text("code") != "invalid_request" || d != "" {
			t.Errorf("%.80s: %d %s\n%s", c.body, a.status, a.raw, d)
		}
	}
	if a := s.do(t, "POST", "/v1/refunds",
		`{"operation_id":"k","order_id":"o","amount_cents":1,"metadata":{"a":null}}`); a.status != 400 {
		t.Errorf("metadata that is null: %d %s", a.status, a.raw)
	}
	if a := s.do(t, "PUT", "/v1/authorizations/k",
		`{"expires_at":"2026-01-31","case_id":"","currency":"XXX"}`); !cmp.Equal(a.errorsOf(),
		[]string{"/case_id invalid", "/order_id required", "/amount_cents required", "/currency invalid",
			"/approved_by required", "/expires_at invalid"}) {
		t.Errorf("approval: %s", a.raw)
	}
	if a := s.do(t, "PUT", "/v1/authorizations/k",
		`{"case_id":"c","order_id":"o","amount_cents":1,"approved_by":"a","expires_at":"9999-12-31T23:59:59-01:00"}`); !cmp.Equal(a.errorsOf(),
		[]string{"/expires_at out_of_range"}) {
		t.Errorf("approval for ever: %s", a.raw)
	}
	if a := s.do(t, "PUT", "/v1/orders/o",
		`{"captured_cents":0,"provider":"paypal","provider_payment_ref":"","customer":{"id":"","email":"`+long+`"}}`); !cmp.Equal(a.errorsOf(),
		[]string{"/captured_cents out_of_range", "/provider_payment_ref invalid", "/provider invalid",
			"/customer/id invalid", "/customer/email too_long"}) {
		t.Errorf("order: %s", a.raw)
	}
	if a := s.do(t, "PUT", "/v1/orders/o", `{"provider":"ledger","provider_payment_ref":"x"}`); !cmp.Equal(a.errorsOf(),
		[]string{"/provider_payment_ref invalid"}) {
		t.Errorf("order: %s", a.raw)
	}
}

func TestIdempotencyKey_NamesTheOperationBareOrQuoted(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.registered(t, "o")
	const without = `{"order_id":"o","amount_cents":1}`
	const with = `{"operation_id":"k","order_id":"o","amount_cents":1}`
	longest := strings.Repeat("x", 255)
	for _, c := range []struct {
		name, body string
		keys       []string
		status     int
		want       string // the code, or the one fault
	}{
		{"bare", without, []string{"k"}, 201, ""},
		{"quoted", without, []string{`"k"`}, 200, ""},
		{"quoted, body agrees", with, []string{`"k"`}, 200, ""},
		{"body alone", with, nil, 200, ""},
		{"longest", without, []string{longest}, 201, ""},
		{"longest, quoted", without, []string{`"` + longest + `"`}, 200, ""},
		{"neither", without, nil, 400, "idempotency_key_required"},
		{"body null", `{"operation_id":null,"order_id":"o","amount_cents":1}`, nil, 400, "idempotency_key_required"},
		{"disagree", with, []string{"K"}, 422, "header:Idempotency-Key mismatch"},
		{"two lines", with, []string{"k", "k"}, 422, "header:Idempotency-Key invalid"},
		{"two in a line", without, []string{"k, k"}, 422, "header:Idempotency-Key invalid"},
		{"empty", without, []string{""}, 422, "header:Idempotency-Key invalid"},
		{"empty beside a body", with, []string{""}, 422, "header:Idempotency-Key invalid"},
		{"empty, quoted", without, []string{`""`}, 422, "header:Idempotency-Key invalid"},
		{"a quote", without, []string{`"`}, 422, "header:Idempotency-Key invalid"},
		{"half quoted", without, []string{`"k`}, 422, "header:Idempotency-Key invalid"},
		{"with parameters", without, []string{`"k";a=1`}, 422, "header:Idempotency-Key invalid"},
		{"an escape", without, []string{`"\k"`}, 422, "header:Idempotency-Key invalid"},
		{"spaces", without, []string{"a b"}, 422, "header:Idempotency-Key invalid"},
		{"dots", without, []string{".."}, 422, "header:Idempotency-Key invalid"},
		{"not ASCII", without, []string{"clé"}, 422, "header:Idempotency-Key invalid"},
		{"256", without, []string{longest + "x"}, 422, "header:Idempotency-Key too_long"},
		{"256, quoted", without, []string{`"` + longest + `x"`}, 422, "header:Idempotency-Key too_long"},
		{"10000", without, []string{strings.Repeat("x", 10000)}, 422, "header:Idempotency-Key too_long"},
	} {
		var options []option
		if c.keys != nil {
			options = append(options, header("Idempotency-Key", c.keys...))
		}
		a := s.do(t, "POST", "/v1/refunds", c.body, options...)
		got := strings.Join(a.errorsOf(), ", ")
		if got == "" || a.status == 400 {
			got = a.text("code")
		}
		if a.status != c.status || got != c.want {
			t.Errorf("%s: %d %s, want %d %s", c.name, a.status, a.raw, c.status, c.want)
		}
	}
}

func TestPaths_AreUnescapedExactlyOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, id := range []string{
		"A-1", "#1001", "a/b", "a//b", "100%", "%2F", "%252F", "..", ".", "a?b", `q"<&>\`, "a;b", "a+b", "~!$&'()*,=:@",
	} {
		path := "/v1/orders/" + url.PathEscape(id)
		if strings.Trim(id, ".") == "" {
			path = "/v1/orders/" + strings.ReplaceAll(id, ".", "%2E")
		}
		if a := s.do(t, "PUT", path, `{"currency":"JPY","captured_cents":5}`); a.status != 201 ||
			a.text("order_id") != id {
			t.Errorf("PUT %s: %d %s", path, a.status, a.raw)
		}
		if a := s.do(t, "GET", path, ""); a.status != 200 || a.text("order_id") != id {
			t.Errorf("GET %s: %d %s", path, a.status, a.raw)
		}
	}
}

func TestPaths_ThatAreNoneAreProblems(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		method, path string
		status       int
		moved        string
		want         string // Allow, or the fault
	}{
		{"GET", "/v2/refunds", 404, "no", ""},
		{"GET", "/v1//orders/A", 404, "no", ""},
		{"GET", "//v1/orders/A", 404, "no", ""},
		{"GET", "/v1/orders/", 404, "no", ""},
		{"GET", "/v1/orders/a/b", 404, "no", ""},
		{"GET", "/v1/refunds/", 404, "unknown", ""},
		{"POST", "/v1/refunds/k/reconcile", 404, "unknown", ""},
		{"POST", "/v1/refunds/a%20b/reconcile", 422, "unknown", "path:operation_id invalid"},
		{"GET", "/v1/refunds/k/reconcile", 405, "unknown", "POST"},
		{"GET", "/v1/refunds/k/resolve", 405, "unknown", "POST"},
		{"POST", "/v1/refunds/k/settle", 404, "unknown", ""},
		{"GET", "/v1/webhooks/stripe", 405, "no", "POST"},
		{"POST", "/v1/webhooks/simulator", 404, "no", ""},
		{"PATCH", "/v1/refunds", 405, "unknown", "GET, POST"},
		{"DELETE", "/v1/refunds/k", 405, "unknown", "GET"},
		{"HEAD", "/v1/refunds/k", 405, "unknown", "GET"},
		{"OPTIONS", "/v1/authorizations/k", 405, "unknown", "GET, PUT"},
		{"BREW", "/v1/authorizations/k/revoke", 405, "unknown", "POST"},
		{"POST", "/v1/orders/A", 405, "no", "GET, PUT"},
		{"POST", "/healthz", 405, "no", "GET, HEAD"},
		{"POST", "/", 405, "no", "GET, HEAD"},
		{"GET", "/v1/refunds/a%20b", 422, "unknown", "path:operation_id invalid"},
		{"GET", "/v1/refunds/a%2Fb", 422, "unknown", "path:operation_id invalid"},
		{"GET", "/v1/refunds/%2E%2E", 422, "unknown", "path:operation_id invalid"},
		{"GET", "/v1/refunds/%2541", 422, "unknown", "path:operation_id invalid"},
		{"GET", "/v1/refunds/" + strings.Repeat("k", 256), 422, "unknown", "path:operation_id too_long"},
		{"GET", "/v1/orders/a%00", 422, "no", "path:order_id invalid"},
		{"GET", "/v1/orders/%C3%A9", 422, "no", "path:order_id invalid"},
		{"GET", "/v1/refunds/none", 404, "unknown", ""},
	} {
		a := s.do(t, c.method, c.path, "")
		got := strings.Join(a.errorsOf(), ", ") + a.header.Get("Allow")
		if a.status != c.status || got != c.want || c.method != http.MethodHead && a.text("money_moved") != c.moved {
			t.Errorf("%s %s: %d %s %s, want %d %s %s", c.method, c.path, a.status, got, a.text("money_moved"), c.status,
				c.want, c.moved)
		}
	}
}

func TestQueries_AreStrict(t *testing.T) {
	t.Parallel()
	s := start(t)
	for query, want := range map[string]string{
		"/v1/refunds?limit=0":                                    "query:limit out_of_range",
		"/v1/refunds?limit=101":                                  "query:limit out_of_range",
		"/v1/refunds?limit=-1":                                   "query:limit out_of_range",
		"/v1/refunds?limit=99999999999999999999":                 "query:limit out_of_range",
		"/v1/refunds?limit=ten":                                  "query:limit invalid",
		"/v1/refunds?limit=1.0":                                  "query:limit invalid",
		"/v1/refunds?limit=":                                     "query:limit invalid",
		"/v1/refunds?limit=00":                                   "query:limit invalid",
		"/v1/refunds?limit=05":                                   "query:limit invalid",
		"/v1/refunds?limit=%2B5":                                 "query:limit invalid",
		"/v1/refunds?limit=+5":                                   "query:limit invalid",
		"/v1/refunds?limit=1e1":                                  "query:limit invalid",
		"/v1/refunds?limit=0x5":                                  "query:limit invalid",
		"/v1/refunds?limit=%D9%A5":                               "query:limit invalid", // an Arabic 5
		"/v1/refunds?cursor=%ff%fe":                              "query:cursor invalid",
		"/v1/refunds?cursor=MSD_":                                "query:cursor invalid", // "1 " and no UTF-8
		"/v1/refunds?cursor=MSBL%0A":                             "query:cursor invalid",
		"/v1/refunds/k?limit=5":                                  "query:limit invalid",
		"/v1/orders/A?expand=refunds":                            "query:expand invalid",
		"/v1/refunds?%E2%80%AE=1":                                "query:? invalid", // a bidi override
		"/v1/refunds?limit=1&limit=1":                            "query:limit invalid",
		"/v1/refunds?Limit=1":                                    "query:Limit invalid",
		"/v1/refunds?%ff=1":                                      "query:? invalid",
		"/v1/refunds?cursor=nonsense":                            "query:cursor invalid",
		"/v1/refunds?cursor=":                                    "query:cursor invalid",
		"/v1/refunds?state=revoked":                              "query:state invalid",
		"/v1/refunds?order_id=a%20b":                             "query:order_id invalid",
		"/v1/refunds?created_after=yesterday":                    "query:created_after invalid",
		"/v1/refunds?created_before=2026-01-31":                  "query:created_before invalid",
		"/v1/refunds/k/events?order_id=1":                        "query:order_id invalid",
		"/v1/orders":                                             "query:customer_email required, query:customer_id required",
		"/v1/orders?customer_email=":                             "query:customer_email invalid",
		"/v1/orders?customer_email=a%00b":                        "query:customer_email invalid",
		"/v1/orders?customer_id=%ff":                             "query:customer_id invalid",
		"/v1/orders?customer_id=a&limit=1":                       "query:limit invalid",
		"/v1/authorizations":                                     "query:case_id required",
		"/v1/authorizations?case_id=a&case_id=b":                 "query:case_id invalid",
		"/v1/authorizations?case_id=" + strings.Repeat("c", 256): "query:case_id too_long",
	} {
		a := s.do(t, "GET", query, "")
		if got := strings.Join(a.errorsOf(), ", "); a.status != 422 || got != want {
			t.Errorf("%s: %d %s, want %s", query, a.status, a.raw, want)
		}
	}
	for _, query := range []string{"/v1/refunds?limit=%zz", "/v1/refunds?a;b"} {
		if a := s.do(t, "GET", query, ""); a.text("code") != "malformed_request" {
			t.Errorf("%s: %d %s", query, a.status, a.raw)
		}
	}
	for _, query := range []string{
		"/v1/refunds?limit=100&created_after=2026-01-31T00:00:00Z&created_before=2026-01-31T00:00:00.5%2B02:00&state=pending",
		"/v1/orders?customer_id=a&customer_email=b", "/v1/authorizations?case_id=%F0%9F%98%80",
	} {
		if a := s.do(t, "GET", query, ""); a.status != 200 {
			t.Errorf("%s: %d %s", query, a.status, a.raw)
		}
	}
}

func TestMediaTypes_AreJSONInUTF8Only(t *testing.T) {
	t.Parallel()
	for types, want := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, `application/json;charset="UTF-8"`: true,
		"application/json; charset=utf8": true, `APPLICATION/JSON;Charset="UTF8"`: true,
		"application/json; charset=utf-16": false, "application/json; charset=": false,
		"application/json, application/json": false,
		"Application/JSON":                   true, "application/json;": true,
		"": false, "text/json": false, "application/json; charset=latin1": false, "application/json; version=1": false,
		"application/problem+json": false, "application/x-www-form-urlencoded": false, "application/json, text/plain": false,
	} {
		if err := jsonOnly(http.Header{"Content-Type": {types}}); (err == nil) != want {
			t.Errorf("%q: %v", types, err)
		}
	}
	for name, h := range map[string]http.Header{
		"none": {}, "two": {"Content-Type": {"application/json", "application/json"}},
		"encoded": {"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
	} {
		if jsonOnly(h) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestRevocation_TakesABodyOrNone(t *testing.T) {
	t.Parallel()
	s := start(t)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, c := range []struct {
		name, body string
		options    []option
		code       string
	}{
		{"none", "", nil, "authorization_not_found"},
		{"none, labelled", "", []option{header("Content-Type", "text/plain")}, "authorization_not_found"},
		{"none, chunked", "", []option{chunked}, "authorization_not_found"},
		{"empty object", "{}", nil, "authorization_not_found"},
		{"chunked", `{"reason":"r"}`, []option{chunked}, "authorization_not_found"},
		{"unlabelled", "{}", []option{header("Content-Type")}, "unsupported_media_type"},
		{"white space", " ", nil, "malformed_request"},
		{"too large", strings.Repeat(" ", maxBody+1), nil, "request_too_large"},
		{"too large, chunked", strings.Repeat(" ", maxBody+1), []option{chunked}, "request_too_large"},
		{"too large, unlabelled", strings.Repeat(" ", maxBody+1), []option{header("Content-Type", "text/plain")},
			"unsupported_media_type"},
		{"null", "null", nil, "malformed_request"},
	} {
		if a := s.do(t, "POST", "/v1/authorizations/op-9/revoke", c.body, c.options...); a.text("code") != c.code {
			t.Errorf("%s: %d %s, want %s", c.name, a.status, a.raw, c.code)
		}
	}
}

func TestBodies_OfTheLargestSizeAreTaken(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := `{"currency":"EUR","captured_cents":1}`
	body += strings.Repeat(" ", maxBody-len(body))
	if a := s.do(t, "PUT", "/v1/orders/A", body); a.status != 201 {
		t.Errorf("64 KiB: %d %s", a.status, a.raw)
	}
	for _, length := range []int64{-1, maxBody + 1} {
		a := s.do(t, "PUT", "/v1/orders/A", body+" ", func(r *http.Request) { r.ContentLength = length })
		if a.text("code") != "request_too_large" || a.text("money_moved") != "no" {
			t.Errorf("64 KiB and one: %d %s", a.status, a.raw)
		}
	}
}

func TestBodies_ThatEndEarlyAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	const sent = `{"operation_id":"k","order_id":"A","amount_cents":1}`
	for _, framing := range []string{
		fmt.Sprintf("Content-Length: %d\r\n\r\n", len(sent)+1), fmt.Sprintf("Content-Length: %d\r\n\r\n", usualBody+1),
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(sent)+1),
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "POST /v1/refunds HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s%s",
			s.secret, framing, sent)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400") ||
			!strings.Contains(string(answer), "did not arrive completely") {
			t.Errorf("%q: %v %s", framing, err, answer)
		}
	}
}

func TestRouter_FindsFixedPathsAndParametersAlike(t *testing.T) {
	t.Parallel()
	rt := newRouter(noServer().routes())
	for sent, want := range map[string][2]string{
		"/v1/refunds":                {"/v1/refunds", ""},
		"/v1/refunds/":               {"unknown", ""},
		"/v1/refunds/k":              {"/v1/refunds/{operation_id}", "k"},
		"/v1/refunds/{operation_id}": {"/v1/refunds/{operation_id}", "{operation_id}"},
		"/v1%2Frefunds":              {"unknown", ""},
	} {
		m := rt.find(httptest.NewRequestWithContext(t.Context(), http.MethodGet, sent, nil))
		if id, _ := m.param("operation_id"); m.label() != want[0] || id != want[1] {
			t.Errorf("%s is found as %s of %q, want %v", sent, m.label(), id, want)
		}
	}
}
