package console_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"refundd/console"
)

func serve(t *testing.T) *httptest.Server {
	t.Helper()
	page, err := console.New(map[string]int{"JPY": 0, "KWD": 3, "USD": 2})
	if err != nil {
		t.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s := httptest.NewServer(console.Over(api, page))
	t.Cleanup(s.Close)
	return s
}

// ask sends one request and reads its answer; headers are pairs.
func ask(t *testing.T, s *httptest.Server, method, path string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "identity")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, body
}

func TestConsole_EveryAnswerCarriesThePolicy(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for path, status := range map[string]int{
		"/console/": 200, "/console": 301, "/console/app.js": 200, "/console/vendor/uplot.js": 200, "/console/pages/now.js": 200,
		"/console/nothing": 404, "/console/../console/": 404, "/console/vendor/": 404, "/console/index.html": 404, "/console/static/app.js": 404,
		"/": 418, "/v1/me": 418, "/consoles": 418, "/consolE/": 418,
	} {
		answer, _ := ask(t, s, http.MethodGet, path)
		if answer.StatusCode != status {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, status)
		}
		if status == http.StatusTeapot {
			continue
		}
		h := answer.Header
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
			"base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Cache-Control") != "no-cache" || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		if answer, _ := ask(t, s, method, "/console/"); answer.StatusCode != http.StatusMethodNotAllowed ||
			answer.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, answer.StatusCode)
		}
	}
	if answer, body := ask(t, s, http.MethodHead, "/console/"); answer.StatusCode != 200 || len(body) != 0 ||
		answer.ContentLength < 100 {
		t.Errorf("HEAD: %d, %d of %d bytes", answer.StatusCode, len(body), answer.ContentLength)
	}
	if answer, _ := ask(t, s, http.MethodGet, "/console"); answer.Header.Get("Location") != "/console/" {
		t.Errorf("/console leads to %q", answer.Header.Get("Location"))
	}
}

func TestConsole_CompressesAndSendsNothingTwice(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, plain := ask(t, s, http.MethodGet, "/console/app.js")
	zipped, body := ask(t, s, http.MethodGet, "/console/app.js", "Accept-Encoding", "br;q=1, gzip;q=0.8")
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if same, err := io.ReadAll(r); err != nil || !bytes.Equal(same, plain) || len(body) > len(plain)/2 {
		t.Errorf("%d bytes of %d, %v", len(body), len(plain), err)
	}
	if _, body := ask(t, s, http.MethodGet, "/console/app.js", "Accept-Encoding",
		"gzip;q=0"); !bytes.Equal(body, plain) {
		t.Error("compressed for who does not take it")
	}
	tag := zipped.Header.Get("ETag")
	again, body := ask(t, s, http.MethodGet, "/console/app.js", "Accept-Encoding", "gzip", "If-None-Match",
		`"other", W/`+tag)
	if again.StatusCode != http.StatusNotModified || len(body) != 0 ||
		again.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("again: %d, %d bytes", again.StatusCode, len(body))
	}
	if other, _ := ask(t, s, http.MethodGet, "/console/app.js",
		"If-None-Match", tag); other.StatusCode != http.StatusOK {
		t.Errorf("the tag of another encoding: %d", other.StatusCode)
	}
}

// foreign is an address that leads elsewhere; elsewhere is what loads one. inline is a script or a style within the
// page.
var (
	elsewhere = regexp.MustCompile(`(?i)(src|href)="(https?:)?//|import\(?\s*['"]https?:|url\(\s*['"]?(https?:)?//`)
	inline    = regexp.MustCompile(`(?i)<script(\s[^>]*)?>[^<]|<style|\sstyle=|\son[a-z]+="|srcset|dangerouslySetInnerHTML|innerHTML`)
)

func TestConsole_LoadsNothingFromElsewhere_AndHasNothingInline(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, html := ask(t, s, http.MethodGet, "/console/")
	seen := map[string]bool{}
	links := regexp.MustCompile(`(?:src|href)="([^"]+)"|(?:from|import\()\s*'([^']+)'`)
	var follow func(path string, text []byte)
	follow = func(path string, text []byte) {
		if elsewhere.Match(text) || !strings.Contains(path, "/vendor/") && inline.Match(text) {
			t.Errorf("%s: %q %q", path, elsewhere.Find(text), inline.Find(text))
		}
		for _, m := range links.FindAllStringSubmatch(string(text), -1) {
			next := m[1] + m[2]
			if strings.HasPrefix(next, "#") || strings.HasPrefix(next, "$") || strings.Contains(path, "/vendor/") {
				continue
			}
			at, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			u, err := at.URL.Parse(next)
			if err != nil || seen[u.Path] {
				continue
			}
			seen[u.Path] = true
			answer, body := ask(t, s, http.MethodGet, u.Path)
			if answer.StatusCode != http.StatusOK || !strings.HasPrefix(u.Path, console.Path) {
				t.Errorf("%s leads to %s: %d", path, u, answer.StatusCode)
			}
			follow(u.Path, body)
		}
	}
	follow(console.Path, html)
	if len(seen) < 18 {
		t.Errorf("only %d files were found: %v", len(seen), seen)
	}
}

func TestConsole_TellsTheDigitsOfEachCurrency(t *testing.T) {
	t.Parallel()
	answer, body := ask(t, serve(t), http.MethodGet, "/console/currencies.js")
	if want := "export const digits = { JPY: 0, KWD: 3, USD: 2, };"; !strings.Contains(string(body), want) ||
		answer.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("%s %s", answer.Header.Get("Content-Type"), body)
	}
}
