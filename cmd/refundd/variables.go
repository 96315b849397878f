package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// warnOfVariables names, in one line, what is set for refundd and read by none of its commands: a mistyped limit is no
// limit.
func warnOfVariables(c console, commands *kong.Node, environ []string) {
	known := knownVariables(commands)
	var unknown []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "REFUNDD_") || slices.Contains(known, name) || isOthers(name) {
			continue
		}
		if near := nearest(name, known); near != "" {
			name += fmt.Sprintf(" (did you mean %s?)", near)
		}
		unknown = append(unknown, name)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		c.log.Warn("no command reads these variables", "names", strings.Join(unknown, ", "))
	}
}

// isOthers tells the variables of our own builds and tests, and those that Kubernetes sets for a service of our name.
func isOthers(name string) bool {
	return slices.ContainsFunc( // FAILP: the builds that tests make stop at places that this one does not have
		[]string{"REFUNDD_TEST_", "REFUNDD_CI_", "REFUNDD_SERVICE_", "REFUNDD_PORT", "REFUNDD_FAILP", "REFUNDD_WALL_"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// knownVariables are those of every flag of every command: a deployment sets them for all of its commands at once.
func knownVariables(n *kong.Node) []string {
	known := []string{loginPassword}
	for _, flag := range n.Flags {
		known = append(known, variable(flag.Name))
	}
	for _, child := range n.Children {
		known = append(known, knownVariables(child)...)
	}
	return known
}

// nearest is the known name that takes the fewest changes, if few do.
func nearest(name string, known []string) string {
	best, found := len("REFUNDD_")/2, ""
	for _, k := range known {
		if d := distance(name, k); d < best {
			best, found = d, k
		}
	}
	return found
}

// distance counts the characters to insert, remove or replace between two names (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
