package halfclose_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/internal/halfclose"
)

const patience = 10 * time.Second

// work is a server whose handler takes as long as the path says, or until its client leaves.
type work struct {
	addr string
	left chan string // paths whose client left
	seen chan string // paths at work
}

func serve(t *testing.T) work {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := work{listener.Addr().String(), make(chan string, 1000), make(chan string, 1000)}
	server := &http.Server{ReadHeaderTimeout: patience, ReadTimeout: time.Second, Handler: w}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(halfclose.Listener(listener)) })
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	return w
}

func (w work) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(out, "truncated", http.StatusBadRequest)
		return
	}
	w.seen <- r.URL.Path
	wait, err := time.ParseDuration(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		http.Error(out, "no duration", http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(wait):
		fmt.Fprintf(out, "done %s", body)
	case <-r.Context().Done():
		w.left <- r.URL.Path
	}
}

func dial(t *testing.T, w work) *net.TCPConn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func post(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body),
		strings.Join(headers, ""), body)
}

// answers reads every answer up to the connection's end.
func answers(t *testing.T, conn net.Conn) []string {
	t.Helper()
	var all []string
	for r := bufio.NewReader(conn); ; {
		if _, err := r.Peek(1); err == io.EOF {
			return all
		}
		a, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		body, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %d %s", a.Proto, a.StatusCode, body))
	}
}

func TestA74_AClientThatHalfClosesGetsItsAnswer(t *testing.T) {
	t.Parallel()
	w := serve(t)
	for name, c := range map[string]struct{ sends, gets string }{
		"AtOnce":        {post("/0s", "a"), "HTTP/1.1 200 done a"},
		"Soon":          {post("/20ms", "a"), "HTTP/1.1 200 done a"},
		"BetweenProbes": {post("/400ms", "a"), "HTTP/1.1 200 done a"},
		// longer than the deadline for reading a request
		"PastReads":   {post("/1500ms", "a"), "HTTP/1.1 200 done a"},
		"WithoutBody": {"GET /100ms HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 done "},
		"OldProtocol": {"GET /100ms HTTP/1.0\r\n\r\n", "HTTP/1.0 200 done "},
		"Two":         {post("/100ms", "a") + post("/200ms", "b"), "HTTP/1.1 200 done a, HTTP/1.1 200 done b"},
		"Chunked": {"POST /100ms HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
			"HTTP/1.1 200 done a"},
		"Expecting":  {post("/100ms", "a", "Expect: 100-continue\r\n"), "HTTP/1.1 100 , HTTP/1.1 200 done a"},
		"Unfinished": {"POST /0s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na", "HTTP/1.1 400 truncated\n"},
		"Nonsense":   {"\r\nhello\r\n\r\n", "HTTP/1.1 400 400 Bad Request"},
		"Nothing":    {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, w)
			if _, err := io.WriteString(conn, c.sends); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(answers(t, conn), ", "); got != c.gets {
				t.Errorf("answers %q, want %q", got, c.gets)
			}
		})
	}
}

func TestA74_AClientThatLeavesEndsItsRequest(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(conn *net.TCPConn) error{
		"Closes": func(conn *net.TCPConn) error { return conn.Close() },
		"Resets": func(conn *net.TCPConn) error {
			_ = conn.SetLinger(0)
			return conn.Close()
		},
		"HalfClosesFirst": func(conn *net.TCPConn) error {
			if err := conn.CloseWrite(); err != nil {
				return err
			}
			time.Sleep(100 * time.Millisecond)
			return conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serve(t)
			conn := dial(t, w)
			if _, err := io.WriteString(conn, post("/1h", "a")); err != nil {
				t.Fatal(err)
			}
			<-w.seen
			if err := leave(conn); err != nil {
				t.Fatal(err)
			}
			select {
			case <-w.left:
			case <-time.After(patience):
				t.Error("its request goes on")
			}
		})
	}
}

// A connection that waits for no answer is not written to: its end is its end.
func TestAnIdleConnectionThatIsClosed_EndsAtOnce(t *testing.T) {
	t.Parallel()
	w := serve(t)
	conn := dial(t, w)
	r := bufio.NewReader(conn)
	for range 2 {
		if _, err := io.WriteString(conn, post("/0s", "a")); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(a.Body)
		_ = a.Body.Close()
	}
	_ = conn.CloseWrite()
	if more, err := io.ReadAll(r); err != nil || len(more) > 0 {
		t.Errorf("then comes %q (%v)", more, err)
	}
}

// The answers to a flood of half-closed clients are whole, whenever in their course the end of their data is seen.
func TestA74_ManyHalfCloses_SpoilNoAnswer(t *testing.T) {
	t.Parallel()
	w := serve(t)
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			conn := dial(t, w)
			sends, gets := "", []string{}
			for j := range 3 {
				sends += post(fmt.Sprintf("/%dms", (i*7+j*3)%40), fmt.Sprint(i))
				gets = append(gets, fmt.Sprintf("HTTP/1.1 200 done %d", i))
			}
			_, _ = io.WriteString(conn, sends)
			time.Sleep(time.Duration(i%50) * time.Millisecond)
			_ = conn.CloseWrite()
			if got := answers(t, conn); strings.Join(got, ", ") != strings.Join(gets, ", ") {
				t.Errorf("answers %q", got)
			}
		})
	}
	group.Wait()
}

// A request that waits behind nobody's reads ends with its server too.
func TestClose_EndsAHalfClosedRequest(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := work{listener.Addr().String(), make(chan string, 1), make(chan string, 1)}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: w}
	go func() { _ = server.Serve(halfclose.Listener(listener)) }()
	conn := dial(t, w)
	_, _ = io.WriteString(conn, post("/1h", "a"))
	_ = conn.CloseWrite()
	<-w.seen
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_ = server.Shutdown(ctx)
	_ = server.Close()
	select {
	case <-w.left:
	case <-time.After(patience):
		t.Error("its request goes on")
	}
}
