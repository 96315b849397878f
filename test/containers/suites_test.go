package containers

import (
	"cmp"
	"os"
	"os/exec"
	"testing"
)

// The suites of the module above, against a server that somebody else packaged and started. What starts, kills and
// revives servers of its own (TestKill, A24, A70, A71, A84), or cuts connections one by one for a minute (A85), is left
// to `make test`, and so is the race detector.
func TestSuites_OnAContainerisedPostgres(t *testing.T) {
	c := startPostgresContainer(t)
	for _, suite := range []struct{ room, skip string }{
		{room: "./migrations", skip: "^TestA85_TheConnectionIsLost"},
		{room: "./ledger"},
		{room: "./operations"},
		{room: "./test/blackbox", skip: "^TestKill_|^TestA24_|^TestA70_|^TestA71_|^TestA84_"},
	} {
		t.Run(suite.room, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=10m", "-parallel=4",
				"-skip="+cmp.Or(suite.skip, "^$"), suite.room)
			cmd.Dir = root(t)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "TEST_DATABASE_URL="+urlOf(t, c))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	// A suite that found itself another server would have left this one as it was.
	if commits := ask[int64](t, connect(t, c),
		`SELECT sum(xact_commit)::bigint FROM pg_stat_database`); commits < 10_000 {
		t.Errorf("only %d transactions were committed here", commits)
	}
}
