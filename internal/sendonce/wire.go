package sendonce

import (
	"bytes"
	"fmt"
	"net"
	"net/http"

	"refundd/internal/clocks"
	"refundd/internal/failpoint"
)

// wire is the connection beneath TLS, if there is TLS. From hold to send it keeps what is written to it, which is the
// request as the peer will see it; before and after, bytes pass.
type wire struct {
	net.Conn
	limits []clocks.Moment
	held   *bytes.Buffer // nil while bytes pass
	wrote  bool          // perhaps a byte of the request
}

func (w *wire) hold() { w.held = &bytes.Buffer{} }

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	if w.held != nil {
		return w.held.Write(p)
	}
	return w.Conn.Write(p)
}

// send asks the clocks, and hands what is held to the kernel in one write. Between the two stands nothing.
func (w *wire) send() error {
	request := w.held.Bytes()
	w.held = nil
	failpoint.Reach("wire.connected")
	for _, m := range w.limits {
		if m.Passed() {
			return ErrTooLate
		}
	}
	w.wrote = true
	failpoint.Reach("wire.checked")
	_, err := w.Conn.Write(request)
	return err
}

// serialized is r as HTTP/1.1, for a connection that ends with it. It reads and closes r's body.
func serialized(r *http.Request) ([]byte, error) {
	if r.URL.Scheme != "http" && r.URL.Scheme != "https" {
		return nil, fmt.Errorf("scheme %q is neither http nor https", r.URL.Scheme)
	}
	last := r.WithContext(r.Context())
	last.Close = true
	var b bytes.Buffer
	if err := last.Write(&b); err != nil {
		return nil, fmt.Errorf("serialize: %w", err)
	}
	return b.Bytes(), nil
}

// address is where r goes, with the port that its scheme implies.
func address(r *http.Request) string {
	port := r.URL.Port()
	if port == "" {
		port = r.URL.Scheme // net knows http and https by name
	}
	return net.JoinHostPort(r.URL.Hostname(), port)
}
