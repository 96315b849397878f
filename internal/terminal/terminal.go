// Package terminal keeps what strangers wrote from driving the terminal of whoever reads it.
//
// Its promise: what passes shows what it says and nothing else. Control characters (C0 but for line end and tab, DEL,
// C1), what reorders text (bidirectional overrides and isolates), what is invisible (zero width, byte order mark, line
// and paragraph separators) and bytes that are no UTF-8 come out as JSON's \uXXXX. Within a JSON text all of these can
// stand in strings alone, where the escape means the same: an escaped JSON text is the same value.
package terminal

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns text with everything escaped that a terminal might act upon: text itself, where there is nothing.
func Escape(text []byte) []byte {
	plain := plainPrefix(text)
	if plain == len(text) {
		return text
	}
	escaped := append(make([]byte, 0, len(text)+16), text[:plain]...)
	for rest := text[plain:]; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 || !harmless(r) {
			escaped = appendEscape(escaped, r)
		} else {
			escaped = append(escaped, rest[:size]...)
		}
		rest = rest[size:]
	}
	return escaped
}

// plainPrefix is how much of text is printable ASCII, line ends and tabs: mostly all of it. It looks at eight bytes at
// once: every request's log line passes here.
func plainPrefix(text []byte) int {
	const ones = 0x0101010101010101
	for i := 0; i < len(text); {
		if len(text)-i >= 8 {
			x := binary.LittleEndian.Uint64(text[i:])
			if (x|(x+ones)|(x-' '*ones))&(0x80*ones) == 0 { // no byte is above 0x7e or below a space
				i += 8
				continue
			}
		}
		if b := text[i]; (b < ' ' && b != '\n' && b != '\t') || b >= 0x7f {
			return i
		}
		i++
	}
	return len(text)
}

func harmless(r rune) bool { return unicode.IsGraphic(r) || r == '\n' || r == '\t' }

func appendEscape(to []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return appendUnit(appendUnit(to, high), low)
	}
	return appendUnit(to, r)
}

func appendUnit(to []byte, unit rune) []byte {
	const digits = "0123456789abcdef"
	return append(to, '\\', 'u', digits[unit>>12&15], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
}

// Writer escapes what passes on its way to another writer, wherever the pieces are cut.
type Writer struct {
	to   io.Writer
	mu   sync.Mutex
	tail []byte // the beginning of a character whose end did not come yet
}

// NewWriter returns a Writer in front of to.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write takes all of text, or reports why it could not be passed on.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	whole := text
	if len(w.tail) > 0 {
		whole = slices.Concat(w.tail, text)
		w.tail = nil
	}
	if cut := len(whole) - partial(whole); cut < len(whole) {
		w.tail = append([]byte(nil), whole[cut:]...)
		whole = whole[:cut]
	}
	if _, err := w.to.Write(Escape(whole)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// partial is the length of the beginning of a character that text ends in.
func partial(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if b := text[len(text)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
