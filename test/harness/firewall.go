package harness

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Firewall stands between a service and its Postgres and forgets connections: what travels on those is swallowed from
// then on, either way, and neither end hears of it. New ones work. It counts what the service waits for.
type Firewall struct {
	to string

	mu    sync.Mutex
	trips int
	flows map[*flow]struct{}
	marks map[string]*mark
}

// flow is one connection.
type flow struct {
	service, postgres net.Conn
	forgotten         bool
	asking            bool // the service has sent, and nothing came back yet
}

// mark is what a message has to carry for its connection to be forgotten.
type mark struct {
	answer bool // the message itself still arrives, its answer does not
	met    chan struct{}
}

// NewFirewall stands in front of a database, and returns the URL through it.
func NewFirewall(t testing.TB, databaseURL string) (*Firewall, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Firewall{to: u.Host, flows: make(map[*flow]struct{}), marks: make(map[string]*mark)}
	u.Host = l.Addr().String()
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); f.end(); open.Wait() })
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { f.carry(conn) })
		}
	})
	return f, u.String()
}

// RoundTrips returns how often the service has sent something after it had heard an answer: what it sends meanwhile is
// the same message.
func (f *Firewall) RoundTrips() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trips
}

// ForgetAll forgets every connection that there is, and returns how many those are.
func (f *Firewall) ForgetAll() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.flows {
		c.forgotten = true
	}
	return len(f.flows)
}

// ForgetWith forgets the connection on which the service sends the text next: with the message that carries it, or,
// where it arrives, with its answer. What it returns is closed by then.
func (f *Firewall) ForgetWith(text string, arrives bool) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &mark{answer: arrives, met: make(chan struct{})}
	f.marks[text] = m
	return m.met
}

func (f *Firewall) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.flows {
		_, _ = c.service.Close(), c.postgres.Close()
	}
}

// carry takes a connection to its end.
func (f *Firewall) carry(service net.Conn) {
	postgres, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", f.to)
	if err != nil {
		_ = service.Close()
		return
	}
	c := &flow{service: service, postgres: postgres}
	f.mu.Lock()
	f.flows[c] = struct{}{}
	f.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(func() { f.pass(c, postgres, service) })
	ways.Go(func() { f.pass(c, service, postgres) })
	ways.Wait()
	f.mu.Lock()
	delete(f.flows, c)
	f.mu.Unlock()
}

// pass copies one way. Of the end of a connection that is forgotten the other side does not hear either.
func (f *Firewall) pass(c *flow, to, from net.Conn) {
	message := make([]byte, 64<<10)
	for {
		n, err := from.Read(message)
		swallowed := f.swallows(c, message[:n], from == c.service)
		if n > 0 && !swallowed {
			_, _ = to.Write(message[:n])
		}
		if err != nil {
			_ = from.Close()
			if !swallowed {
				_ = to.Close()
			}
			return
		}
	}
}

// swallows forgets the connection of a message that carries a mark, and reports whether the message is lost.
func (f *Firewall) swallows(c *flow, message []byte, sent bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent && !c.asking {
		f.trips++
	}
	c.asking = sent
	if c.forgotten || !sent {
		return c.forgotten
	}
	lost := false
	for text, m := range f.marks {
		if bytes.Contains(message, []byte(text)) {
			delete(f.marks, text)
			close(m.met)
			c.forgotten, lost = true, !m.answer
		}
	}
	return lost
}
