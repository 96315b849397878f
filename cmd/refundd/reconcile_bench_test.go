package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"refundd/provider/simulator"
	"refundd/test/testdb"
)

// BenchmarkReconcile_StaleReservations measures one run over reservations that nothing came of, at a provider that
// takes 20 ms for each answer: every one is looked up and sent again. Memory is the process's own, at its most.
func BenchmarkReconcile_StaleReservations(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				db := testdb.New(b)
				server, err := simulator.New(simulator.Options{Dir: b.TempDir(), Latency: 20 * time.Millisecond})
				if err != nil {
					b.Fatal(err)
				}
				web := httptest.NewServer(server)
				reserve(b, db, n)
				began := time.Now()
				p := start(b, []string{"DATABASE_URL=" + db.ServiceURL}, "reconcile", "--simulator-url", web.URL)
				if code := p.wait(b, 5*time.Minute); code != exitClean {
					b.Errorf("exits %d", code)
				}
				b.ReportMetric(time.Since(began).Seconds(), "s/run")
				usage, _ := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
				b.ReportMetric(float64(usage.Maxrss)/1024, "MiB-max")
				if want := fmt.Sprintf(`{"claimed":%d,"succeeded":%d,`, n, n); !strings.HasPrefix(p.stdout.String(),
					want) {
					b.Errorf("it prints %s", p.stdout)
				}
				web.Close()
				if err := server.Close(); err != nil {
					b.Error(err)
				}
			}
		})
	}
}
