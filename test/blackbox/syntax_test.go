package blackbox

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"refundd/test/harness"
)

// bodies are the routes that take a body, with one that is good, whose path or body names K.
func bodies(key string) []struct{ method, path, body string } {
	return []struct{ method, path, body string }{
		{http.MethodPost, "/v1/refunds", `{"operation_id":"` + key +
			`","order_id":"P","amount_cents":5,"reason":"r","metadata":{"a":"b"}}`},
		{http.MethodPut, "/v1/authorizations/" + key,
			`{"case_id":"c","order_id":"P","amount_cents":5,"approved_by":"ada","metadata":{"a":"b"}}`},
		{http.MethodPut, "/v1/orders/" + key,
			`{"currency":"EUR","captured_cents":5,"customer":{"id":"i","email":"e@example.com","name":"n"}}`},
		{http.MethodPost, "/v1/authorizations/" + key + "/revoke", `{"reason":"r","revoked_by":"ada"}`},
	}
}

// spoiled are ways to make a good object something that nobody meant.
var spoiled = map[string]func(body string) string{
	"duplicate member":       func(b string) string { return b[:len(b)-1] + "," + b[1:] },
	"duplicate by an escape": func(b string) string { return b[:len(b)-1] + "," + escapedFirst(b) + "}" },
	"upper case":             func(b string) string { return strings.ToUpper(b[:3]) + b[3:] },
	"title case, twice":      func(b string) string { return b[:len(b)-1] + "," + strings.ToUpper(b[1:3]) + b[3:] },
	"unknown member":         func(b string) string { return b[:len(b)-1] + `,"surprise":1}` },
	"unknown null":           func(b string) string { return b[:len(b)-1] + `,"surprise":null}` },
	"empty member name":      func(b string) string { return b[:len(b)-1] + `,"":1}` },
	"trailing object":        func(b string) string { return b + b },
	"trailing text":          func(b string) string { return b + " x" },
	"trailing comma":         func(b string) string { return b[:len(b)-1] + ",}" },
	"trailing NUL":           func(b string) string { return b + "\x00" },
	"trailing bracket":       func(b string) string { return b + "}" },
	"cut short":              func(b string) string { return b[:len(b)-1] },
	"comment":                func(b string) string { return "/* */" + b },
	"byte order mark":        func(b string) string { return "\ufeff" + b },
	"single quotes":          func(b string) string { return strings.ReplaceAll(b, `"`, `'`) },
	"in a list":              func(b string) string { return "[" + b + "]" },
	"in a string":            func(b string) string { return fmt.Sprintf("%q", b) },
	"null":                   func(string) string { return "null" },
	"a number":               func(string) string { return "7" },
	"only space":             func(string) string { return "  " },
	"invalid UTF-8":          func(b string) string { return b[:len(b)-2] + "\xff" + b[len(b)-2:] },
	"overlong UTF-8":         func(b string) string { return b[:len(b)-1] + ",\"\xc0\xae\":1}" },
	"lone surrogate":         func(b string) string { return b[:len(b)-1] + `,"\ud800":1}` },
	"control character":      func(b string) string { return "\x01" + b },
	"deeply nested": func(b string) string {
		return strings.Repeat(`{"a":`, 5000) + b +
			strings.Repeat("}", 5000)
	},
	"form": func(string) string { return "operation_id=K&order_id=P&amount_cents=5" },
}

// escapedFirst is an object's first member with the first letter of its name escaped.
func escapedFirst(body string) string {
	first, _, _ := strings.Cut(body[1:], ",")
	return `"` + fmt.Sprintf(`\u%04x`, first[1]) + first[2:]
}

