package api

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"
)

var document = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(openapiYAML)
})

func TestContract_PathsAreRoutes(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	var documented, routed []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	for pattern, p := range newRouter(noServer().routes()).paths {
		for method := range p.methods {
			routed = append(routed, method+" "+pattern)
		}
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if d := cmp.Diff(documented, routed); d != "" {
		t.Errorf("paths of openapi.yaml (-) and routes (+):\n%s", d)
	}
}

func TestContract_CodesAreProblems(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	var documented, known []string
	for _, code := range doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		documented = append(documented, code.(string))
	}
	for code := range kinds {
		known = append(known, code)
	}
	slices.Sort(documented)
	slices.Sort(known)
	if d := cmp.Diff(documented, known); d != "" {
		t.Errorf("codes of openapi.yaml (-) and of the table (+):\n%s", d)
	}
}

func TestContract_IsValidWithItsExamples(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	for name, example := range doc.Components.Examples {
		value, _ := example.Value.Value.(map[string]any)
		code, _ := value["code"].(string)
		k, isProblem := kinds[code]
		if !isProblem {
			continue
		}
		if value["title"] != k.title || value["detail"] != k.detail || value["next_action"] != k.next ||
			value["isRetryable"] != k.retryable ||
			(value["retry_after_seconds"] != nil) != (k.retryAfter > 0) {
			t.Errorf("%s is not what the table says: %v", name, value)
		}
	}
}

// conform holds an answer of a route against its schema.
func conform(t *testing.T, r *http.Request, a answered) {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	m := newRouter(noServer().routes()).find(r)
	if m.route == nil || a.header.Get("Content-Type") == "application/yaml" {
		return
	}
	path := doc.Paths.Value(m.path.pattern)
	in := &openapi3filter.RequestValidationInput{
		Request: r,
		Route: &routers.Route{Spec: doc, Path: m.path.pattern, PathItem: path, Method: r.Method,
			Operation: path.GetOperation(r.Method)},
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: a.status, Header: a.header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	out.SetBodyBytes([]byte(a.raw))
	if err := openapi3filter.ValidateResponse(t.Context(), out); err != nil {
		t.Errorf("%s %s answers %d not as documented: %s\n%s", r.Method, r.URL, a.status,
			strings.SplitN(err.Error(), "Schema:", 2)[0], a.raw)
	}
}
