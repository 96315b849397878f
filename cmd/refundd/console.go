package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/internal/logpipe"
	"refundd/internal/terminal"
)

// flushLimit is how long the end of a command waits for a reader of its log: dev has 5 s for all of it.
const flushLimit = time.Second

// console is what a command is given besides its flags. Nothing that others wrote drives the terminal behind it, and
// nobody waits for whoever reads stderr.
type console struct {
	stdout io.Writer // the command's result and nothing else
	stderr io.Writer
	log    *slog.Logger // JSON lines on stderr
	screen io.Writer    // stderr again, where a person watches it: for our own words that go over others; else nil
	lost   func() uint64
}

// newConsole puts a console in front of a process's own streams; flush writes what stderr's reader has not taken yet.
func newConsole(stdout, stderr io.Writer) (c console, flush func()) {
	pipe := logpipe.New(stderr, logpipe.Options{Notice: noticeOf})
	told := terminal.NewWriter(pipe)
	c = console{
		stdout: terminal.NewWriter(departed{stdout}), stderr: told, log: slog.New(slog.NewJSONHandler(told, nil)),
		lost: pipe.Lost,
	}
	if isTerminal(stderr) {
		c.screen = pipe
	}
	return c, func() { pipe.Close(flushLimit) }
}

// unhurried is the console of a command that goes on after it has told its result: nor does it wait for stdout's
// reader.
func (c console) unhurried() (waitless console, flush func()) {
	pipe := logpipe.New(c.stdout, logpipe.Options{})
	c.stdout = pipe
	return c, func() { pipe.Close(flushLimit) }
}

// printf writes to the command's result. A reader that went away is no fault of the command's.
func (c console) printf(format string, args ...any) { _, _ = fmt.Fprintf(c.stdout, format, args...) }

// printJSON writes one JSON object as the command's result.
func (c console) printJSON(v any) error {
	if err := json.MarshalWrite(c.stdout, v, jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	c.printf("\n")
	return nil
}

// lostLines counts what no reader of the log will see.
func (c console) lostLines() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "refundd_log_lines_lost_total", Help: "Lines that the log's reader did not take.",
	}, func() float64 { return float64(c.lost()) })
}

// noticeOf is the line that tells a reader of the lost ones.
func noticeOf(lost uint64) []byte {
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Warn("log lines were lost: nobody read them", "lines", lost)
	return line.Bytes()
}

// departed is a stream whose reader may leave, as head does: what is written then goes nowhere, and that is no failure.
type departed struct{ io.Writer }

func (d departed) Write(p []byte) (int, error) {
	n, err := d.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	return n, err
}

func isTerminal(w io.Writer) bool {
	file, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