func TestA13_BodiesThatNobodyMeant_AreMalformed(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	tenant.Approve("K", "P", 5)
	unchanged(t, tenant, func() {
		for name, spoil := range spoiled {
			for _, r := range bodies("K") {
				if a := raw(tenant.Client(), r.method, r.path, spoil(r.body)); a.Status != http.StatusBadRequest {
					t.Errorf("%s: %s %s: %d, want 400: %.200s", name, r.method, r.path, a.Status, spoil(r.body))
				}
			}
		}
	})
	for _, r := range bodies("K")[:1] {
		want(t, raw(tenant.Client(), r.method, r.path, r.body), "processed")
	}
}

// Nested objects are as strict as the outer one.
func TestA13_NestedObjects_AreStrict(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	unchanged(t, tenant, func() {
		for _, metadata := range []string{`{"a":"b","a":"c"}`, `{"a":"b","\u0061":"c"}`, `{"a":1}`, `{"a":null}`,
			`{"a":{}}`, `["a"]`, `"a"`, `7`} {
			want(t, raw(tenant.Client(), http.MethodPost, "/v1/refunds",
				`{"operation_id":"K","order_id":"P","amount_cents":5,"metadata":`+metadata+`}`), "malformed_request")
		}
		for _, customer := range []string{`{"id":"a","id":"b"}`, `{"ID":"a"}`, `{"phone":"1"}`, `{"id":7}`, `[]`,
			`"a"`} {
			want(t, raw(tenant.Client(), http.MethodPut, "/v1/orders/N",
				`{"currency":"EUR","captured_cents":5,"customer":`+customer+`}`), "malformed_request")
		}
	})
}

func TestA18_KeySyntax_NamesOneOperationOrNone(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 1000000)
	long := strings.Repeat("k", 255)
	for name, c := range map[string]struct {
		header []string // Idempotency-Key
		member string   // operation_id as JSON; "" absent
		key    string   // what it names; "" nothing
		says   string
	}{
		"bare":                    {[]string{"h1"}, "", "h1", ""},
		"quoted":                  {[]string{`"h2"`}, "", "h2", ""},
		"member":                  {nil, `"m1"`, "m1", ""},
		"both, bare":              {[]string{"b1"}, `"b1"`, "b1", ""},
		"both, quoted":            {[]string{`"b2"`}, `"b2"`, "b2", ""},
		"all characters":          {[]string{"aZ09._:-"}, "", "aZ09._:-", ""},
		"one dot more":            {nil, `"..."`, "...", ""},
		"255 characters":          {[]string{long}, "", long, ""},
		"255 quoted":              {[]string{`"` + long[:254] + `q"`}, "", long[:254] + "q", ""},
		"none":                    {nil, "", "", "idempotency_key_required"},
		"null":                    {nil, "null", "", "idempotency_key_required"},
		"disagree":                {[]string{"d1"}, `"d2"`, "", "invalid_request"},
		"disagree in case":        {[]string{"d3"}, `"D3"`, "", "invalid_request"},
		"empty header":            {[]string{""}, "", "", "4xx"},
		"empty quoted":            {[]string{`""`}, "", "", "4xx"},
		"empty member":            {nil, `""`, "", "4xx"},
		"space":                   {[]string{" "}, "", "", "4xx"},
		"spaces quoted":           {[]string{`" s "`}, "", "", "4xx"},
		"space in the middle":     {[]string{"s t"}, "", "", "4xx"},
		"space in the member":     {nil, `"s t"`, "", "4xx"},
		"256 characters":          {[]string{long + "k"}, "", "", "4xx"},
		"256 in the member":       {nil, `"` + long + `k"`, "", "4xx"},
		"10000 characters":        {[]string{strings.Repeat("k", 10000)}, "", "", "4xx"},
		"10000 in the member":     {nil, `"` + strings.Repeat("k", 10000) + `"`, "", "4xx"},
		"non-ASCII":               {[]string{"kéy"}, "", "", "4xx"},
		"non-ASCII member":        {nil, `"kéy"`, "", "4xx"},
		"full width":              {nil, `"Ｋ"`, "", "4xx"},
		"Latin-1 bytes":           {[]string{"k\xe9y"}, "", "", "4xx"},
		"half quoted":             {[]string{`"h3`}, "", "", "4xx"},
		"single quotes":           {[]string{`'h4'`}, "", "", "4xx"},
		"escape in quotes":        {[]string{`"h\5"`}, "", "", "4xx"},
		"parameters":              {[]string{`"h6";a=b`}, "", "", "4xx"},
		"list":                    {[]string{`"h7", "h8"`}, "", "", "4xx"},
		"two headers":             {[]string{"h9", "h10"}, "", "", "4xx"},
		"the same header twice":   {[]string{"h11", "h11"}, "", "", "4xx"},
		"slash":                   {[]string{"a/b"}, "", "", "4xx"},
		"percent":                 {[]string{"a%41"}, "", "", "4xx"},
		"dot":                     {nil, `"."`, "", "4xx"},
		"two dots":                {nil, `".."`, "", "4xx"},
		"number":                  {nil, `7`, "", "4xx"},
		"quotes in the member":    {nil, `"\"q1\""`, "", "4xx"},
		"line feed":               {nil, `"k\n"`, "", "4xx"},
		"bad header, good member": {[]string{"b d"}, `"g1"`, "", "4xx"},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := tenant.For(t)
			body := `{"order_id":"P","amount_cents":7}`
			if c.member != "" {
				body = `{"operation_id":` + c.member + `,"order_id":"P","amount_cents":7}`
			}
			send := func(i int) harness.Answer {
				return tenant.At(i).Do(harness.Request{Method: http.MethodPost, Path: "/v1/refunds", Body: []byte(body),
					Header: http.Header{"Idempotency-Key": c.header}, Valid: c.key != ""})
			}
			if c.key == "" {
				unchanged(t, tenant, func() { refusedKey(t, send(0), c.says) })
				return
			}
			want(t, send(0), "processed")
			want(t, send(1), "already_processed")
			want(t, tenant.Client().Refund(c.key, "P", 7), "already_processed")
			if got := harness.Read[harness.Refund](t,
				tenant.Client().Get(harness.RefundPath(c.key))); got.OperationID != c.key {
				t.Errorf("it names %q, want %q", got.OperationID, c.key)
			}
			if n := tenant.Movements(c.key); n != 1 {
				t.Errorf("moved money %d times", n)
			}
		})
	}
}

