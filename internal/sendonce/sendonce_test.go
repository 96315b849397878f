package sendonce_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/internal/clocks"
	"refundd/internal/sendonce"
)

// peer is a server that notes every byte of every connection, beneath TLS if it speaks TLS.
type peer struct {
	*httptest.Server
	mu    sync.Mutex
	conns []*noted
}

// noted is a connection with what was read from it.
type noted struct {
	net.Conn
	of   *peer
	read [][]byte // by the peer, one element for each read
}

func (c *noted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if n > 0 {
		c.read = append(c.read, bytes.Clone(p[:n]))
	}
	return n, err
}

// listener accepts once it is let.
type listener struct {
	net.Listener
	of *peer
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	n := &noted{Conn: c, of: l.of}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.conns = append(l.of.conns, n)
	return n, nil
}

func newPeer(t *testing.T, overTLS bool, h http.HandlerFunc) (*peer, *sendonce.Transport) {
	t.Helper()
	p := &peer{Server: httptest.NewUnstartedServer(h)}
	p.Listener = listener{p.Listener, p}
	p.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	t.Cleanup(p.Close)
	if !overTLS {
		p.Start()
		return p, &sendonce.Transport{}
	}
	p.EnableHTTP2 = true // which the client must not be talked into
	p.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate())
	return p, &sendonce.Transport{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
}

// requests is how many connections there were, and how often each was read from.
func (p *peer) requests() (reads []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		reads = append(reads, len(c.read))
	}
	return reads
}

func post(ctx context.Context, t *testing.T, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k") // net/http would send such a request again
	return r
}

func roundTrip(t *testing.T, transport *sendonce.Transport, r *http.Request) (status int, body string, err error) {
	t.Helper()
	response, err := transport.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return response.StatusCode, string(all), err
}

func TestTransport_EachRequest_HasAConnectionAndOneWriteOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, overTLS := range []bool{false, true} {
		long := strings.Repeat("x", 40<<10) // more than a buffer of net/http's, and than a record of TLS
		p, transport := newPeer(t, overTLS, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Proto", r.Proto)
			_, _ = w.Write(body)
		})
		for range 3 {
			status, body, err := roundTrip(t, transport, post(t.Context(), t, p.URL, long))
			if err != nil || status != http.StatusOK || body != long {
				t.Fatalf("got %d, %d bytes, %v", status, len(body), err)
			}
		}
		if n := len(p.requests()); n != 3 {
			t.Errorf("three requests took %d connections", n)
		}
	}
}

// ahead is a moment that has passed by one clock alone.
func ahead() map[string]clocks.Moment {
	now := clocks.Now()
	hour := now.Add(time.Hour)
	return map[string]clocks.Moment{
		"monotonic clock": {Monotonic: now.Monotonic, Wall: hour.Wall},
		"wall clock":      {Monotonic: hour.Monotonic, Wall: now.Wall},
	}
}

func TestTransport_TooLate_WritesNotAByte(t *testing.T) {
	t.Parallel()
	for name, moment := range ahead() {
		for _, overTLS := range []bool{false, true} {
			served := make(chan struct{}, 1)
			p, transport := newPeer(t, overTLS, func(http.ResponseWriter, *http.Request) { served <- struct{}{} })
			_, _, err := roundTrip(t, transport, post(sendonce.NotAfter(t.Context(), moment), t, p.URL, "late"))
			if !errors.Is(err, sendonce.ErrTooLate) || !errors.Is(err, sendonce.ErrNotSent) {
				t.Errorf("%s, TLS %v: %v", name, overTLS, err)
			}
			p.Close()
			if len(served) > 0 {
				t.Errorf("%s, TLS %v: the peer got the request", name, overTLS)
			}
			if reads := p.requests(); !overTLS && slices.Max(append(reads, 0)) > 0 {
				t.Errorf("%s: the peer read from its connections %v times", name, reads)
			}
		}
	}
}

