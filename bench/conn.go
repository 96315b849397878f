package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"
)

// address is where a target is reached.
type address struct {
	host, hostport string
	secure         bool
}

func parseAddress(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || (u.Path != "" && u.Path != "/") ||
		u.User != nil {
		return address{}, fmt.Errorf("a target is of the form http://host:port, not %q", text)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return address{host: u.Host, hostport: net.JoinHostPort(u.Hostname(), port), secure: u.Scheme == "https"}, nil
}

// conn is one HTTP/1.1 connection with one request under way at most. It knows as much of HTTP as a service that states
// the length of its answers needs.
type conn struct {
	net.Conn
	buffer []byte // of one answer
}

const dialTimeout = 10 * time.Second

func dial(ctx context.Context, a address, deadline time.Time) (*conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	c, err := dialer.DialContext(ctx, "tcp", a.hostport)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if a.secure {
		host, _, _ := net.SplitHostPort(a.hostport) // which JoinHostPort made
		c = tls.Client(c, &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	}
	if err := c.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{Conn: c, buffer: make([]byte, 8<<10)}, nil
}

// response is an answer; its body is valid until the next one.
type response struct {
	status int
	body   []byte
	last   bool // the server closes the connection
}

var errAnswer = errors.New("not an HTTP/1.1 answer with a Content-Length")

// exchange sends a request and reads its answer. After an error the connection is of no more use.
func (c *conn) exchange(request []byte) (response, error) {
	if _, err := c.Write(request); err != nil {
		return response{}, err
	}
	have, head := 0, -1
	for head < 0 {
		n, err := c.more(have)
		if err != nil {
			return response{}, err
		}
		from := max(have-3, 0)
		have += n
		if i := bytes.Index(c.buffer[from:have], []byte("\r\n\r\n")); i >= 0 {
			head = from + i
		}
	}
	r, length, err := parseHead(c.buffer[:head+2])
	if err != nil {
		return response{}, err
	}
	body := head + 4
	for have < body+length {
		n, err := c.more(have)
		if err != nil {
			return response{}, err
		}
		have += n
	}
	r.body = c.buffer[body : body+length]
	return r, nil
}

func (c *conn) more(have int) (int, error) {
	if have == len(c.buffer) {
		if have >= 1<<20 {
			return 0, errors.New("an answer of more than 1 MiB")
		}
		c.buffer = append(c.buffer, make([]byte, have)...)
	}
	return c.Read(c.buffer[have:])
}

// parseHead reads status line and headers, each ended by CRLF.
func parseHead(head []byte) (r response, length int, err error) {
	if len(head) < 14 || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return r, 0, errAnswer
	}
	for _, digit := range head[9:12] {
		r.status = 10*r.status + int(digit-'0')
	}
	length = -1
	if r.status == 204 || r.status == 304 {
		length = 0
	}
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return r, 0, errAnswer
			}
		case len(name) == len("Connection") && bytes.EqualFold(name, []byte("Connection")):
			r.last = bytes.EqualFold(bytes.TrimSpace(value), []byte("close"))
		}
	}
	if length < 0 {
		return r, 0, errAnswer
	}
	return r, length, nil
}

// member is the text of a JSON string member that appears once and holds no escapes, such as a problem's code.
func member(body []byte, name string) string {
	_, after, found := bytes.Cut(body, []byte(`"`+name+`":"`))
	if !found {
		return ""
	}
	value, _, _ := bytes.Cut(after, []byte(`"`))
	return string(value)
}
