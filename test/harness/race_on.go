//go:build race

package harness

// raceEnabled tells whether the tests run under the race detector; the servers then do, too.
const raceEnabled = true
