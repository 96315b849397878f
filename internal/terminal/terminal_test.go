package terminal_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"refundd/internal/terminal"
)

// hostile are characters by what they do, and harmless the text around them.
var hostile = map[string]string{
	"escape": "\x1b[2J", "bell": "\a", "backspace": "\b", "return": "\r", "form feed": "\f", "delete": "\x7f",
	"C1 CSI": "\u009b31m", "C1 OSC": "\u009d", "next line": "\u0085", "raw C1": "\x9b2J",
	"left-to-right embedding": "\u202a", "override": "\u202e", "isolate": "\u2066", "pop isolate": "\u2069", "mark": "\u200f",
	"zero width space": "\u200b", "joiner": "\u200d", "word joiner": "\u2060", "byte order mark": "\ufeff",
	"line separator": "\u2028", "paragraph separator": "\u2029", "tag": "\U000e0041", "torn": "\xe2\x80", "surrogate": "\xed\xa0\x80",
}

// acts reports whether a terminal might act upon the text.
func acts(text string) bool {
	return !strings.Contains(text, `\u`) ||
		strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) })
}

func TestA75_EscapesWhatATerminalActsUpon(t *testing.T) {
	t.Parallel()
	for name, bad := range hostile {
		for n := range 17 { // wherever in a word it stands
			before := strings.Repeat("a", n)
			if got := string(terminal.Escape([]byte(before + bad + "z"))); acts(got) ||
				!strings.HasPrefix(got, before+`\`) || !strings.HasSuffix(got, "z") {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	for _, plain := range []string{"", "a\tb\nc", `{"a": "b\n"}`, "Zoë Ōno 山田\u3000太郎 שלום 👍🏽 1\u00a0000 €",
		"combining e\u0301"} {
		if got := string(terminal.Escape([]byte(plain))); got != plain {
			t.Errorf("%q becomes %q", plain, got)
		}
	}
}

func TestA75_AJSONTextStaysTheSameValue(t *testing.T) {
	t.Parallel()
	for name, bad := range hostile {
		text, err := json.Marshal(map[string]string{"k" + bad: "v" + bad + `\"`})
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]string
		if err := json.Unmarshal(text, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(terminal.Escape(text), &after); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
}

func TestA75_AWriterEscapesWhereverItsPiecesAreCut(t *testing.T) {
	t.Parallel()
	for name, bad := range hostile {
		if name == "torn" || name == "surrogate" { // cut, they are the beginning of something
			continue
		}
		text := "é" + bad + "€👍\n"
		want := string(terminal.Escape([]byte(text)))
		var out strings.Builder
		w := terminal.NewWriter(&out)
		for i := range len(text) {
			if n, err := w.Write([]byte{text[i]}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-whole +cut):\n%s", name, diff)
		}
	}
}

func BenchmarkEscape_LogLine(b *testing.B) {
	line := []byte(strings.Repeat(`{"time":"2026-01-01T00:00:00Z","msg":"request","status":201}`, 7))
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		terminal.Escape(line)
	}
}
