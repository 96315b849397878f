package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The code moves; the table moves with it.
func TestTable_ChangesWhatIsThere(t *testing.T) {
	names := map[string]bool{}
	for _, m := range table {
		if names[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		names[m.name] = true
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: %s has what it changes %d times: %s", m.name, m.file, n, m.old)
		}
	}
}
