package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
)

// spot is one place of a request that a value goes to, with the schema that the contract gives it.
type spot struct {
	name    string // for the test's words
	schema  *openapi3.Schema
	pointer string // what a refusal of the value points to, or to something below
	send    func(t *testing.T, value any) (answered, bool)
}

// TestA76_TheContractsBounds_AreTheServers takes patterns, lengths, limits and enumerations from openapi.yaml, makes
// values on both sides of each bound, and holds the server's verdict against the schema's.
func TestA76_TheContractsBounds_AreTheServers(t *testing.T) {
	t.Parallel()
	s := start(t)
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	spots := slices.Concat(s.bodySpots(doc), s.querySpots(doc), s.pathSpots(doc))
	refused, taken := 0, 0
	for _, at := range spots {
		if t.Failed() {
			break // one place is enough to look at
		}
		for _, value := range candidates(at.schema) {
			a, sent := at.send(t, value)
			if !sent {
				continue
			}
			got := slices.ContainsFunc(a.errorsOf(), func(fault string) bool {
				itself := strings.HasPrefix(fault, at.pointer+" ") && !strings.HasSuffix(fault, " "+faultRequired)
				return itself || strings.HasPrefix(fault, at.pointer+"/")
			})
			want := refusedBy(at.schema, value)
			if got != want && (want || !isCode(at.name)) {
				t.Errorf("%s %.80q: refused %v by the server, %v by the contract: %d %.300s",
					at.name, fmt.Sprint(value), got, want, a.status, a.raw)
			}
			if got {
				refused++
			} else {
				taken++
			}
		}
	}
	if len(spots) < 40 || refused < 1000 || taken < 1000 {
		t.Errorf("%d places, %d values refused, %d taken: too few to prove anything", len(spots), refused, taken)
	}
}

// quick asks the handler itself: thousands of requests need no connection, and no look through the log.
func (s *service) quick(t *testing.T, method, target, body, key string) answered {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+s.secret)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set(keyHeader, key)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	a := answered{status: w.Code, header: w.Header(), raw: w.Body.String()}
	if err := json.Unmarshal(w.Body.Bytes(), &a.body); err != nil {
		t.Fatalf("%s %s: %v in %s", method, target, err, a.raw)
	}
	return a
}

// refusedBy is the schema's verdict; the library's leaves the names of properties out.
func refusedBy(schema *openapi3.Schema, value any) bool {
	if named := orNull(schema).PropertyNames; named != nil {
		object, _ := value.(map[string]any)
		for name := range object {
			if named.Value.VisitJSON(name) != nil {
				return true
			}
		}
	}
	return schema.VisitJSON(value, openapi3.EnableFormatValidation()) != nil
}

// isCode reports a place for a currency: of the codes that its pattern allows the server knows those that exist.
func isCode(name string) bool { return strings.HasSuffix(name, "currency") }

// candidates are values at, below and above each bound of a schema.
func candidates(schema *openapi3.Schema) []any {
	values := slices.Clone(schema.Enum)
	for _, one := range schema.OneOf { // of a schema and null
		values = append(values, candidates(one.Value)...)
	}
	switch {
	case schema.Type.Includes("integer"):
		least, most := int64(*schema.Min), int64(*schema.Max)
		for _, n := range []int64{least - 1, least, least + 1, most - 1, most, most + 1, -least, -most} {
			values = append(values, float64(n))
		}
	case schema.Type.Includes("string"):
		values = append(values, texts(schema)...)
	case schema.Type.Includes("object") && schema.MaxProps != nil:
		values = append(values, pairs(schema)...)
	}
	return values
}

// texts are strings of every length near a bound, of one and of several bytes a character, and of every ASCII
// character.
func texts(schema *openapi3.Schema) []any {
	values := []any{
		"a", "é", "ab", "EUR", "eur", "EURO", "EU", ".", "..", "...", ".a", "a.", "a b", " a", "a ", "2026-01-31T09:26:53Z",
		"2026-01-31T09:26:53.5+01:00", "2026-01-31T9:26:53Z", "2026-01-31T09:26:53,5Z", "2026-01-31T09:26:53+24:00",
		"2026-01-31T09:26:53+01:60", "2026-01-31t09:26:53z", "2026-01-31T24:00:00Z", "0000-01-31T09:26:53Z", "2016-12-31T23:59:60Z",
		"2026-13-31T09:26:53Z", "2026-01-32T09:26:53Z", "ledger", "Ledger", "succeeded", "revoked",
	}
	if schema.MinLength > 0 {
		values = append(values, "")
	}
	if most := schema.MaxLength; most != nil {
		for _, unit := range []string{"a", "~", "é", "😀"} {
			for _, n := range []int{int(*most) - 1, int(*most), int(*most) + 1} { // #nosec G115 -- small
				values = append(values, strings.Repeat(unit, n))
			}
		}
	}
	if strings.Contains(schema.Pattern, `"`) { // bare or quoted
		for n := range 300 {
			values = append(values, `"`+strings.Repeat("a", n)+`"`, strings.Repeat("a", n),
				`"..`+strings.Repeat("a", n)+`"`)
		}
	}
	if schema.Pattern != "" {
		for c := rune(1); c < 128; c++ {
			values = append(values, string(c), "a"+string(c)+"b", "."+string(c), ".."+string(c))
		}
	}
	return values
}

