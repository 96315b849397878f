package logpipe_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/internal/logpipe"
)

const patience = 10 * time.Second

func notice(lost uint64) []byte { return fmt.Appendf(nil, "lost %d\n", lost) }

// pipe is a real pipe; the reading end is closed with the test.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// say writes n numbered lines and fails the test where that waits for the reader.
func say(t *testing.T, w *logpipe.Writer, n int) {
	t.Helper()
	said := make(chan struct{})
	go func() {
		defer close(said)
		for i := range n {
			fmt.Fprintf(w, "line %06d\n", i)
		}
	}()
	select {
	case <-said:
	case <-time.After(patience):
		t.Fatal("a line waits for the reader")
	}
}

func TestA72_AReaderThatDoesNotRead_HoldsNobody_AndIsToldWhatItMissed(t *testing.T) {
	t.Parallel()
	r, to := pipe(t)
	w := logpipe.New(to, logpipe.Options{Size: 64 << 10, Notice: notice})
	const n = 50_000 // of 12 bytes: more than pipe and buffers hold
	say(t, w, n)
	if w.Lost() == 0 {
		t.Fatal("nothing was lost: the pipe was not full")
	}
	seen, told := 0, uint64(0)
	read := make(chan struct{})
	go func() {
		defer close(read)
		last := -1
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var i int
			var lost uint64
			if _, err := fmt.Sscanf(lines.Text(), "lost %d", &lost); err == nil {
				told += lost
				continue
			}
			if _, err := fmt.Sscanf(lines.Text(), "line %06d", &i); err != nil || i <= last {
				t.Errorf("%q after line %d", lines.Text(), last)
			}
			last = i
			seen++
		}
	}()
	if !w.Close(patience) {
		t.Error("what waited was not written at the end")
	}
	_ = to.Close()
	<-read
	if told != w.Lost() || uint64(seen)+told != n {
		t.Errorf("of %d lines %d arrived, and the reader was told of %d lost ones, of %d", n, seen, told, w.Lost())
	}
}

func TestA72_AReaderThatDoesNotRead_DelaysTheEndByTheLimitAlone(t *testing.T) {
	t.Parallel()
	_, to := pipe(t)
	w := logpipe.New(to, logpipe.Options{})
	say(t, w, 50_000)
	began := time.Now()
	if w.Close(100 * time.Millisecond) {
		t.Error("everything was written into a full pipe")
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the end took %v", took)
	}
}

func TestA72_AReaderThatHasGone_CostsItsLinesAlone(t *testing.T) {
	t.Parallel()
	r, to := pipe(t)
	w := logpipe.New(to, logpipe.Options{Notice: notice})
	_ = r.Close()
	say(t, w, 100)
	await(t, "all lines to be counted", func() bool { return w.Lost() == 100 })
	if !w.Close(patience) {
		t.Error("it does not end")
	}
	if fmt.Fprintln(w, "too late"); w.Lost() != 101 {
		t.Errorf("%d lines are lost, want 101", w.Lost())
	}
}

// disk is a file system that is full at times: then it takes a few bytes and fails.
type disk struct {
	mu    sync.Mutex
	full  bool
	takes int
	text  strings.Builder
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.full {
		return d.text.Write(p)
	}
	n := min(d.takes, len(p))
	d.takes = 0
	d.text.Write(p[:n])
	return n, errors.New("no space left on device")
}

func TestA72_ALineThatWasTorn_SpoilsNoOther(t *testing.T) {
	t.Parallel()
	d := &disk{full: true, takes: 3}
	w := logpipe.New(d, logpipe.Options{Notice: notice})
	fmt.Fprintln(w, "first")
	await(t, "the torn line", func() bool { return w.Lost() == 1 })
	fmt.Fprintln(w, "second")
	await(t, "the line that found no room", func() bool { return w.Lost() == 2 })
	d.mu.Lock()
	d.full = false
	d.mu.Unlock()
	fmt.Fprintln(w, "third")
	w.Close(patience)
	if got, want := d.text.String(), "fir\nthird\nlost 2\n"; got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
}

func TestA72_ManyWriters_LoseNothingThatFits(t *testing.T) {
	t.Parallel()
	d := &disk{}
	w := logpipe.New(d, logpipe.Options{Size: 16 << 20})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { say(t, w, 5000) })
	}
	group.Wait()
	if !w.Close(patience) || w.Lost() != 0 || strings.Count(d.text.String(), "\n") != 40_000 {
		t.Errorf("%d lines arrived, %d were lost", strings.Count(d.text.String(), "\n"), w.Lost())
	}
}
