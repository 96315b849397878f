package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"refundd/test/testdb"
)

// raw sends one request over a connection of its own and half-closes; it returns all that comes back.
func (c caller) raw(t *testing.T, method, path, body string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(c.url, "http://"))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, c.key, len(body), body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(answer)
}

func TestA74_AHalfClosedRefundIsAnswered_HoweverLongItTakes(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := serve(t, db)
	s.expect(t, 201, "PUT", "/v1/orders/A-1", `{"currency":"EUR","captured_cents":5000}`)
	for i := range 3 {
		s.expect(t, 201, "PUT", fmt.Sprint("/v1/authorizations/op-", i),
			`{"case_id":"c","order_id":"A-1","amount_cents":5,"approved_by":"ann"}`)
	}
	refund := func(i int) string {
		return s.raw(t, "POST", "/v1/refunds",
			fmt.Sprintf(`{"operation_id":"op-%d","order_id":"A-1","amount_cents":5}`, i))
	}
	if got := refund(0); !strings.HasPrefix(got, "HTTP/1.1 201 Created\r\n") ||
		!strings.Contains(got, `"status":"processed"`) {
		t.Errorf("at once: %q", got)
	}
	release := lockOrder(t, db, "A-1")
	answer := make(chan string)
	go func() { answer <- refund(1) }()
	awaitLockWait(t, db)
	time.Sleep(300 * time.Millisecond)
	release()
	if got := <-answer; !strings.HasPrefix(got, "HTTP/1.1 201 Created\r\n") ||
		!strings.Contains(got, `"status":"processed"`) {
		t.Errorf("after a wait: %q", got)
	}
	if got := s.raw(t, "GET", "/v1/refunds/op-1", ""); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") {
		t.Errorf("a look: %q", got)
	}
}

func TestA74_ARollingDeploy_LosesNoNewConnection(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	s := serve(t, db, "--drain-delay", "2s")
	kept, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Close() }()
	ask := func() *http.Response {
		fmt.Fprint(kept, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(kept), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		return answer
	}
	if a := ask(); a.StatusCode != 200 || a.Close {
		t.Errorf("before: %d, closes %t", a.StatusCode, a.Close)
	}

	// Whoever asks /readyz before each request, as a balancer does, is always answered.
	var unready, refused atomic.Int64
	stopped := make(chan struct{})
	balanced := make(chan struct{})
	go func() {
		defer close(balanced)
		for {
			select {
			case <-stopped:
				return
			default:
			}
			ready, err := s.try(t.Context(), "GET", "/readyz", "")
			if err != nil || ready.status != 200 {
				unready.Add(1)
				continue
			}
			if a, err := s.try(t.Context(), "GET", "/v1/orders/A-1", ""); err != nil || a.status != 404 {
				refused.Add(1)
			}
		}
	}()
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	s.signal(t, syscall.SIGTERM)
	s.logged(t, "draining")
	for time.Since(began) < time.Second { // new connections are answered, and told that it is not ready
		s.expect(t, 503, "GET", "/readyz", "")
		s.expect(t, 404, "GET", "/v1/orders/A-1", "")
		time.Sleep(50 * time.Millisecond)
	}
	if a := ask(); a.StatusCode != 200 || !a.Close {
		t.Errorf("while it drains: %d, closes %t", a.StatusCode, a.Close)
	}
	if code := s.wait(t, 20*time.Second); code != 0 {
		t.Errorf("exits %d", code)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it drained for %v", took)
	}
	close(stopped)
	<-balanced
	if unready.Load() == 0 || refused.Load() > 0 {
		t.Errorf("%d times not ready, and %d requests were lost", unready.Load(), refused.Load())
	}
}