func TestTransport_InTime_IsSent(t *testing.T) {
	t.Parallel()
	p, transport := newPeer(t, false,
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	ctx := sendonce.NotAfter(t.Context(), clocks.Now().Add(time.Hour))
	if status, _, err := roundTrip(t, transport, post(ctx, t, p.URL, "")); err != nil || status != http.StatusCreated {
		t.Errorf("got %d, %v", status, err)
	}
}

// The handshake is held until the moment has passed: the connection that is there then is of no use.
func TestTransport_HandshakeOutlastsTheMoment_WritesNothingAfterIt(t *testing.T) {
	t.Parallel()
	served := make(chan struct{}, 1)
	p, transport := newPeer(t, true, func(http.ResponseWriter, *http.Request) { served <- struct{}{} })
	shaking, release := make(chan struct{}), make(chan struct{})
	p.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		close(shaking)
		<-release
		return nil, nil
	}
	const left = 200 * time.Millisecond
	go func() {
		<-shaking
		time.Sleep(2 * left)
		close(release)
	}()
	ctx := sendonce.NotAfter(t.Context(), clocks.Now().Add(left))
	_, _, err := roundTrip(t, transport, post(ctx, t, p.URL, "late"))
	if !errors.Is(err, sendonce.ErrTooLate) || !errors.Is(err, sendonce.ErrNotSent) {
		t.Errorf("got %v", err)
	}
	p.Close()
	if len(served) > 0 {
		t.Error("the peer got the request")
	}
}

func TestTransport_BeforeTheFirstByte_IsNotSent(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a handshake with it never ends
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	stranger, _ := newPeer(t, true, func(http.ResponseWriter, *http.Request) { t.Error("the peer got the request") })
	for name, r := range map[string]*http.Request{
		"nobody listens":        post(t.Context(), t, "http://"+closed.Addr().String(), ""),
		"the context is over":   post(over, t, stranger.URL, ""),
		"the handshake hangs":   post(short, t, "https://"+silent.Addr().String(), ""),
		"a certificate of none": post(t.Context(), t, stranger.URL, ""),
		"a scheme of its own":   post(t.Context(), t, "ftp"+strings.TrimPrefix(stranger.URL, "https"), ""),
		"a body that breaks off": {Method: "POST", URL: post(t.Context(), t, stranger.URL, "").URL, ContentLength: 9,
			Body: http.NoBody},
	} {
		_, _, err := roundTrip(t, &sendonce.Transport{}, r)
		if !errors.Is(err, sendonce.ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
		if ended := r.Context().Err(); ended != nil && !errors.Is(err, ended) {
			t.Errorf("%s: %v does not say %v", name, err, ended)
		}
	}
}

// raw answers every request of its connections with the same bytes, and closes; it counts the requests.
func raw(t *testing.T, answer func(io.Writer)) (url string, requests func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { l.Close() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				if got, err := c.Read(make([]byte, 64<<10)); got == 0 || err != nil {
					return
				}
				mu.Lock()
				n++
				mu.Unlock()
				answer(c)
			})
		}
	})
	return "http://" + l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// endless writes s until the client has had enough.
func endless(w io.Writer, s string) {
	many := strings.Repeat(s, 1+4096/len(s))
	for {
		if _, err := io.WriteString(w, many); err != nil {
			return
		}
	}
}

func TestA66_WhateverAPeerAnswers_IsBoundedAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		answer func(io.Writer)
		want   error
	}{
		"no answer":   {func(io.Writer) {}, io.ErrUnexpectedEOF},
		"half a line": {func(w io.Writer) { _, _ = io.WriteString(w, "HTTP/1.1 20") }, nil},
		"another protocol": {func(w io.Writer) { _, _ = io.WriteString(w, "HTTP/1.1 101 Up\r\nUpgrade: x\r\n\r\n") },
			nil},
		"a body cut short": {func(w io.Writer) { _, _ = io.WriteString(w, ok+"Content-Length: 9\r\n\r\n{}") },
			io.ErrUnexpectedEOF},
		"chunks cut short": {func(w io.Writer) {
			_,
				_ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
		}, io.ErrUnexpectedEOF},
		"chunks of no number": {func(w io.Writer) {
			_,
				_ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n")
		}, nil},
		"one endless line": {func(w io.Writer) { endless(w, "x") }, sendonce.ErrTooLong},
		"endless headers": {func(w io.Writer) { _, _ = io.WriteString(w, ok); endless(w, "a: b\r\n") },
			sendonce.ErrTooLong},
		"endless 1xx": {func(w io.Writer) { endless(w, "HTTP/1.1 103 Early Hints\r\n\r\n") },
			sendonce.ErrTooLong},
		"an endless body": {func(w io.Writer) { _, _ = io.WriteString(w, ok+"\r\n"); endless(w, " ") },
			sendonce.ErrTooLong},
		"a body of 60 MB": {func(w io.Writer) {
			_,
				_ = io.WriteString(w, ok+"Content-Length: 60000000\r\n\r\n")
			endless(w, " ")
		}, sendonce.ErrTooLong},
		"endless small chunks": {func(w io.Writer) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n")
			endless(w, "1\r\n \r\n")
		}, sendonce.ErrTooLong},
		"endless trailers": {func(w io.Writer) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n0\r\n")
			endless(w, "a: b\r\n")
		}, nil},
		"a chunk's endless name": {func(w io.Writer) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n1;")
			endless(w, "x")
		}, nil},
		"a slow drip": {func(w io.Writer) {
			for _, err := io.WriteString(w, ok); err == nil; _, err = io.WriteString(w, "a: b\r\n") {
				time.Sleep(20 * time.Millisecond)
			}
		}, context.DeadlineExceeded},
		"a slow drip of a body": {func(w io.Writer) {
			for _, err := io.WriteString(w, ok+"\r\n"); err == nil; _, err = io.WriteString(w, " ") {
				time.Sleep(20 * time.Millisecond)
			}
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := raw(t, c.answer)
			wait := 20 * time.Second
			if errors.Is(c.want, context.DeadlineExceeded) {
				wait = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			transport := &sendonce.Transport{MaxHeader: 8 << 10, MaxBody: 64 << 10}
			_, body, err := roundTrip(t, transport, post(ctx, t, url, "{}"))
			if err == nil || errors.Is(err, sendonce.ErrNotSent) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if len(body) > 64<<10 {
				t.Errorf("read %d bytes", len(body))
			}
			if n := requests(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestTransport_WhatIsCompressed_StaysSo(t *testing.T) {
	t.Parallel()
	url, _ := raw(t, func(w io.Writer) {
		_, _ = io.WriteString(w, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbomb")
	})
	if status, body, err := roundTrip(t, &sendonce.Transport{}, post(t.Context(), t, url, "")); err != nil ||
		status != 200 || body != "bomb" {
		t.Errorf("got %d %q, %v", status, body, err)
	}
}

func TestRetryAfter_IsBoundedAndNeverNonsense(t *testing.T) {
	t.Parallel()
	const date = "Tue, 01 Dec 2026 00:00:00 GMT"
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-7": 0, "+7": 0, "7.5": 0, "7s": 0, "soon": 0, "1e3": 0,
		"3600": time.Hour, "3601": time.Hour, "99999999999999999999999999": time.Hour,
		"Tue, 01 Dec 2026 00:02:00 GMT": 2 * time.Minute,
		"Tue, 01 Dec 2126 00:00:00 GMT": time.Hour,
		"Fri, 31 Dec 9999 23:59:59 GMT": time.Hour,
		"Mon, 30 Nov 2026 23:00:00 GMT": 0,
		"Tuesday":                       0,
	} {
		r := &http.Response{Header: http.Header{"Retry-After": {value}, "Date": {date}}}
		if got := sendonce.RetryAfter(r); got != want {
			t.Errorf("Retry-After: %s is %v, want %v", value, got, want)
		}
	}
	r := &http.Response{Header: http.Header{"Retry-After": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}}
	if got := sendonce.RetryAfter(r); got < 9*time.Minute || got > 11*time.Minute {
		t.Errorf("in ten minutes, by our clock, is %v", got)
	}
}

// A transport that is told no bounds has some.
func TestA66_BoundsThatAreNotSaid_AreThere(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(io.Writer){
		"endless headers": func(w io.Writer) {
			_,
				_ = io.WriteString(w, "HTTP/1.1 200 OK\r\n")
			endless(w, "a: b\r\n")
		},
		"an endless body": func(w io.Writer) { _, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n\r\n"); endless(w, " ") },
	} {
		url, _ := raw(t, answer)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, body, err := roundTrip(t, &sendonce.Transport{}, post(ctx, t, url, "{}"))
		cancel()
		if !errors.Is(err, sendonce.ErrTooLong) || len(body) > 1<<20 {
			t.Errorf("%s: %d bytes, %v", name, len(body), err)
		}
	}
}
