package escalations

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A file that is taken is a whole policy, and the same policy the next time.
func FuzzReadPolicy(f *testing.F) {
	whole, err := os.ReadFile("testdata/policy.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("version: a\nqueues: {q: {look_within: 1h}}\nhuman_queue: q\ndefault_queue: q\ncategories: {}\nrules: []\n"))
	f.Add([]byte("version: &a [*a]\n"))
	f.Add([]byte("a: b\n---\nc: d\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ReadPolicy(bytes.NewReader(text))
		if err != nil {
			return
		}
		if faults := p.faults(); len(faults) > 0 || p.Version == "" || p.Queues[p.HumanQueue] <= 0 ||
			p.Queues[p.DefaultQueue] <= 0 {
			t.Fatalf("taken, with %v: %+v", faults, p)
		}
		again, err := ReadPolicy(bytes.NewReader(text))
		if d := cmp.Diff(p, again); err != nil || d != "" {
			t.Errorf("another policy the second time: %v\n%s", err, d)
		}
	})
}
