package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"refundd/bench"
	"refundd/client"
	"refundd/test/harness"
)

// BenchmarkCall measures what the tools cost on top of HTTP: 16 callers ask for a refund that was executed already, in
// turns by the client, by process_refund over HTTP, and over stdio. Each call of the tool is two of the service: the
// case's approvals, the refund.
//
//	go test -run '^$' -bench Call -benchtime 3000x -count 3 ./test/agent
func BenchmarkCall(b *testing.B) {
	s := harness.New(b, "--policy", harness.PolicyFile(b))
	d := s.Tenant(b)
	d.Order("A", 10000)
	d.Approve("K", "A", 100)
	d.Client().Refund("K", "A", 100)
	server := s.Servers[0]
	service, err := client.New(client.Config{BaseURL: server.URL, APIKey: d.Key})
	if err != nil {
		b.Fatal(err)
	}
	tools := spawnTools(b, server.URL)
	overHTTP, stdio := overHTTP(b, tools.URL, d.Key), overStdio(b, server.URL, d.Key)
	refund := client.RefundRequest{OperationID: "K", OrderID: "A", AmountCents: 100}
	for _, way := range []struct {
		name string
		call func() error
	}{
		{"client", func() error { _, err := service.Refund(context.Background(), refund); return err }},
		{"clientTwice", func() error {
			if _, err := service.FindAuthorizations(context.Background(), "case-7"); err != nil {
				return err
			}
			_, err := service.Refund(context.Background(), refund)
			return err
		}},
		{"toolOverHTTP", func() error {
			_, err := overHTTP.try(context.Background(), "process_refund", args{"case_id": "case-7"})
			return err
		}},
		{"toolOverStdio", func() error {
			_, err := stdio.try(context.Background(), "process_refund", args{"case_id": "case-7"})
			return err
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			before := []time.Duration{cpu(b, server.Process), cpu(b, tools.Process)}
			began := time.Now()
			var callers sync.WaitGroup
			turns := make(chan struct{})
			for range 16 {
				callers.Go(func() {
					for range turns {
						if err := way.call(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for b.Loop() {
				turns <- struct{}{}
			}
			close(turns)
			callers.Wait()
			n := float64(b.N)
			b.ReportMetric(n/time.Since(began).Seconds(), "calls/s")
			b.ReportMetric(float64((cpu(b, server.Process)-before[0]).Microseconds())/n, "service-µs/call")
			b.ReportMetric(float64((cpu(b, tools.Process)-before[1]).Microseconds())/n, "tools-µs/call")
		})
	}
}

// cpu is what a process has used so far.
func cpu(b *testing.B, p *harness.Process) time.Duration {
	b.Helper()
	used, err := bench.OfProcess(p.Pid())(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return used.CPU
}
