package simulator_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"refundd/provider/simulator"
)

// BenchmarkRefund drives many refunds at once over kept connections: they share the books' fsyncs.
func BenchmarkRefund(b *testing.B) {
	s, err := simulator.New(simulator.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	server := httptest.NewServer(s)
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	defer transport.CloseIdleConnections()
	var n atomic.Int64
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key := fmt.Sprintf("k-%d", n.Add(1))
			r, err := http.NewRequest("POST", server.URL+"/refunds", strings.NewReader(body("pay-"+key)))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Idempotency-Key", key)
			response, err := transport.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			if response.Body.Close(); response.StatusCode != http.StatusCreated {
				b.Errorf("got %d", response.StatusCode)
			}
		}
	})
}
