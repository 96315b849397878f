package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// suite is what outlives a single test: the binary, and the shared service.
var suite life

// Run wraps a package's tests, for testdb.Main: after the last one the shared service's books are audited, and all that
// it started is stopped.
func Run(m *testing.M) interface{ Run() int } {
	simulateInstead()
	return runner{m}
}

type runner struct{ m *testing.M }

func (r runner) Run() int {
	code := r.m.Run()
	if err := suite.end(); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: after the last test: %v\n", err)
		return max(code, 1)
	}
	return code
}

// life is the testing.TB of what is shared by all tests of the process.
type life struct {
	testing.TB // nil: what is not defined below is not for use

	mu      sync.Mutex
	cleanup []func() error
	failed  []error
}

// fatal ends the test that happened to be first at what all share.
type fatal struct{ error }

func (l *life) atEnd(f func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanup = append(l.cleanup, f)
}

// end runs what was left to the end, last in first out.
func (l *life) end() error {
	var faults []error
	for f := l.last(); f != nil; f = l.last() {
		faults = append(faults, f())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(append(faults, l.failed...)...)
}

// last takes what was left to the end last, nil when nothing is.
func (l *life) last() func() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.cleanup)
	if n == 0 {
		return nil
	}
	f := l.cleanup[n-1]
	l.cleanup = l.cleanup[:n-1]
	return f
}

func (l *life) Helper() {}

func (l *life) Name() string { return "suite" }

func (l *life) Context() context.Context { return context.Background() }

func (l *life) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (l *life) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }

func (l *life) Cleanup(f func()) { l.atEnd(func() error { f(); return nil }) }

func (l *life) Error(args ...any) { l.fail(errors.New(fmt.Sprint(args...))) }

func (l *life) Errorf(format string, args ...any) { l.fail(fmt.Errorf(format, args...)) }

func (l *life) Fatal(args ...any) { panic(fatal{errors.New(fmt.Sprint(args...))}) }

func (l *life) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

func (l *life) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// caught runs f and answers what it was fatal about.
func caught(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(fatal)
			if !ok {
				panic(v)
			}
			err = f.error
		}
	}()
	f()
	return nil
}
