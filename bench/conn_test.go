package bench

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// answering is a connection to a peer that answers one request with the pieces, one write each.
func answering(t *testing.T, pieces ...string) *conn {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	go func() {
		_, _ = io.ReadFull(far, make([]byte, len("request"))) // the test ends by the answer
		for _, piece := range pieces {
			_, _ = io.WriteString(far, piece)
		}
		far.Close()
	}()
	if err := near.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &conn{Conn: near, buffer: make([]byte, 64)}
}

func TestExchange_ReadsAnswersHoweverTheyArrive(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 500) // more than the buffer
	for name, pieces := range map[string][]string{
		"at once":        {"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n" + body},
		"in small parts": {"HTTP/1.1 201 Cre", "ated\r\ncontent-len", "gth:500\r", "\n\r", "\n" + body[:7], body[7:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := answering(t, pieces...).exchange([]byte("request"))
			if err != nil || r.status != 201 || !bytes.Equal(r.body, []byte(body)) || r.last {
				t.Errorf("read %d, %d bytes, %t: %v", r.status, len(r.body), r.last, err)
			}
		})
	}
}

func TestExchange_RefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no length":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"cut short":   "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nxx",
		"no HTTP":     "SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n",
		"nothing":     "",
		"bad length":  "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
		"half a head": "HTTP/1.1 200 OK\r\nContent-Le",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r, err := answering(t, text).exchange([]byte("request")); err == nil {
				t.Errorf("took it for %d with %q", r.status, r.body)
			}
		})
	}
}

func TestExchange_SeesThatTheServerHangsUp(t *testing.T) {
	t.Parallel()
	r, err := answering(t, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").exchange([]byte("request"))
	if err != nil || !r.last || r.status != 503 {
		t.Errorf("read %d, %t: %v", r.status, r.last, err)
	}
}

func TestMember_ReadsProblemCodes(t *testing.T) {
	t.Parallel()
	body := []byte(`{"type":"urn:refundd:problem:overloaded","code":"overloaded","isRetryable":true}`)
	if got := member(body, "code"); got != "overloaded" {
		t.Errorf("code is %q", got)
	}
	if got := member(body, "absent"); got != "" {
		t.Errorf("absent is %q", got)
	}
}
