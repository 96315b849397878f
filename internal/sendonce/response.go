package sendonce

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// response reads the beginning of the final response.
func (t *Transport) response(conn net.Conn, r *http.Request) (*http.Response, error) {
	limited := &limitedReader{conn, cmp.Or(t.MaxHeader, defaultMaxHeader)}
	in := bufio.NewReader(limited)
	for {
		response, err := http.ReadResponse(in, r)
		switch {
		case limited.left <= 0 && err != nil:
			return nil, fmt.Errorf("read header: %w", ErrTooLong)
		case err != nil:
			return nil, fmt.Errorf("read header: %w", noEnd(err))
		case response.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the peer switches to a protocol that was not asked for")
		case response.StatusCode >= 200:
			limited.left = cmp.Or(t.MaxBody, defaultMaxBody) - int64(in.Buffered())
			return response, nil
		}
	}
}

// noEnd is err, where a connection that ended early did not end well.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// limitedReader fails with ErrTooLong where io.LimitedReader would end: what is cut off must not look whole.
type limitedReader struct {
	r    io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, ErrTooLong
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// body ends with the connection, and names the end of its context.
type body struct {
	io.ReadCloser
	ctx   context.Context
	close func() error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // a reader's end is io.EOF itself
		err = ended(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer. What is left of the body is not read.
func (b *body) Close() error { return b.close() }

// MaxRetryAfter is the longest wait that RetryAfter believes.
const MaxRetryAfter = time.Hour

// RetryAfter is for how long a response asks to be left alone, in seconds or until a date (RFC 9110, 10.2.3), at most
// MaxRetryAfter; zero where it does not say, or makes no sense. A date counts from the response's own, whose clock it
// is.
func RetryAfter(r *http.Response) time.Duration {
	value := r.Header.Get("Retry-After")
	if seconds, ok := wholeSeconds(value); ok {
		return seconds
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(until.Sub(now), 0), MaxRetryAfter)
}

// wholeSeconds reads digits alone; any number of them.
func wholeSeconds(s string) (time.Duration, bool) {
	d := time.Duration(0)
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		d = min(10*d+time.Duration(c-'0')*time.Second, MaxRetryAfter)
	}
	return d, s != ""
}
