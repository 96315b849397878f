package pages

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhere_HoldsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	w := Where{Args: []any{"t"}}
	w.And("tenant = $1")
	w.Between("at", nil, &at)
	w.And("(a, b) < (?, ?)", 1, 2)
	if got, want := w.String(), "tenant = $1 AND at < $2 AND (a, b) < ($3, $4)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if diff := cmp.Diff([]any{"t", at, 1, 2}, w.Args); diff != "" {
		t.Error(diff)
	}
}

func TestCut_LeavesOutWhatWasReadBeyond(t *testing.T) {
	t.Parallel()
	self := func(s string) string { return s }
	for _, c := range []struct{ rows, page, next string }{{"", "", ""}, {"ab", "ab", ""}, {"abc", "ab", "b"}} {
		page, next := Cut(strings.Split(c.rows, ""), 2, self)
		if strings.Join(page, "") != c.page || next != c.next {
			t.Errorf("%q: %q and %q", c.rows, page, next)
		}
	}
}

func TestIDOf_TakesOnlyWhatCursorOfMade(t *testing.T) {
	t.Parallel()
	const id = "0198c0de-7c1f-7b5e-9c7e-3a4f7d1f0a22"
	if got, ok := IDOf(CursorOf(id)); !ok || got != id {
		t.Errorf("%q %t", got, ok)
	}
	text := base64.RawURLEncoding.EncodeToString
	for _, bad := range []string{
		"", "x", id, CursorOf(id) +
			"\n", CursorOf(strings.ToUpper(id)), text([]byte("urn:uuid:" + id)), text([]byte("{" + id + "}")),
		text([]byte(strings.ReplaceAll(id, "-", ""))), text([]byte(id + " ")),
	} {
		if got, ok := IDOf(bad); ok {
			t.Errorf("%q is taken for %q", bad, got)
		}
	}
}
