package simulator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"
)

// Errors of the books' file.
var (
	ErrInUse   = errors.New("simulator: the books are open in another process")
	ErrCorrupt = errors.New("simulator: the books are damaged")

	errClosed = errors.New("simulator: the books are closed")
)

// journalName is the books' file in the simulator's folder.
const journalName = "simulator.jsonl"

// journal appends lines to a file and makes them durable, any number with one fsync: while one is running, the lines of
// the next gather.
type journal struct {
	file *os.File
	turn chan struct{} // held by the caller that writes

	mu      sync.Mutex
	lines   []byte
	next    *flush // makes lines durable
	last    *flush // the one before it, perhaps still running
	failure error  // the first one; nothing is written after it
}

// flush is one write and fsync.
type flush struct {
	done chan struct{}
	err  error // once done
}

func newFlush() *flush { return &flush{done: make(chan struct{})} }

// openJournal opens the file of dir for this process alone and calls read with each of its lines. A last line that was
// cut short, which nobody was told of, is removed.
func openJournal(dir string, read func(line []byte) error) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the books' folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, journalName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the books: %w", err)
	}
	if err := recoverJournal(file, read); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	last := newFlush()
	close(last.done)
	return &journal{file: file, turn: make(chan struct{}, 1), next: newFlush(), last: last}, nil
}

// recoverJournal locks file, whose lock ends with its process, and reads it.
func recoverJournal(file *os.File, read func(line []byte) error) error {
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	all, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read the books: %w", err)
	}
	whole := len(all) - len(torn(all))
	n := 0
	for line := range bytes.Lines(all[:whole]) {
		n++
		if err := read(line); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrCorrupt, n, err)
		}
	}
	if whole == len(all) {
		return nil
	}
	if err := file.Truncate(int64(whole)); err != nil {
		return fmt.Errorf("remove the torn last line: %w", err)
	}
	return file.Sync()
}

// torn is what stands at the end of all and is no whole line.
func torn(all []byte) []byte {
	body, ended := bytes.CutSuffix(all, []byte("\n"))
	last := body[bytes.LastIndexByte(body, '\n')+1:]
	if ended && jsontext.Value(last).IsValid() {
		return nil
	}
	return all[len(body)-len(last):]
}

// syncDir makes the file's name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the books' folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the books' folder: %w", err)
	}
	return nil
}

// append adds a line, without its end, in the order of the calls. It is durable after the next flush.
func (j *journal) append(line []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(append(j.lines, line...), '\n')
}

// flush returns once everything that was appended before the call is durable.
func (j *journal) flush() error {
	j.mu.Lock()
	f := j.next
	if len(j.lines) == 0 {
		f = j.last
	}
	j.mu.Unlock()
	select {
	case <-f.done:
	case j.turn <- struct{}{}:
		j.write(f)
		<-j.turn
	}
	return f.err
}

// write makes f durable unless someone else has while we waited for our turn.
func (j *journal) write(f *flush) {
	select {
	case <-f.done:
		return
	default:
	}
	j.mu.Lock()
	lines, err := j.lines, j.failure
	j.lines = nil
	j.last, j.next = f, newFlush()
	j.mu.Unlock()
	if err == nil {
		err = j.put(lines)
	}
	f.err = err
	close(f.done)
}

// put writes lines and syncs. After a failure nothing may follow, for the file's end is unknown.
func (j *journal) put(lines []byte) error {
	_, err := j.file.Write(lines)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		err = fmt.Errorf("write the books: %w", err)
		j.fail(err)
	}
	return err
}

func (j *journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure == nil {
		j.failure = err
	}
}

// close makes what was appended durable and gives the file to others. What is appended after it fails at its flush.
func (j *journal) close() error {
	err := j.flush()
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	j.mu.Lock()
	closed := errors.Is(j.failure, errClosed)
	j.failure = errClosed
	j.mu.Unlock()
	if closed {
		return nil
	}
	return errors.Join(err, j.file.Close())
}
