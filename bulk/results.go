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
}

// Row is the result in the columns of Header.
func (r Result) Row() []string {
	q := r.Line.Request
	return []string{
		strconv.Itoa(r.Line.Number), q.OperationID, q.OrderID, strconv.FormatInt(q.AmountCents, 10), r.Status, r.Code,
		string(r.MoneyMoved), r.RefundID, r.NextAction, r.Ref, r.Detail,
	}
}

// Results is a file of results, to which rows are only ever added: of a line that was asked for again the last row counts. A row
// that a kill has torn is cut off by who opens the file next.
type Results struct {
	file *os.File
	lock *flock.Flock
	mu   sync.Mutex
	done []uint64 // by the line's number: the marks of lines whose money has moved
}

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
	if err := r.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("read results %s: %w", path, err), file.Close(), lock.Close())
	}
	return r, nil
}

// Close ends the file.
func (r *Results) Close() error { return errors.Join(r.file.Sync(), r.file.Close(), r.lock.Close()) }

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
			return errors.New("it is not a file of results")
		}
		whole += int64(len(text))
		r.learn(fields)
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

// row reads up to the end of a row, which may span lines; io.EOF where it is torn or there is none.
func row(in *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := in.ReadBytes('\n')
		text = append(text, part...)
		if err != nil || bytes.Count(text, []byte{'"'})%2 == 0 {
			return text, err
		}
	}
}

// learn notes a row of which nothing need be asked any more.
func (r *Results) learn(fields []string) {
	number, err := strconv.Atoi(fields[0])
	if err != nil || number < 1 || number > 1<<31 {
		return
	}
	for len(r.done) <= number {
		r.done = append(r.done, 0)
	}
	r.done[number] = 0
	if fields[4] == StatusProcessed || fields[4] == StatusAlreadyProcessed {
		r.done[number] = mark(fields[1], fields[2], fields[3])
	}
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
	return l.Number < len(r.done) && r.done[l.Number] == mark(row[1], row[2], row[3])
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
