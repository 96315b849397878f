//go:build failpoints

package clocks

import (
	"os"
	"strings"
	"time"
)

// wallClock names a file that tells by how much this process's wall clock is ahead, as a duration. Nothing in Linux
// sets the wall clock of one process, and a test that suspends its machine would suspend itself.
var wallClock = os.Getenv("REFUNDD_WALL_CLOCK")

// wall is the reading of the wall clock that was taken with t. It panics at what it does not understand: a test that
// moves nothing proves nothing.
func wall(t time.Time) time.Time {
	if wallClock == "" {
		return t.Round(0)
	}
	setting, err := os.ReadFile(wallClock)
	if os.IsNotExist(err) {
		return t.Round(0)
	}
	ahead, err := time.ParseDuration(strings.TrimSpace(string(setting)))
	if err != nil {
		panic("REFUNDD_WALL_CLOCK: " + err.Error())
	}
	return t.Round(0).Add(ahead)
}