// pairs are objects of every size near the bound, with names and values of every length near theirs.
func pairs(schema *openapi3.Schema) []any {
	var values []any
	most := int(*schema.MaxProps) // #nosec G115 -- small
	for _, n := range []int{0, 1, most - 1, most, most + 1} {
		many := map[string]any{}
		for i := range n {
			many[fmt.Sprint("k", i)] = "v"
		}
		values = append(values, many)
	}
	names := int(*schema.PropertyNames.Value.MaxLength)                // #nosec G115 -- small
	length := int(*schema.AdditionalProperties.Schema.Value.MaxLength) // #nosec G115 -- small
	for _, n := range []int{0, 1, names, names + 1} {
		values = append(values, map[string]any{strings.Repeat("é", n): "v"})
	}
	for _, n := range []int{0, 1, length, length + 1} {
		values = append(values, map[string]any{"k": strings.Repeat("é", n)})
	}
	return values
}

// bodySpots are the members of every body.
func (s *service) bodySpots(doc *openapi3.T) []spot {
	var spots []spot
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.RequestBody == nil {
				continue
			}
			media := operation.RequestBody.Value.Content["application/json"]
			for _, where := range members("", media.Schema.Value) {
				where.send = func(t *testing.T, value any) (answered, bool) {
					body := map[string]any{}
					at, name := body, strings.TrimPrefix(where.pointer, "/")
					if parent, child, nested := strings.Cut(name, "/"); nested {
						at[parent] = map[string]any{}
						at, name = at[parent].(map[string]any), child
					}
					if name == "provider_payment_ref" && method == http.MethodPut {
						at["provider"] = "simulator" // which needs one
					}
					at[name] = value
					key := ""
					if path == refundsPath && name != "operation_id" {
						key = "nobody" // or the body is not looked at
					}
					raw, err := json.Marshal(body)
					if err != nil {
						t.Fatal(err)
					}
					target := strings.NewReplacer("{order_id}", "nowhere", "{operation_id}", "nobody").Replace(path)
					return s.quick(t, method, target, string(raw), key), true
				}
				where.name = method + " " + path + " " + where.pointer
				spots = append(spots, where)
			}
		}
	}
	return spots
}

// members are the places of an object's members, those of objects in it included.
func members(above string, schema *openapi3.Schema) []spot {
	var spots []spot
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		of := schema.Properties[name].Value
		at := above + "/" + name
		if inner := orNull(of); len(inner.Properties) > 0 {
			spots = append(spots, members(at, inner)...)
			continue
		}
		spots = append(spots, spot{schema: of, pointer: at})
	}
	return spots
}

// orNull is the schema itself, or the one that stands beside null.
func orNull(schema *openapi3.Schema) *openapi3.Schema {
	for _, one := range schema.OneOf {
		if !one.Value.Type.Is("null") {
			return one.Value
		}
	}
	return schema
}

// querySpots are the parameters of every query, and the header that has a bound.
func (s *service) querySpots(doc *openapi3.T) []spot {
	var spots []spot
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, p := range operation.Parameters {
				where := spot{
					name: method + " " + path + " " + p.Value.Name, schema: p.Value.Schema.Value,
					pointer: p.Value.In + ":" + p.Value.Name,
				}
				switch {
				case p.Value.In == "query" && p.Value.Name != "cursor": // which no pattern tells from one of ours
					where.send = func(t *testing.T, value any) (answered, bool) {
						query := url.Values{p.Value.Name: {written(value)}}
						target := strings.ReplaceAll(path, "{operation_id}", "nobody") + "?" + query.Encode()
						body := ""
						if operation.RequestBody != nil {
							body = "{}"
						}
						return s.quick(t, method, target, body, ""), true
					}
				case p.Value.Name == keyHeader:
					where.send = func(t *testing.T, value any) (answered, bool) {
						key := written(value)
						control := strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 127 })
						if control || strings.Trim(key, " ") != key || key == "" {
							return answered{}, false // no header can carry it
						}
						return s.quick(t, method, path, `{"order_id":"nowhere","amount_cents":1}`, key), true
					}
				default:
					continue
				}
				spots = append(spots, where)
			}
		}
	}
	return spots
}

// written is a value as a query has it.
func written(value any) string {
	if n, ok := value.(float64); ok {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprint(value)
}

// pathSpots are the parameters of every path.
func (s *service) pathSpots(doc *openapi3.T) []spot {
	var spots []spot
	for path, item := range doc.Paths.Map() {
		for _, p := range item.Parameters {
			spots = append(spots, spot{
				name: path + " " + p.Value.Name, schema: p.Value.Schema.Value, pointer: "path:" + p.Value.Name,
				send: func(t *testing.T, value any) (answered, bool) {
					if value == "" { // is another path
						return answered{}, false
					}
					method := http.MethodPost
					if item.Get != nil {
						method = http.MethodGet
					}
					escaped := strings.ReplaceAll(url.PathEscape(written(value)), ".", "%2E")
					return s.quick(t, method, strings.ReplaceAll(path, "{"+p.Value.Name+"}", escaped), "{}", ""), true
				},
			})
		}
	}
	return spots
}
