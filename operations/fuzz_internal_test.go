package operations

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A cursor that is taken is one that a list handed out: it is the only spelling of its place.
func FuzzDecodeCursor(f *testing.F) {
	for _, c := range []cursor{cursorAt(time.Unix(1, 2000), "op-1"), cursorAt(time.Unix(-1, 0), " ")} {
		f.Add(c.encode())
	}
	f.Add("aW5maW5pdHkgb3AtMQ")
	f.Add("MSBvcC0x\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := decodeCursor(text)
		if err != nil || c == nil {
			return
		}
		if c.encode() != text || c.id == "" || strings.ContainsRune(c.id, 0) {
			t.Errorf("%q is taken, and is %q of %v", text, c.encode(), c)
		}
	})
}

// The fingerprint is that of the object as encoding/json writes it, so that no two refunds share one.
func FuzzFingerprint(f *testing.F) {
	f.Add("A-1001", int64(4999))
	f.Add(`ord<&>"q\`, int64(9007199254740991))
	f.Fuzz(func(t *testing.T, order string, amount int64) {
		for _, c := range []byte(order) {
			if c <= ' ' || c > '~' {
				return // no order id
			}
		}
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(order); err != nil {
			t.Fatal(err)
		}
		number, err := json.Marshal(amount)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(`{"amount_cents": ` + string(number) + `, "order_id": ` +
			strings.TrimSpace(text.String()) + `}`))
		if got := Fingerprint(order, amount); got != hex.EncodeToString(sum[:]) {
			t.Errorf("Fingerprint(%q, %d) = %s, want %x", order, amount, got, sum)
		}
	})
}
