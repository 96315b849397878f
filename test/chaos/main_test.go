// Package chaos throws everything at refundd at once that may go wrong, at random and for a bounded time: servers and
// reconcilers that are killed, stopped and suspended for longer than their leases, a provider that misbehaves and
// forgets, a Postgres that loses its power, and callers that retry as agents do.
//
// What it holds refundd to: no operation is executed twice at the provider; nothing is executed there that our books do
// not know; every answer that a caller got was true when it was given; once all is well again, reconciliation brings
// every operation to the end that the provider's books show, or in front of a human; the audit is clean. A failure
// prints its seed.
package chaos

import (
	"flag"
	"testing"
	"time"

	"refundd/test/harness"
	"refundd/test/testdb"
)

var (
	seed     = flag.Uint64("chaos.seed", 0, "of everything that is decided at random; 0 takes another one each time")
	duration = flag.Duration("chaos.duration", 20*time.Second, "of the storm")
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }
