package crash

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"refundd/test/harness"
)

func TestFailpoints_AreNotInTheShippedBinary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "refundd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/refundd")
	cmd.Dir = harness.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	shipped, tests := contents(t, path), contents(t, harness.Binary(t))
	for _, name := range append(failpoints(t), "REFUNDD_FAILPOINT", "operations.readFailpoint") {
		if bytes.Contains(shipped, []byte(name)) {
			t.Errorf("the shipped binary has %q", name)
		}
		if !bytes.Contains(tests, []byte(name)) {
			t.Errorf("the binary of the tests has no %q: the test proves nothing", name)
		}
	}
}

// failpoints finds the names of all fail points in the engine's source.
func failpoints(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(harness.Root(), "operations", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		for _, m := range regexp.MustCompile(`failpoint\("([^"]+)"\)`).FindAllSubmatch(contents(t, file), -1) {
			names = append(names, string(m[1]))
		}
	}
	if len(names) < 10 {
		t.Fatalf("the engine has the fail points %q", names)
	}
	return names
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
