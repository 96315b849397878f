package harness

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Lossy stands between callers and a server: of some connections it cuts the answer off, of some the request.
type Lossy struct {
	URL string

	to     string
	cut    func() (request, answer bool)
	losses atomic.Int64
}

// NewLossy stands before the server at a URL; cut says of each connection what is lost, from any goroutine.
func NewLossy(t testing.TB, serverURL string, cut func() (request, answer bool)) *Lossy {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Lossy{URL: "http://" + l.Addr().String(), to: strings.TrimPrefix(serverURL, "http://"), cut: cut}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
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

// Losses is how many connections lost something.
func (p *Lossy) Losses() int64 { return p.losses.Load() }

// carry takes one connection, on which one exchange is made.
func (p *Lossy) carry(caller net.Conn) {
	defer func() { _ = caller.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	noRequest, noAnswer := p.cut()
	if noRequest || noAnswer {
		p.losses.Add(1)
	}
	if noRequest {
		return
	}
	go func() {
		_, _ = io.Copy(server, caller) // ends with either connection
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	if noAnswer {
		_, _ = io.ReadFull(server, make([]byte, 1)) // the server has done what it was asked
		return
	}
	_, _ = io.Copy(caller, server)
}
