package blackbox

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refundd/test/harness"
)

func TestContract_EveryPathIsServed(t *testing.T) {
	t.Parallel()
	doc, err := harness.Document()
	if err != nil {
		t.Fatal(err)
	}
	tenant := harness.Shared(t).Tenant(t)
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			example := strings.NewReplacer("{order_id}", "nowhere", "{operation_id}", "nobody").Replace(path)
			a := tenant.Client().Do(harness.Request{Method: method, Path: example})
			if code := a.Code(); code == "not_found" || code == "method_not_allowed" {
				t.Errorf("%s %s: %s", method, path, code)
			}
		}
	}
}

func TestContract_IsServedAsItIs(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join(harness.Root(), "api", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	a := harness.Shared(t).Tenant(t).Client().With("").Do(harness.Request{Method: http.MethodGet, Path: "/openapi.yaml",
		Valid: true})
	if a.Status != http.StatusOK || !bytes.Equal(a.Body, source) {
		t.Errorf("/openapi.yaml answers %d and %d bytes, not api/openapi.yaml", a.Status, len(a.Body))
	}
}

// Every example of a problem in the contract is what the table of codes says.
func TestContract_ExamplesAgreeWithTheTable(t *testing.T) {
	t.Parallel()
	doc, err := harness.Document()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for name, example := range doc.Components.Examples {
		value, ok := example.Value.Value.(map[string]any)
		if !ok {
			t.Fatalf("%s is no object", name)
		}
		code, ok := value["code"].(string)
		if !ok {
			continue
		}
		shown[code] = true
		advice, known := harness.Problems[code]
		if !known {
			t.Errorf("%s: unknown code %s", name, code)
		}
		if value["isRetryable"] != advice.Retryable || value["next_action"] != advice.NextAction ||
			value["type"] != "urn:refundd:problem:"+code {
			t.Errorf("%s does not say what the table says: %v", name, value)
		}
	}
	for code := range harness.Problems {
		if !shown[code] {
			t.Errorf("no example of %s", code)
		}
	}
}