func refusedKey(t *testing.T, a harness.Answer, says string) {
	t.Helper()
	if says != "4xx" {
		want(t, a, says)
	} else if a.Status < 400 || a.Status >= 500 {
		t.Errorf("%d %s, want a 4xx", a.Status, a.Body)
	}
}

// Keys that look alike are different keys, and a key in the path is taken as it was meant.
func TestA18_KeysThatLookAlike_AreDifferentKeys(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 1000000)
	keys := []string{"k", "K", "k.", ".k", "k-", "k_", "k:", "0", "00", "-0"}
	for _, key := range keys {
		want(t, tenant.Client().Refund(key, "P", 1), "processed")
	}
	wantMoved(t, tenant, "P", int64(len(keys)))
	for _, key := range keys {
		for _, path := range []string{key, percent(key)} {
			a := tenant.Client().Get("/v1/refunds/" + path)
			if got := harness.Read[harness.Refund](t, a); got.OperationID != key {
				t.Errorf("%s is %q", path, got.OperationID)
			}
		}
	}
	for _, path := range []string{"%2e", "%2e%2e", "k%2Fk", "k%20", "k%252e", "%00", "k%c3%a9",
		strings.Repeat("k", 256), strings.Repeat("k", 10000)} {
		for _, tail := range []string{"", "/events"} {
			if a := raw(tenant.Client(), http.MethodGet, "/v1/refunds/"+path+tail, ""); a.Status < 400 ||
				a.Status >= 500 {
				t.Errorf("GET refund %s: %d", path, a.Status)
			}
		}
	}
}

