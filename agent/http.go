package agent

import (
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxRequest bounds a request of the protocol, in bytes.
const maxRequest = 256 << 10

// Handler serves the tools over streamable HTTP. Each request brings its caller's own API key as a bearer token, which
// is passed on; the handler keeps no session, so that any replica answers any request. Pages of other origins are
// refused.
func (t *Tools) Handler() http.Handler {
	server := t.Server() // one for all: to resolve the tools' schemas takes milliseconds
	serve := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxRequest, Logger: nil})
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if _, ok := bearer(r.Header); !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "An API key of refundd is required as a bearer token.", http.StatusUnauthorized)
			return
		}
		serve.ServeHTTP(w, r)
	}))
}

// bearer returns the one bearer token of a request.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, key, ok := strings.Cut(values[0], " ")
	return key, ok && strings.EqualFold(scheme, "Bearer") && key != "" && !strings.ContainsAny(key, " \t\r\n")
}
