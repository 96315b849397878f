package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refundd/cmd/refundd/internal/dev"
)

// What a policy decides and where it is silent is explained; what is no policy exits 1, in words.
func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	good := dev.SamplePolicy
	for name, c := range map[string]struct {
		text, says string
		code       int
	}{
		"the sample": {good, "gap: any other reason code or currency: queue refunds", 0},
		"CRLF":       {strings.ReplaceAll(good, "\n", "\r\n"), "policy dev-1: 1 rules, 7 queues", 0},
		"a BOM":      {"\ufeff" + good, "policy dev-1: 1 rules, 7 queues", 0},
		"a gap": {good + "  - {id: eur, reason_codes: [bored], currencies: [EUR], max_amount_cents: 1}\n",
			"gap: no rule covers bored in USD", 0},
		"an overlap": {good + "  - {id: twice, reason_codes: [late], currencies: [EUR], max_amount_cents: 1}\n",
			"both cover late in EUR", 1},
		"a broken file":   {"version: [", "policy", 1},
		"an empty file":   {"", "empty", 1},
		"a huge file":     {strings.Repeat("# much\n", 1<<20), "larger than", 1},
		"an alias bomb":   {"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\n", "policy", 1},
		"another version": {strings.Replace(good, "dev-1", "\u202edev", 1), "version", 1},
	} {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := command(t, nil, "policy", "check", path)
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.says) || (r.code == 0) != (r.stderr == "") {
			t.Errorf("%s: exits %d, want %d and %q: %s%s", name, r.code, c.code, c.says, r.stdout, r.stderr)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "nowhere.yaml")} {
		if r := command(t, nil, "policy", "check", path); r.code != 1 || r.stdout != "" || r.stderr == "" {
			t.Errorf("%s: exits %d: %s%s", path, r.code, r.stdout, r.stderr)
		}
	}
}
