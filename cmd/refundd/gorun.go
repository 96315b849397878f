package main

import (
	"context"
	"os"
	"regexp"
	"time"
)

// goRunPath is where go run keeps the program that it has built.
var goRunPath = regexp.MustCompile(`/go-build\d+/b\d+/exe/[^/]+$`)

// followGoRun ends the context when this program was started by go run and that has ended. Unlike an interrupt, a SIGTERM
// reaches go run alone, which does not pass it on: what it started would be left running.
func followGoRun(ctx context.Context) context.Context {
	self, err := os.Executable()
	if err != nil || !goRunPath.MatchString(self) {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		defer cancel()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return ctx
}
