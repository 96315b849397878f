//go:build !failpoints

package clocks

import "time"

// wall is the reading of the wall clock that was taken with t; wall_on.go has that of the builds that tests make.
func wall(t time.Time) time.Time { return t.Round(0) }
