package bulk

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/gofrs/flock"

	"refundd/client"
)

// What became of a line.
const (
	StatusProcessed        = "processed"         // this run moved the money
	StatusAlreadyProcessed = "already_processed" // it had been moved before
	StatusPending          = "pending"           // asked for, and not known yet
	StatusRefused          = "refused"           // for good, until somebody does what next_action says
	StatusNotDone          = "not_done"          // the service could not be asked, or could not answer
	StatusWouldProcess     = "would_process"     // of a dry run: nothing speaks against it
)

// Result is what became of a line.
type Result struct {
	Line       Line
	Status     string
	Code       string
	MoneyMoved client.MoneyMoved
	RefundID   string
	NextAction string
	Ref        string // into the service's logs
	Detail     string
}

// Header names the columns of a file of results.
var Header = []string{
	"line", "operation_id", "order_id", "amount_cents", "status", "code", "money_moved", "refund_id", "next_action", "diagnostic_ref", "detail",
	"case_id",
}

// Row is the result in the columns of Header.
func (r Result) Row() []string {
	q := r.Line.Request
	return []string{
		strconv.Itoa(r.Line.Number), q.OperationID, q.OrderID, strconv.FormatInt(q.AmountCents, 10), r.Status, r.Code,
		string(r.MoneyMoved), r.RefundID, r.NextAction, r.Ref, r.Detail, r.Line.CaseID,
	}
}

// Results is a file of results, to which rows are only ever added: of a line that was asked for again the last row
// counts. A row that a kill has torn is cut off by who opens the file next.
type Results struct {
	file *os.File
	lock *flock.Flock
	mu   sync.Mutex
	done *marks // of lines whose money has moved
}

var errNoResults = errors.New("it is not a file of results")

// OpenResults opens a file of results, or makes it, for one run at a time.
func OpenResults(path string) (*Results, error) {
	lock := flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	if !locked {
		return nil, fmt.Errorf("another run writes the results %s", path)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open results: %w", err), lock.Close())
	}
	r := &Results{file: file, lock: lock}
	if r.done, err = newMarks(filepath.Dir(path)); err == nil {
		err = r.read()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read results %s: %w", path, err), r.Close())
	}
	return r, nil
}

// Close ends the file.
func (r *Results) Close() error {
	err := errors.Join(r.file.Sync(), r.file.Close(), r.lock.Close())
	if r.done != nil {
		err = errors.Join(err, r.done.file.Close())
	}
	return err
}

// read learns what is done, and leaves the file at the end of its last whole row.
func (r *Results) read() error {
	in := bufio.NewReaderSize(r.file, 1<<16)
	var whole int64
	for first := true; ; first = false {
		text, err := row(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		fields, err := csv.NewReader(bytes.NewReader(text)).Read()
		if err != nil || len(fields) != len(Header) || first && fields[0] != Header[0] {
			return errNoResults
		}
		whole += int64(len(text))
		if err := r.learn(fields); err != nil {
			return err
		}
	}
	if err := r.file.Truncate(whole); err != nil {
		return err
	}
	if _, err := r.file.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	if whole == 0 {
		return r.write(Header)
	}
	return nil
}

// mostRow bounds a row of results: a line's values, every character of them quoted, and what is said of it.
const mostRow = 4 * mostBytes

// row reads up to the end of a row, which may span lines; io.EOF where it is torn or there is none.
func row(in *bufio.Reader) ([]byte, error) {
	var text []byte
	quotes := 0
	for {
		part, err := in.ReadSlice('\n')
		text, quotes = append(text, part...), quotes+bytes.Count(part, []byte{'"'})
		switch {
		case len(text) > mostRow:
			return nil, errNoResults
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil || quotes%2 == 0:
			return text, err
		}
	}
}

// learn notes a row of which nothing need be asked any more.
func (r *Results) learn(fields []string) error {
	number, err := strconv.Atoi(fields[0])
	if err != nil || number < 1 || number > 1<<31 {
		return nil
	}
	done := uint64(0)
	if fields[4] == StatusProcessed || fields[4] == StatusAlreadyProcessed {
		done = mark(fields[1], fields[2], fields[3])
	}
	return r.done.set(number, done)
}

// mark stands for a line's operation, order and amount; never 0.
func mark(fields ...string) uint64 {
	h := fnv.New64a()
	for _, f := range fields {
		_, _ = io.WriteString(h, f)
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64() | 1
}

// Done reports whether an earlier run wrote that this very line's money has moved.
func (r *Results) Done(l Line) bool {
	row := Result{Line: l}.Row()
	done, err := r.done.get(l.Number) // a line whose mark cannot be read is asked for again, which moves nothing twice
	return err == nil && done == mark(row[1], row[2], row[3])
}

// Add writes a result, in one piece.
func (r *Results) Add(result Result) error { return r.write(result.Row()) }

func (r *Results) write(fields []string) error {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	_ = w.Write(fields) // to memory
	w.Flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.file.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
