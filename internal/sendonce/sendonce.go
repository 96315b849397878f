// Package sendonce is an http.RoundTripper for requests that must not be made twice, and not too late: it knows nothing
// of what they ask for.
//
// A request has a connection of its own and is written once; nothing here sends again, follows, decompresses or reuses.
// What waits comes first: the dial, the TLS handshake, the encryption of the whole request. Then the clocks are asked,
// and the request goes into the kernel as a single write. NotAfter names the moment after which no byte of it is
// written, by the monotonic clock and by the wall clock: a process that was stopped, or whose machine was suspended,
// anywhere in those waits finds itself too late. The deadline of the request's context counts as such a moment too,
// whether or not its timer has run.
//
// An error that is ErrNotSent tells that not a byte of the request was handed to the kernel. Any other may have reached
// the peer. Response headers and bodies are bounded in bytes as they come over the wire, so that what a peer sends
// costs memory and time within these bounds and the context's deadline.
//
// What remains: a process that is stopped between the last look at the clocks and write(2), a few instructions later,
// writes when it wakes. No program can close that gap from its own side. It is closed by the peer, which hangs up on a
// connection that brings no request in time (providers do so after seconds to minutes): the late bytes then meet a
// connection that is closed. Hence the connection of its own; a kept one is allowed to be silent for far longer. For a
// second effect, a peer would have to wait on a silent new connection for longer than it remembers an idempotency key.
package sendonce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"refundd/internal/clocks"
)

// The errors of a RoundTrip and of a response's body.
var (
	// ErrNotSent reports that not a byte of the request was written.
	ErrNotSent = errors.New("request not sent")
	// ErrTooLate reports that the request's moment had passed before it could be written. It is ErrNotSent too.
	ErrTooLate = errors.New("too late to send")
	// ErrTooLong reports a response beyond the transport's bounds.
	ErrTooLong = errors.New("response too long")
)

// The bounds of a Transport whose fields say nothing, in bytes on the wire.
const (
	defaultMaxHeader = 16 << 10
	defaultMaxBody   = 1 << 20
)

// Transport sends each request once. The zero value is ready; it may be used concurrently.
type Transport struct {
	TLS       *tls.Config // optional: for https
	MaxHeader int64       // of a response, 1xx ones included; default 16 KiB
	MaxBody   int64       // of a response, with its chunks' overhead; default 1 MiB
}

type notAfterKey struct{}

// NotAfter is a context whose requests are not begun once m has passed.
func NotAfter(ctx context.Context, m clocks.Moment) context.Context {
	return context.WithValue(ctx, notAfterKey{}, m)
}

// limits are the moments after which a request of ctx is too late.
func limits(ctx context.Context) []clocks.Moment {
	var moments []clocks.Moment
	if m, ok := ctx.Value(notAfterKey{}).(clocks.Moment); ok {
		moments = append(moments, m)
	}
	if deadline, ok := ctx.Deadline(); ok {
		moments = append(moments, clocks.Deadline(deadline))
	}
	return moments
}

// RoundTrip sends r and answers the beginning of its response. Closing the response's body closes the connection.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	w := &wire{limits: limits(ctx)} // before anything waits
	request, err := serialized(r)
	if err != nil {
		return nil, notSent(ctx, err)
	}
	if w.Conn, err = (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", address(r)); err != nil {
		return nil, notSent(ctx, fmt.Errorf("dial: %w", err))
	}
	// The end of ctx interrupts whatever waits for the peer.
	detach := context.AfterFunc(ctx, func() { _ = w.SetDeadline(time.Unix(1, 0)) })
	response, err := t.exchange(ctx, w, r, request)
	if err != nil {
		detach()
		_ = w.Close()
		if !w.wrote {
			return nil, notSent(ctx, err)
		}
		return nil, ended(ctx, err)
	}
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, close: func() error { detach(); return w.Close() }}
	return response, nil
}

// exchange writes the request on a new connection and reads the beginning of the response.
func (t *Transport) exchange(ctx context.Context, w *wire, r *http.Request, request []byte) (*http.Response, error) {
	var conn net.Conn = w
	if r.URL.Scheme == "https" {
		client := tls.Client(w, t.tlsConfig(r.URL.Hostname()))
		if err := client.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("handshake: %w", err)
		}
		conn = client
	}
	w.hold()
	if _, err := conn.Write(request); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	if err := w.send(); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return t.response(conn, r)
}

// tlsConfig speaks HTTP/1.1 alone: HTTP/2 has resends of its own.
func (t *Transport) tlsConfig(host string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.TLS != nil {
		config = t.TLS.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	config.NextProtos = []string{"http/1.1"}
	return config
}

// notSent marks err as one that came before the first byte.
func notSent(ctx context.Context, err error) error {
	return fmt.Errorf("%w: %w", ErrNotSent, ended(ctx, err))
}

// ended names the end of ctx as the cause of what it interrupted.
func ended(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
