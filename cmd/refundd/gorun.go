package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// goRunPath is where go run keeps the program that it has built: in a folder of its own, and from the second time on in
// its cache, by the hash of what it was built from.
var goRunPath = regexp.MustCompile(`/(go-build\d+/b\d+/exe|[0-9a-f]{2}/[0-9a-f]{64}-d)/[^/]+$`)

// followGoRun ends the context when this program was started by go run and that has ended. Unlike an interrupt, a
// SIGTERM reaches go run alone, which does not pass it on: what it started would be left running.
func followGoRun(ctx context.Context) context.Context {
	self, err := os.Executable()
	if err != nil || !goRunPath.MatchString(self) {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		defer cancel()
		if parent == 1 && !isGo(parent) {
			return // it has ended before we looked
		}
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

// isGo tells whether a process is Go's command; in a container that may be the first process.
func isGo(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.HasPrefix(string(name), "go")
}
