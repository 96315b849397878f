// Package halfclose tells a client that has finished sending from one that has left.
//
// Both look alike: the peer's FIN arrives, and net/http ends the request's context. Its promise: a client that shut
// down its sending side (shutdown(SHUT_WR)) after a request gets its answer; one that closed its connection still ends
// its request, within the round trips that it takes to know.
//
// How it is known: whoever has left answers data with a reset. Every HTTP/1 answer begins with the same bytes, so these
// are sent early, one at a time, and taken off the answer later: who still reads sees an answer like any other.
package halfclose

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	beginning = "HTTP/1."       // of each answer in HTTP/1.0 and HTTP/1.1
	interim   = "HTTP/1.1 100 " // another one follows
)

// waits are those before each next byte: near clients are known to have left at once, far ones after a while.
var waits = [len(beginning)]time.Duration{0, 30 * time.Millisecond, 120 * time.Millisecond, 500 * time.Millisecond,
	2 * time.Second, 6 * time.Second, 15 * time.Second}

// Listener wraps the connections of l for a server of net/http that sets a read deadline for every request's header.
// Those that are not TCP stay as they are.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &conn{Conn: tcp, tcp: tcp, abort: make(chan struct{}, 1)}, nil
	}
	return c, err
}

// conn is a connection of net/http's server.
type conn struct {
	net.Conn // of tcp: without the methods that would write past ours
	tcp      *net.TCPConn
	abort    chan struct{} // holds a token while the read deadline is one that has passed

	mu       sync.Mutex // guards what follows
	awaiting bool       // a read deadline is set that has not passed
	early    int        // bytes of the beginning that were sent before their answer
	answered bool       // since the last end of the peer's data was seen
}

// CloseWrite is what net/http ends with where it did not read all that was sent.
func (c *conn) CloseWrite() error { return c.tcp.CloseWrite() }

// Read is net/http's. While a handler runs it waits in a Read of a single byte without a deadline: for the next
// request, or for the client to leave. No other read of it is like that.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if len(p) == 1 && n == 0 && errors.Is(err, io.EOF) && !c.awaitsRequest() {
		return 0, c.outlast()
	}
	return n, err
}

// awaitsRequest tells whether the server reads a request: only then has it set a deadline.
func (c *conn) awaitsRequest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awaiting
}

// outlast returns once the peer is known to have left (io.EOF), or the server asks no more.
func (c *conn) outlast() error {
	for i := range beginning {
		select {
		case <-c.abort:
			return os.ErrDeadlineExceeded
		case <-time.After(waits[i]):
		}
		if err := c.probe(i); err != nil {
			return io.EOF
		}
	}
	<-c.abort
	return os.ErrDeadlineExceeded
}

// probe sends the byte i of the answer to come; it does nothing once that was begun.
func (c *conn) probe(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered {
		return nil
	}
	if _, err := c.Conn.Write([]byte{beginning[i]}); err != nil {
		return err
	}
	c.early = i + 1
	return nil
}

// Write leaves out what was sent early.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = !bytes.HasPrefix(p, []byte(interim))
	sent := c.early
	if sent > 0 && !bytes.HasPrefix(p, []byte(beginning[:sent])) {
		return 0, errors.New("halfclose: an answer that does not begin as one of HTTP/1")
	}
	c.early = 0
	n, err := c.Conn.Write(p[sent:])
	return n + sent, err
}

// SetReadDeadline is how the server ends its Read of one byte: by a deadline in the past.
func (c *conn) SetReadDeadline(t time.Time) error {
	passed := !t.IsZero() && !t.After(time.Now())
	c.mu.Lock()
	c.awaiting = !t.IsZero() && !passed
	c.answered = c.answered && !c.awaiting
	c.mu.Unlock()
	select {
	case <-c.abort:
	default:
	}
	if passed {
		c.end()
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close ends the Read of one byte too.
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *conn) end() {
	select {
	case c.abort <- struct{}{}:
	default:
	}
}
