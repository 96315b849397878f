package bulk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refundd/client"
)

func read(t *testing.T, text string) (lines []Line) {
	t.Helper()
	in, err := ReadLines(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for {
		l, err := in.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
}

func line(number int, operation, order string, cents int64) Line {
	return Line{Number: number,
		Request: client.RefundRequest{OperationID: operation, OrderID: order, AmountCents: cents}}
}

func TestReadLines_TakesFilesAsPeopleHaveThem(t *testing.T) {
	t.Parallel()
	full := line(2, "op-1", "A-1", 4990)
	full.CaseID, full.Request.Currency, full.Request.Reason = "C-1", "EUR", "event \"cancelled\", sorry"
	for name, c := range map[string]struct {
		text string
		want []Line
	}{
		"all columns, in any order": {
			"reason,amount_cents,case_id,order_id,currency,operation_id\n\"event \"\"cancelled\"\", sorry\",4990,C-1,A-1,EUR,op-1\n", []Line{full}},
		"a byte order mark, CRLF, blanks and blank lines": {
			"\xef\xbb\xbf operation_id , order_id,amount_cents\r\n\r\n  op-1 ,\tA-1\u00a0, 1 \r\n  \r\n,,\r\nop-2,A-2,2",
			[]Line{line(3, "op-1", "A-1", 1), line(6, "op-2", "A-2", 2)}},
		"semicolons": {"operation_id;order_id;amount_cents\nop-1;A,1;1\n", []Line{line(2, "op-1", "A,1", 1)}},
		"a quoted line break counts as a line": {
			"operation_id,order_id,amount_cents,reason\nop-1,A-1,1,\"a\nb\"\nop-2,A-2,2,\n",
			[]Line{{Number: 2, Request: client.RefundRequest{OperationID: "op-1", OrderID: "A-1", AmountCents: 1,
				Reason: "a\nb"}}, line(4, "op-2", "A-2", 2)}},
		"semicolons, with decimal commas in a text": {"operation_id;order_id;amount_cents;reason\nop-1;A-1;1;49,90 paid\n", []Line{
			{Number: 2, Request: client.RefundRequest{OperationID: "op-1", OrderID: "A-1", AmountCents: 1,
				Reason: "49,90 paid"}}}},
		"nothing but a header": {"operation_id,order_id,amount_cents\n", nil},
	} {
		if diff := cmp.Diff(c.want, read(t, c.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadLines_RefusesALineByItsNumber(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		"op,A,49.90": "4990 for 49.90", "op,A,\"49,90\"": "whole number", "op,A,1e2": "whole number", "op,A,+1": "no whole number",
		"op,A,0": "not between", "op,A,-5": "not between", "op,A,9007199254740992": "not between", "op,A,99999999999999999999": "no whole number",
		"op,A,4.99E+03": "whole number", "op,A,1E5": "whole number", "op,A,\"1,000\"": "whole number", "op,A,1 000": "no whole number",
		"op,A,1_000": "no whole number", "op,A,0x10": "no whole number", "op,A,€5": "no whole number", "op;A;1": "1 values where the header has 3",
		"op,A,": "no amount_cents", ",A,1": "nothing makes one up", "op,,1": "no order_id", "op,A": "2 values where the header has 3",
		"op,A,1,2": "4 values", "o\xffp,A,1": "not UTF-8", "op,A\"b,1": "not a line of CSV",
	} {
		got := read(t, "operation_id,order_id,amount_cents\n"+values+"\nop-2,A-2,2\n")
		if len(got) != 2 || got[0].Number != 2 || !strings.Contains(got[0].Fault, says) {
			t.Errorf("%q: %+v does not say %q", values, got, says)
			continue
		}
		if diff := cmp.Diff(line(3, "op-2", "A-2", 2), got[1]); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", values, diff)
		}
	}
}

func TestReadLines_RefusesAFileThatIsNone(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"operation_id\torder_id\tamount_cents\n": "separated by commas", "sep=;\noperation_id;order_id;amount_cents\n": "column \"sep=\"",
		"\xff\xfeo\x00p\x00,\x00\n": "in UTF-8", "operation_id,order_id,amount_cents\rop-1,A,1\r": "column \"amount_cents\\rop-1\"",
		"": "no header", "op-1,A-1,100\n": "column \"op-1\"", "operation_id,order_id\n": "no column amount_cents",
		"operation_id,order_id,amount_cents,amount\n":   "column \"amount\"",
		"operation_id,order_id,amount_cents,order_id\n": "order_id twice",
	} {
		if _, err := ReadLines(strings.NewReader(text)); !errors.Is(err, ErrFile) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v does not say %q", text, err, says)
		}
	}
}

// A quote that is never closed makes one line of the rest of the file, which is not held in memory.
func TestReadLines_BoundsALine(t *testing.T) {
	t.Parallel()
	in, err := ReadLines(io.MultiReader(strings.NewReader("operation_id,order_id,amount_cents\nop,\""), endless{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Next(); !errors.Is(err, ErrFile) {
		t.Errorf("got %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// What is no file of results is not read into memory to find out.
func TestResults_BoundARow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.csv")
	if err := os.WriteFile(path, append([]byte{'"'}, make([]byte, 2*mostRow)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenResults(path); !errors.Is(err, errNoResults) {
		t.Errorf("got %v", err)
	}
}

func TestResults_SkipWhatIsDone_AndCutOffWhatAKillHasTorn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.csv")
	open := func() *Results {
		t.Helper()
		r, err := OpenResults(path)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open()
	if _, err := OpenResults(path); err == nil {
		t.Error("two runs write one file")
	}
	for _, result := range []Result{
		{Line: line(2, "op-1", "A", 1), Status: StatusProcessed},
		{Line: line(3, "op-2", "A", 1), Status: StatusPending, Detail: "two\nlines, \"quoted\""},
		{Line: line(4, "op-3", "A", 1), Status: StatusAlreadyProcessed},
		{Line: line(4, "op-3", "A", 1), Status: StatusRefused},
	} {
		if err := r.Add(result); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	torn := Result{Line: line(5, "op-4", "A", 1), Status: StatusProcessed}.Row()
	if err := os.WriteFile(path, append(whole, strings.Join(torn, ",")...), 0o600); err != nil {
		t.Fatal(err)
	}
	r = open()
	defer func() { _ = r.Close() }()
	for _, c := range []struct {
		line Line
		done bool
	}{
		{line(2, "op-1", "A", 1), true}, {line(2, "op-1", "A", 2), false}, {line(2, "op-9", "A", 1),
			false}, {line(3, "op-2", "A", 1), false},
		{line(4, "op-3", "A", 1), false}, {line(5, "op-4", "A", 1), false}, {line(99, "op-1", "A", 1), false},
	} {
		if got := r.Done(c.line); got != c.done {
			t.Errorf("%+v is done: %v", c.line, got)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(whole) {
		t.Errorf("the torn row is not cut off: %v\n%s", err, now)
	}
}

// Whatever stands in a file, a line that is sent names an operation, an order and an amount.
func FuzzReadLines(f *testing.F) {
	f.Add("operation_id,order_id,amount_cents\nop-1,A-1,100\n")
	f.Add("\xef\xbb\xbfoperation_id;order_id;amount_cents;reason\r\nop-1;A-1;1;\"x\"\"\"\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := ReadLines(strings.NewReader(text))
		for last := 0; err == nil; {
			var l Line
			if l, err = in.Next(); err != nil {
				break
			}
			q := l.Request
			if l.Number <= last || l.Fault == "" &&
				(q.OperationID == "" || q.OrderID == "" || q.AmountCents < 1 || q.AmountCents > mostCents) {
				t.Fatalf("%+v after line %d", l, last)
			}
			last = l.Number
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrFile) {
			t.Fatal(err)
		}
	})
}

// A file of results that is opened once more is read, or refused, and what is appended to it then stands in it whole.
func FuzzOpenResults(f *testing.F) {
	head := strings.Join(Header, ",") + "\n"
	f.Add("")
	f.Add(head)
	f.Add(head + "2,op-1,A-1,1,\"torn")
	f.Add(head + strings.Repeat("x,", len(Header)-1) + "x\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "results.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenResults(path)
		if err != nil {
			return
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(kept), Header[0]) || kept[len(kept)-1] != '\n' {
			t.Errorf("%q became %q, %v", text, kept, err)
		}
	})
}
