package api

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Listen is l with a last promise kept on its connections: what Go's HTTP server refuses before any handler sees it
// (a malformed request line, escape, header or Host, headers that are too large, a transfer encoding or an
// expectation that it does not know) is a problem too, with a reference that the log knows.
//
// The server writes such a refusal as one piece of plain text. That text is recognised where it leaves, and replaced;
// a handler's answer never looks like it. A request that does not arrive in time is answered by nobody: the
// connection closes.
func (a API) Listen(l net.Listener) net.Listener { return refusingListener{l, a.server} }

type refusingListener struct {
	net.Listener
	s *server
}

// Accept implements net.Listener.
func (l refusingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &refusingConn{Conn: conn, s: l.s}, nil
}

type refusingConn struct {
	net.Conn
	s       *server
	refused atomic.Bool
}

// How long, and for how many bytes of what was refused, a connection is kept for the refusal to be read: to close it
// with bytes unread resets it, and what was written last may be lost.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// Close implements net.Conn.
func (c *refusingConn) Close() error {
	if c.refused.Swap(false) && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // whatever comes
	}
	return c.Conn.Close()
}

// CloseWrite lets the server hang up without cutting its last answer off.
func (c *refusingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Write passes on what handlers say, and says the server's own refusals in problems.
func (c *refusingConn) Write(b []byte) (int, error) {
	status, reason, refused := serversRefusal(b)
	if !refused {
		return c.Conn.Write(b)
	}
	c.refused.Store(true)
	if _, err := c.Conn.Write(c.s.refusal(status, reason, c.RemoteAddr())); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ofServer is what follows the status line of a refusal that net/http writes by itself, but for an expectation's.
const ofServer = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// serversRefusal takes a refusal of the server's apart: its status, and the reason where net/http gives one.
func serversRefusal(b []byte) (status int, reason string, ok bool) {
	const version = "HTTP/1.1 "
	if len(b) < len(version)+3 || string(b[:len(version)]) != version || b[len(version)] < '4' {
		return 0, "", false
	}
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	status, err := strconv.Atoi(string(line[len(version) : len(version)+3]))
	if err != nil || !bytes.HasPrefix(b[len(line):], []byte(ofServer)) && !isExpectationFailed(status, rest) {
		return 0, "", false
	}
	_, reason, _ = strings.Cut(string(line), ": ")
	return status, reason, true
}

// isExpectationFailed reports whether the server did not know the Expect header: no handler answers 417.
func isExpectationFailed(status int, headers []byte) bool {
	return status == http.StatusExpectationFailed && !bytes.Contains(headers, []byte("Request-Id: "))
}

// refusal is the answer to a request that could not be read as HTTP. Which operation it named, if any, is not known.
func (s *server) refusal(status int, reason string, peer net.Addr) []byte {
	code, detail := codeMalformedRequest, "The request is not HTTP/1.1 as this server takes it."
	var faults []fault
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge:
		code, detail = codeRequestTooLarge, "The headers are larger than 32 KiB."
	case status == http.StatusExpectationFailed:
		faults = []fault{{"header:Expect", faultInvalid}}
	case status == http.StatusNotImplemented:
		faults = []fault{{"header:Transfer-Encoding", faultInvalid}}
	case strings.HasSuffix(reason, "Host header"):
		faults = []fault{{"header:Host", faultInvalid}}
	}
	k := kinds[code]
	p := &problem{
		Type: "urn:refundd:problem:" + code, Title: k.title, Status: status, Detail: detail, Code: code,
		MoneyMoved: unknown, NextAction: k.next, DiagnosticRef: uuid.Must(uuid.NewV7()).String(), Errors: faults,
	}
	s.metrics.requests.WithLabelValues("unknown", "other", classOf(status), code, "none").Inc()
	s.log.Info("request", slog.String("diagnostic_ref", p.DiagnosticRef), slog.String("route", "unknown"),
		slog.String("method", "other"), slog.Int("status", status), slog.String("code", code),
		slog.String("peer", peer.String()))
	body, err := encode(p)
	if err != nil {
		panic(err) // a problem holds strings and numbers alone
	}
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: application/problem+json\r\nDate: %s\r\nRequest-Id: %s\r\nX-Should-Retry: false\r\n\r\n",
		status, http.StatusText(status), len(body), time.Now().UTC().Format(http.TimeFormat), p.DiagnosticRef)
	return append([]byte(head), body...)
}
