// Package bench holds what the load generator is proven and compared with: a run of every mix on a real deployment, for
// correctness; the handler that most teams would write; and one transaction per refund without HTTP, by pgbench.
package bench

import (
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }
