package operations_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// cutter is a proxy in front of Postgres that cuts the connection at the next COMMIT of tx 1: before the server sees
// it, or after the server has applied it and before the client hears of it.
type cutter struct {
	URL    string
	after  bool
	armed  atomic.Bool
	cuts   atomic.Int64
	claims sync.Map // names of the prepared statements that claim keys
}

func newCutter(t *testing.T, databaseURL string, after bool) *cutter {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	c := &cutter{URL: u.String(), after: after}
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { c.serve(client, server) })
		}
	})
	return c
}

// arm makes the next COMMIT of a claim the one to cut.
func (c *cutter) arm() { c.armed.Store(true) }

func (c *cutter) serve(client net.Conn, server string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer upstream.Close()
	var silent atomic.Bool // the server's answers no longer reach the client
	answered := make(chan struct{}, 1)
	go func() {
		defer client.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := upstream.Read(buf)
			if err != nil {
				return
			}
			if silent.Load() {
				select {
				case answered <- struct{}{}:
				default:
				}
				continue
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	if err := forwardStartup(client, upstream); err != nil {
		return
	}
	claiming := false
	for {
		message, err := readMessage(client)
		if err != nil {
			return
		}
		claiming = c.claiming(message) || claiming
		ends := commits(message)
		if ends && claiming && c.armed.CompareAndSwap(true, false) {
			c.cuts.Add(1)
			if c.after {
				silent.Store(true)
				if passUntilAnswered(client, upstream, message) == nil {
					<-answered
				}
			}
			return
		}
		claiming = claiming && !ends
		if _, err := upstream.Write(message); err != nil {
			return
		}
	}
}

// claiming reports whether a message runs a statement that claims keys; it learns the names of these.
func (c *cutter) claiming(message []byte) bool {
	parts := bytes.SplitN(message[5:], []byte{0}, 3)
	switch {
	case message[0] == 'P' && len(parts) > 1 && bytes.Contains(parts[1], []byte("FROM claim_refund")):
		c.claims.Store(string(parts[0]), true)
	case message[0] == 'B' && len(parts) > 1:
		_, claims := c.claims.Load(string(parts[1]))
		return claims
	}
	return false
}

// commits tells a COMMIT that is sent as text, and one that is prepared, whose name the driver makes of its text.
func commits(message []byte) bool {
	digest := sha256.Sum256([]byte("commit"))
	switch message[0] {
	case 'Q':
		return bytes.Contains(message, []byte("commit\x00"))
	case 'B':
		return bytes.Contains(message, []byte("stmtcache_"+hex.EncodeToString(digest[:24])))
	}
	return false
}

// passUntilAnswered forwards a message, and what follows it up to the one that asks for the server's answer.
func passUntilAnswered(client io.Reader, upstream io.Writer, message []byte) error {
	for {
		if _, err := upstream.Write(message); err != nil || message[0] == 'Q' || message[0] == 'S' {
			return err
		}
		var err error
		if message, err = readMessage(client); err != nil {
			return err
		}
	}
}

// forwardStartup passes the one message that has a length but no type.
func forwardStartup(client io.Reader, upstream io.Writer) error {
	var length [4]byte
	if _, err := io.ReadFull(client, length[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:])-4)
	if _, err := io.ReadFull(client, body); err != nil {
		return err
	}
	_, err := upstream.Write(append(length[:], body...))
	return err
}

func readMessage(client io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(client, head); err != nil {
		return nil, err
	}
	message := make([]byte, 5+binary.BigEndian.Uint32(head[1:])-4)
	copy(message, head)
	_, err := io.ReadFull(client, message[5:])
	return message, err
}
