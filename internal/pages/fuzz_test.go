package pages

import "testing"

// A cursor that is taken is the one that its id has.
func FuzzIDOf(f *testing.F) {
	f.Add(CursorOf("01a230f3-86d2-7ae3-bb65-c4454bb5803c"))
	f.Add(CursorOf("{01A230F3-86D2-7AE3-BB65-C4454BB5803C}"))
	f.Fuzz(func(t *testing.T, cursor string) {
		if id, ok := IDOf(cursor); ok && (CursorOf(id) != cursor || len(id) != 36) {
			t.Errorf("%q is taken as %q, whose cursor is %q", cursor, id, CursorOf(id))
		}
	})
}
