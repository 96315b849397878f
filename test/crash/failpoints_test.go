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
	for _, name := range append(failpoints(t), "REFUNDD_FAILPOINT", "failpoint.readFailpoint", "REFUNDD_WALL_CLOCK") {
		if bytes.Contains(shipped, []byte(name)) {
			t.Errorf("the shipped binary has %q", name)
		}
		if !bytes.Contains(tests, []byte(name)) {
			t.Errorf("the binary of the tests has no %q: the test proves nothing", name)
		}
	}
}

// failpoints finds the names of all fail points in the sources of the engine and of what it sends with.
func failpoints(t *testing.T) []string {
	t.Helper()
	var names []string
	for room, least := range map[string]int{"operations": 10, "internal/sendonce": 2} {
		files, err := filepath.Glob(filepath.Join(harness.Root(), room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, file := range files {
			for _, m := range regexp.MustCompile(`(?:failpoint|Reach)\("([^"]+)"\)`).FindAllSubmatch(contents(t, file),
				-1) {
				found = append(found, string(m[1]))
			}
		}
		if len(found) < least {
			t.Fatalf("%s has the fail points %q", room, found)
		}
		names = append(names, found...)
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
