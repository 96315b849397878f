// Package crash kills refundd between every two steps of its protocol, in every mood of its provider, and throws
// everything at it at once that may go wrong, with real processes, a real Postgres and a simulator in a process of its
// own.
//
// What it holds refundd to: the provider executes each operation at most once; each operation ends in the state that
// the provider's books show, or in front of a human with evidence; whatever a caller was told was true when it was
// told.
package crash

import (
	"flag"
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) {
	harness.Build.Tags = "failpoints"
	harness.Build.Race = false // hundreds of processes live for one request each: the other suites look for races
	// A default, which the command line may change: most of the time the tests wait for processes.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	testdb.Main(harness.Run(m))
}