// percent writes every byte as its escape.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func TestA19_NULInAnyText_IsMalformed(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	tenant.Approve("K", "P", 5)
	unchanged(t, tenant, func() {
		for _, r := range []struct{ method, path, body string }{
			{http.MethodPost, "/v1/refunds",
				`{"operation_id":"K^","order_id":"P^","amount_cents":5,"currency":"EUR^","reason":"r^","metadata":{"a^":"b^"}}`},
			{http.MethodPut, "/v1/authorizations/N",
				`{"case_id":"c^","order_id":"P^","amount_cents":5,"currency":"EUR^","approved_by":"a^","reason":"r^","metadata":{"a^":"b^"},"expires_at":"2099-01-01T00:00:00Z^"}`},
			{http.MethodPut, "/v1/orders/N",
				`{"currency":"EUR^","captured_cents":5,"provider":"ledger^","provider_payment_ref":"p^","customer":{"id":"i^","email":"e^","name":"n^"}}`},
			{http.MethodPost, "/v1/authorizations/K/revoke", `{"reason":"r^","revoked_by":"a^"}`},
		} {
			for i := range strings.Count(r.body, "^") {
				for _, nul := range []string{`\u0000`, "\x00", `\\\u0000`} {
					want(t, raw(tenant.Client(), r.method, r.path, place(r.body, i, nul)), "malformed_request")
				}
			}
		}
		for _, path := range []string{"/v1/orders/N%00", "/v1/orders?customer_id=%00",
			"/v1/orders?customer_email=a%00b", "/v1/authorizations?case_id=c%00",
			"/v1/authorizations/N%00", "/v1/refunds/N%00", "/v1/refunds?order_id=%00", "/v1/refunds?cursor=%00", "/v1/refunds?state=%00"} {
			if a := raw(tenant.Client(), http.MethodGet, path, ""); a.Status != http.StatusBadRequest &&
				a.Status != http.StatusUnprocessableEntity {
				t.Errorf("GET %s: %d", path, a.Status)
			}
		}
	})
	// A backslash and the text u0000 are no NUL.
	text := `reason \\u0000`
	a := raw(tenant.Client(), http.MethodPost, "/v1/refunds",
		`{"operation_id":"K","order_id":"P","amount_cents":5,"reason":"`+text+`"}`)
	want(t, a, "processed")
	if !bytes.Contains(a.Body, []byte(text)) {
		t.Errorf("the reason came back otherwise: %s", a.Body)
	}
}

// place puts mark where the i-th ^ is and drops the other ones.
func place(body string, i int, mark string) string {
	parts := strings.Split(body, "^")
	return strings.Join(parts[:i+1], "") + mark + strings.Join(parts[i+1:], "")
}

// Order ids are any printable ASCII: what they hold is never taken for a path or a query.
func TestA18_OrderIDs_AreUnescapedExactlyOnce(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	c := tenant.Client()
	for _, id := range []string{"#1001", "a/b", "a%2Fb", "a%252Fb", "..%2f", "a+b", "a&b=c", "?", "%", `\`, `"`, "'",
		";", "~!@$^*()_={}[]|:<>,.`", strings.Repeat("z", 255)} {
		tenant.Order(id, 100)
		for _, path := range []string{"/v1/orders/" + url.PathEscape(id), "/v1/orders/" + percent(id)} {
			if got := harness.Read[harness.Order](t, c.Get(path)); got.OrderID != id {
				t.Errorf("%s is order %q, want %q", path, got.OrderID, id)
			}
		}
		key := fmt.Sprintf("K-%x", id)[:min(len(id)*2+2, 255)]
		tenant.Approve(key, id, 100)
		want(t, c.Refund(key, id, 100), "processed")
		page := harness.Read[harness.List[harness.Refund]](t, c.Get("/v1/refunds?order_id="+url.QueryEscape(id)))
		if len(page.Data) != 1 || page.Data[0].OperationID != key {
			t.Errorf("refunds of %q: %+v", id, page.Data)
		}
	}
}
