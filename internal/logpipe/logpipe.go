// Package logpipe lets a process write its log without ever waiting for whoever reads it.
//
// Its promise: Write returns at once, whether the reader reads, stalls or has gone. What waits for the reader is kept
// up to a bound; lines beyond it, and lines that could not be written, are lost whole, are counted, and the reader is
// told how many once it reads again. Lines are written in their order, many at once where many wait.
package logpipe

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how much waits for a reader, and what it is told of what was lost.
type Options struct {
	Size   int                      // bytes that may wait; default 2 MiB, and once more what is being written
	Notice func(lost uint64) []byte // one line, its end included, that tells of lost lines; nil tells nothing
}

const defaultSize = 2 << 20

// Writer is an io.Writer in front of another one, which may block or fail. Every Write is one line or several whole
// ones.
type Writer struct {
	to      io.Writer
	options Options
	lost    atomic.Uint64 // lines
	wake    chan struct{} // holds one token while something waits, or Close was called
	ended   chan struct{} // closed once everything is written after Close
	told    uint64        // run's own: of the lost lines, those that the reader was told of
	torn    bool          // run's own: the last write ended within a line

	mu      sync.Mutex // guards what follows
	waiting []byte
	closed  bool
}

// New starts the one goroutine that writes to the other writer; Close ends it.
func New(to io.Writer, o Options) *Writer {
	if o.Size <= 0 {
		o.Size = defaultSize
	}
	w := &Writer{to: to, options: o, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go w.run()
	return w
}

// Write keeps the lines for the reader, or counts them as lost. It never fails.
func (w *Writer) Write(lines []byte) (int, error) {
	w.mu.Lock()
	fits := !w.closed && len(w.waiting)+len(lines) <= w.options.Size
	if fits {
		w.waiting = append(w.waiting, lines...)
	}
	w.mu.Unlock()
	if !fits {
		w.lost.Add(count(lines))
		return len(lines), nil
	}
	w.rouse()
	return len(lines), nil
}

// Lost is how many lines no reader will see.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Close writes what waits, for up to limit, and reports whether all of it was written. What is written afterwards is
// lost.
func (w *Writer) Close(limit time.Duration) bool {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.rouse()
	select {
	case <-w.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

func (w *Writer) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run hands over what waits, again and again, until Close.
func (w *Writer) run() {
	defer close(w.ended)
	var batch []byte
	for range w.wake {
		for {
			var closed bool
			batch, closed = w.take(batch[:0])
			said := w.deliver(batch)
			if !said && closed {
				return
			}
			if !said {
				break // until there is more to say
			}
		}
	}
}

// deliver writes a batch, and behind it how many lines were lost since the reader was last told. It reports whether
// anything was said.
func (w *Writer) deliver(batch []byte) bool {
	own := count(batch)
	lost := w.lost.Load()
	if lost > w.told && w.options.Notice != nil {
		batch = append(batch, w.options.Notice(lost-w.told)...)
	}
	if len(batch) == 0 {
		return false
	}
	if w.torn { // what follows is a line of its own
		if _, err := w.to.Write([]byte{'\n'}); err != nil {
			w.lost.Add(own)
			return false
		}
		w.torn = false
	}
	n, err := w.to.Write(batch)
	if err != nil {
		whole := uint64(bytes.Count(batch[:n], []byte{'\n'}))
		w.lost.Add(own - min(own, whole))
		w.torn = n > 0 && batch[n-1] != '\n'
		return false
	}
	w.told = lost
	return true
}

// take swaps what waits for an empty buffer.
func (w *Writer) take(empty []byte) (lines []byte, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, w.waiting = w.waiting, empty
	return lines, w.closed
}

// count is the number of lines, one without an end included.
func count(lines []byte) uint64 {
	n := bytes.Count(lines, []byte{'\n'})
	if len(lines) > 0 && lines[len(lines)-1] != '\n' {
		n++
	}
	return uint64(n)
}
