package blackbox

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"refundd/test/harness"
)

// TestA76_WhatNoRouteSees_IsAProblemOfServeToo sends a running serve what its HTTP server refuses by itself.
func TestA76_WhatNoRouteSees_IsAProblemOfServeToo(t *testing.T) {
	t.Parallel()
	server := harness.Shared(t).Servers[0]
	for name, c := range map[string]struct {
		sent   string
		status int
		code   string
	}{
		"an escape that is none": {"GET /v1/orders/%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400, "malformed_request"},
		"headers too large": {"GET /healthz HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
			431, "request_too_large"},
		"no Host": {"GET /healthz HTTP/1.1\r\n\r\n", 400, "malformed_request"},
		"an expectation": {"GET /healthz HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", 417,
			"malformed_request"},
		"OPTIONS *": {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 404, "not_found"},
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.sent); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: no answer: %v", name, err)
			_ = conn.Close()
			continue
		}
		body, err := io.ReadAll(r.Body)
		_ = conn.Close()
		a := harness.Answer{Status: r.StatusCode, Header: r.Header, Body: body}
		p := harness.Read[harness.Problem](t, a)
		if err != nil || a.Status != c.status || p.Code != c.code || p.DiagnosticRef == "" ||
			p.DiagnosticRef != r.Header.Get("Request-Id") {
			t.Errorf("%s: %d %s (%v)", name, a.Status, body, err)
		}
	}
}
