//go:build failpoints && linux

package failpoint

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// armed is what REFUNDD_FAILPOINT says: name[:n[:act]]: at the n-th arrival (the first, unless told) at the place of
// that name the process acts upon itself. The acts are kill (SIGKILL, unless told), stop (SIGSTOP; a SIGCONT lets it go
// on) and wait=path (this arrival and the later ones wait until there is a file of that name, so that one kill finds
// many of them here). Each act is told on stderr.
var armed = readFailpoint(os.Getenv("REFUNDD_FAILPOINT"))

type armedFailpoint struct {
	name     string
	hit      int64
	act      string
	arrivals atomic.Int64
}

// readFailpoint panics at what it does not understand: a test that arms nothing proves nothing.
func readFailpoint(setting string) *armedFailpoint {
	if setting == "" {
		return nil
	}
	name, rest, _ := strings.Cut(setting, ":")
	hit, act, _ := strings.Cut(rest, ":")
	f := &armedFailpoint{name: name, hit: 1, act: cmp.Or(act, "kill")}
	if hit != "" {
		f.hit, _ = strconv.ParseInt(hit, 10, 64) // 0 where it is no number
	}
	if f.hit < 1 || f.act != "kill" && f.act != "stop" && !strings.HasPrefix(f.act, "wait=") {
		panic(fmt.Sprintf("REFUNDD_FAILPOINT=%s is not name[:n[:act]]", setting))
	}
	return f
}

// Reach marks a place between two steps.
func Reach(name string) {
	if armed == nil || armed.name != name {
		return
	}
	path, waits := strings.CutPrefix(armed.act, "wait=")
	if n := armed.arrivals.Add(1); n < armed.hit || n > armed.hit && !waits {
		return
	}
	_, _ = fmt.Fprintf(os.Stderr, "failpoint %s: %s\n", name, armed.act)
	switch {
	case waits:
		for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
			time.Sleep(time.Millisecond)
		}
	case armed.act == "stop":
		// A signal to the process may be taken by another thread, and let this one go on for a while.
		runtime.LockOSThread()
		_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
		runtime.UnlockOSThread()
	default:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // whoever got here goes no further
	}
}
