package main

import (
	"testing"
)

func TestBench_RefusesWrongUseInOneSentence(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		says string
	}{
		{"nothing to load", nil, "either --self, or --url and --database-url"},
		{"two things to load", []string{"--self", "--url", "http://127.0.0.1:1"}, "either --self, or --url"},
		{"a deployment without its database", []string{"--url", "http://127.0.0.1:1"}, "DATABASE_URL is not set"},
		{"unknown mix", []string{"--self", "--mix", "old"}, `"old" is no mix`},
		{"no connections", []string{"--self", "--connections", "0"}, "--connections must be positive"},
		{"no time", []string{"--self", "--duration", "0s"}, "--duration and --rounds must be positive"},
		{"unknown ids", []string{"--self", "--ids", "odd"}, "--ids"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			oneSentence(t, command(t, nil, append([]string{"bench"}, test.args...)...), exitUsage, test.says)
		})
	}
}
