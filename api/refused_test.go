package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// raw sends bytes as they are and reads the one answer.
func (s *service) raw(t *testing.T, sent string) answered {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(sent, " ")
	r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.80q: no answer: %v", sent, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%.80q: %v", sent, err)
	}
	a := answered{status: r.StatusCode, header: r.Header, raw: string(body)}
	if err := json.Unmarshal(body, &a.body); err != nil && method != http.MethodHead {
		t.Errorf("%.80q answers no JSON: %d %q", sent, r.StatusCode, body)
	}
	return a
}

// TestA76_WhatTheServerRefusesItself_IsAProblem sends what no handler of ours is ever shown.
func TestA76_WhatTheServerRefusesItself_IsAProblem(t *testing.T) {
	t.Parallel()
	s := start(t)
	get := func(target string, headers ...string) string {
		return "GET " + target + " HTTP/1.1\r\n" + strings.Join(append(headers, "Host: h"), "\r\n") + "\r\n\r\n"
	}
	for name, c := range map[string]struct {
		sent    string
		status  int
		code    string
		pointer string
	}{
		"an escape that is none": {get("/v1/orders/%zz"), 400, codeMalformedRequest, ""},
		"half an escape":         {get("/v1/refunds/k%"), 400, codeMalformedRequest, ""},
		"a header too large": {get("/healthz", "X: "+strings.Repeat("x", 64<<10)), 431,
			codeRequestTooLarge, ""},
		"headers too many": {get("/healthz", strings.Repeat("X: x\r\n", 20<<10)+"Y: y"), 431,
			codeRequestTooLarge, ""},
		"a path too long": {get("/" + strings.Repeat("x", 64<<10)), 431, codeRequestTooLarge, ""},
		"no Host": {"GET /healthz HTTP/1.1\r\n\r\n", 400, codeMalformedRequest,
			"header:Host invalid"},
		"a bad Host": {"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", 400, codeMalformedRequest,
			"header:Host invalid"},
		"two Hosts": {"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400,
			codeMalformedRequest, ""},
		"a space in a header's name": {get("/healthz", "X Y: z"), 400, codeMalformedRequest, ""},
		"a folded header": {"GET /healthz HTTP/1.1\r\n X: z\r\nHost: h\r\n\r\n", 400,
			codeMalformedRequest, ""},
		"a control in a header": {get("/healthz", "X: a\x01b"), 400, codeMalformedRequest, ""},
		"a transfer encoding": {get("/healthz", "Transfer-Encoding: gzip"), 501, codeMalformedRequest,
			"header:Transfer-Encoding invalid"},
		"two lengths": {get("/healthz", "Content-Length: 1", "Content-Length: 2"), 400,
			codeMalformedRequest, ""},
		"a length that is none": {get("/healthz", "Content-Length: x"), 400, codeMalformedRequest, ""},
		"an expectation": {get("/healthz", "Expect: miracles"), 417, codeMalformedRequest,
			"header:Expect invalid"},
		"HTTP/3.0":  {"GET /healthz HTTP/3.0\r\nHost: h\r\n\r\n", 505, codeMalformedRequest, ""},
		"no HTTP":   {"EHLO mail.example\r\n\r\n", 400, codeMalformedRequest, ""},
		"no method": {"/healthz\r\n\r\n", 400, codeMalformedRequest, ""},
		"TLS": {"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", 400,
			codeMalformedRequest, ""},
		"a refused body, still coming": {"POST /v1/refunds%zz HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" +
			strings.Repeat("x", 60000), 400, codeMalformedRequest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := s.raw(t, c.sent)
			if a.status != c.status || a.text("code") != c.code ||
				a.header.Get("Content-Type") != "application/problem+json" ||
				a.text("money_moved") != "unknown" || a.text("next_action") != nextFix ||
				a.body["isRetryable"] != false ||
				a.header.Get("X-Should-Retry") != "false" || a.body["status"] != float64(c.status) {
				t.Errorf("%d %v %s", a.status, a.header, a.raw)
			}
			if got := strings.Join(a.errorsOf(), ", "); got != c.pointer {
				t.Errorf("errors %q, want %q", got, c.pointer)
			}
			ref := a.text("diagnostic_ref")
			if ref == "" || a.header.Get("Request-Id") != ref || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("reference %q, headers %v", ref, a.header)
			}
			if line := s.log.line(t, ref); !strings.Contains(line, `"peer":"127.0.0.1:`) {
				t.Errorf("logged as %s", line)
			}
		})
	}
}

// TestA76_RequestsInOtherForms_AreAnsweredByARoute has the forms that the server passes on.
func TestA76_RequestsInOtherForms_AreAnsweredByARoute(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		sent   string
		status int
		says   string
	}{
		"HTTP/1.0":         {"GET /healthz HTTP/1.0\r\n\r\n", 200, `"ok"`},
		"an absolute URI":  {"GET http://elsewhere.example/healthz HTTP/1.1\r\nHost: h\r\n\r\n", 200, `"ok"`},
		"OPTIONS *":        {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 404, `"not_found"`},
		"CONNECT":          {"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 404, `"not_found"`},
		"HTTP/2's preface": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, `"not_found"`},
		"100-continue": {"POST /v1/refunds HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
			401,
			`"unauthenticated"`},
		"HEAD of no route": {"HEAD /nowhere HTTP/1.1\r\nHost: h\r\n\r\n", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := s.raw(t, c.sent)
			if a.status != c.status || !strings.Contains(a.raw, c.says) || a.header.Get("Request-Id") == "" {
				t.Errorf("%d %v %s", a.status, a.header, a.raw)
			}
		})
	}
}

// TestServersRefusal_IsToldFromAHandlersAnswer has what must pass as it is.
func TestServersRefusal_IsToldFromAHandlersAnswer(t *testing.T) {
	t.Parallel()
	for _, b := range []string{
		"", "HTTP/1.1 ", "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 400 Bad Request\r\nCache-Control: no-store\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n", `{"detail":"HTTP/1.1 400 Bad Request"}`,
	} {
		if status, reason, ok := serversRefusal([]byte(b)); ok {
			t.Errorf("%q is taken for a refusal: %d %q", b, status, reason)
		}
	}
}
