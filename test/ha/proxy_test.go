//go:build ha

package ha

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/test/harness"
)

// proxy is a plain one for TCP, which takes turns among the servers that say they are ready.
type proxy struct {
	url string

	mu    sync.Mutex
	all   []*harness.Server
	ready map[*harness.Server]bool
	next  int
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "http://" + l.Addr().String(), ready: map[*harness.Server]bool{}}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	open.Go(func() {
		for t.Context().Err() == nil {
			p.probe(t.Context())
			time.Sleep(100 * time.Millisecond)
		}
	})
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.carry(conn) })
		}
	})
	return p
}

func (p *proxy) add(s *harness.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all, p.ready[s] = append(p.all, s), true
}

func (p *proxy) remove(s *harness.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(other *harness.Server) bool { return other == s })
}

func (p *proxy) servers() []*harness.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// probe asks each whether it is ready.
func (p *proxy) probe(ctx context.Context) {
	for _, s := range p.servers() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
		if err != nil {
			return
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		p.mu.Lock()
		p.ready[s] = err == nil && res.StatusCode == http.StatusOK
		p.mu.Unlock()
	}
}

// turn is the next server that is ready; where none is, the next one.
func (p *proxy) turn() *harness.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.all {
		p.next++
		if s := p.all[p.next%len(p.all)]; p.ready[s] {
			return s
		}
	}
	return p.all[p.next%len(p.all)]
}

func (p *proxy) carry(caller net.Conn) {
	defer func() { _ = caller.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(p.turn().URL, "http://"))
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, caller) // ends with either connection
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(caller, server)
}
