// Package console is the page for the people who are paged: which refunds wait, what the provider shows, what happened
// in which order, and the one decision to take.
//
// Its promises: it has no power of its own, being a client of the public API with the key that its reader typed; it is
// files alone, and keeps nothing on the server; nothing is loaded from elsewhere, no cookie is set, and the policy that
// each answer carries lets a browser run nothing but these files. What of them others wrote stands in static/vendor
// with its licences.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
)

// Path is where the console is.
const Path = "/console/"

//go:embed static
var static embed.FS

// policy lets a page use these files and this service's API. Scripts make no script of a string (Trusted Types).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// file is one file, as it is and compressed.
type file struct {
	mediaType string
	etag      string
	plain     []byte
	zipped    []byte // empty where that is no shorter
}

type handler map[string]file // by path below Path

// New returns the handler of Path and of the same without its slash. digits are how many decimals each currency has.
func New(digits map[string]int) (http.Handler, error) {
	h := handler{}
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		return h.add(strings.TrimPrefix(name, "static/"), content)
	})
	if err == nil {
		err = h.add("currencies.js", currencies(digits))
	}
	if err != nil {
		return nil, fmt.Errorf("read the console's files: %w", err)
	}
	h[""] = h["index.html"]
	delete(h, "index.html")
	return h, nil
}

// currencies is the module that says how many decimals each currency has: one table for the service and its page.
func currencies(digits map[string]int) []byte {
	var b bytes.Buffer
	b.WriteString("// The decimals of each currency, as the service knows them.\nexport const digits = {")
	for _, code := range slices.Sorted(maps.Keys(digits)) {
		fmt.Fprintf(&b, " %s: %d,", code, digits[code])
	}
	b.WriteString(" };\n")
	return b.Bytes()
}

// mediaTypes are said here, not by the machine's own table.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".LICENSE": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8",
}

func (h handler) add(name string, content []byte) error {
	f := file{mediaType: mediaTypes[path.Ext(name)], plain: content}
	if f.mediaType == "" {
		return errors.New(name + " has no media type")
	}
	sum := sha256.Sum256(content)
	f.etag = hex.EncodeToString(sum[:12])
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if zipped.Len() < len(content) {
		f.zipped = zipped.Bytes()
	}
	h[name] = f
	return nil
}

// ServeHTTP answers one file. It is asked for anew each time, so that a page never mixes two versions; what the browser
// has already is not sent again.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == Path {
		head.Set("Location", Path)
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	f, known := h[strings.TrimPrefix(r.URL.Path, Path)]
	if !known {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	f.serve(w, r)
}

func (f file) serve(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	body, tag := f.plain, `"`+f.etag+`"`
	if len(f.zipped) > 0 {
		head.Set("Vary", "Accept-Encoding")
		if takesGzip(r.Header.Get("Accept-Encoding")) {
			body, tag = f.zipped, `"`+f.etag+`-gzip"`
			head.Set("Content-Encoding", "gzip")
		}
	}
	head.Set("Content-Type", f.mediaType)
	head.Set("ETag", tag)
	for known := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(known), "W/") == tag {
			head.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	head.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // who has left is not told anything
	}
}

// takesGzip reports whether a client says that it takes gzip, and not with a quality of nothing.
func takesGzip(accepts string) bool {
	for one := range strings.SplitSeq(accepts, ",") {
		coding, params, err := mime.ParseMediaType(strings.TrimSpace(one))
		if err == nil && coding == "gzip" {
			return strings.Trim(params["q"], "0.") != "" || params["q"] == ""
		}
	}
	return false
}

// Over serves the console in front of api, which answers everything else.
func Over(api, console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, Path) || r.URL.Path+"/" == Path {
			console.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}
