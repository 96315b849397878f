// Package bench holds what the load generator is proven and compared with: a run of every mix on a real deployment, for
// correctness; the handler that most teams would write; and one transaction per refund without HTTP, by pgbench.
//
//	go test -run '^$' -bench Ratios -timeout 60m ./test/bench
//
// prints how refundd compares with the other two, measured in turns on one durable Postgres.
package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

// baselineAddr makes this test binary a process of the baseline.
const baselineAddr = "REFUNDD_BENCH_BASELINE_ADDR"

func TestMain(m *testing.M) {
	addr := os.Getenv(baselineAddr)
	if addr == "" {
		flag.Parse()
		testdb.Main(harness.Run(m))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := serveBaseline(ctx, addr, os.Getenv("DATABASE_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
