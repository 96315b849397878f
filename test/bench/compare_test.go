package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"refundd/access"
	"refundd/bench"
	"refundd/internal/embedpg"
	"refundd/reconcile"
	"refundd/test/harness"
	"refundd/test/testdb"
)

// comparison is refundd and the baseline, each in a process of its own, on one database.
type comparison struct {
	db       *testdb.DB
	tenant   string
	runner   *bench.Bench
	refundd  bench.Target
	baseline bench.Target
	logs     []*bench.Child

	duration, warmup time.Duration
	results          []bench.Result
}

// compare starts both on the database. Progress goes to stderr.
func compare(t testing.TB, db *testdb.DB, scale bench.Scale) *comparison {
	t.Helper()
	ctx := t.Context()
	c := &comparison{db: db, tenant: "bench-ratios"}
	keys, err := access.New(access.Config{Pool: db.Owner})
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.CreateTenant(ctx, c.tenant, true); err != nil {
		t.Fatal(err)
	}
	secret, _, err := keys.CreateKey(ctx,
		access.NewKey{TenantID: c.tenant, Scopes: []access.Scope{access.RefundsWrite}})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	program := build(t, folder)
	provider := c.start(t, "provider", folder, func(addr string) *exec.Cmd {
		return exec.CommandContext(context.WithoutCancel(ctx), program, "simulator", "--addr", addr, "--data",
			inMemory(t))
	})
	c.runner, err = bench.New(ctx, bench.Config{
		Pool: db.Owner, TenantID: c.tenant, Secret: secret, Scale: scale, Provider: provider.Used,
		Audit: func(ctx context.Context) error {
			report, err := reconcile.Audit(ctx, db.Owner)
			if err == nil && report.LieCount > 0 {
				err = fmt.Errorf("%w: the books lie: %+v", bench.ErrUntrue, report.Lies)
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.refundd = c.start(t, "refundd", folder, func(addr string) *exec.Cmd {
		return exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--addr", addr, "--simulator-url",
			provider.URL)
	})
	c.baseline = c.start(t, "baseline", folder, func(addr string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), os.Args[0])
		cmd.Env = append(os.Environ(), baselineAddr+"="+addr)
		return cmd
	})
	return c
}

// inMemory is a folder in memory where there is one: a provider's disk is not ours.
func inMemory(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "refundd-bench-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // a temporary folder
	return folder
}

func build(t testing.TB, folder string) string {
	t.Helper()
	path := filepath.Join(folder, "refundd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/refundd")
	cmd.Dir = harness.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build cmd/refundd: %v\n%s", err, out)
	}
	return path
}

func (c *comparison) start(t testing.TB, name, folder string, command func(addr string) *exec.Cmd) bench.Target {
	t.Helper()
	addr, err := bench.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(addr)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "DATABASE_URL="+c.db.ServiceURL)
	child, err := bench.StartChild(t.Context(), folder, addr, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(child.Stop)
	c.logs = append(c.logs, child)
	return bench.Target{Name: name, URL: "http://" + addr, Used: child.Used}
}

// round puts one target under a load and keeps the result.
func (c *comparison) round(t testing.TB, target bench.Target, mix string, connections int, rate float64) bench.Result {
	t.Helper()
	m, err := bench.ParseMix(mix)
	if err != nil {
		t.Fatal(err)
	}
	load := bench.Load{Mix: m, Connections: connections, Rate: rate, Warmup: c.warmup, Duration: c.duration}
	r, err := c.runner.Run(t.Context(), target, load)
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range c.logs {
		if err := child.EmptyLog(); err != nil {
			t.Fatal(err)
		}
	}
	c.results = append(c.results, r)
	fmt.Fprintf(os.Stderr, "%-9s %-9s %4d connections: %5.0f per second, p99 %v; others used %.2f CPUs\n",
		target.Name, mix, connections, r.PerSecond(), r.Latency.Quantile(0.99), r.OthersShare())
	return r
}

func (c *comparison) check(t testing.TB) {
	t.Helper()
	if _, err := c.runner.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBaselineAndPgbench_KeepTheSameBooks(t *testing.T) {
	t.Parallel()
	c := compare(t, testdb.New(t), bench.Scale{Orders: 500, Executed: 500})
	c.duration = 500 * time.Millisecond
	for _, mix := range []string{"new", "hot", "replays", "conflicts"} {
		for _, target := range []bench.Target{c.refundd, c.baseline} {
			c.answers(t, target, mix)
		}
	}
	c.answers(t, c.refundd, "simulator")
	if rate := c.pgbench(t, 4); rate <= 0 {
		t.Errorf("pgbench: %v refunds per second", rate)
	}
	c.check(t)
}

// answers requires that a target answers a mix as it is to be, whatever time a busy machine takes for it.
func (c *comparison) answers(t *testing.T, target bench.Target, mix string) {
	t.Helper()
	for range 40 {
		r := c.round(t, target, mix, 16, 0)
		if len(r.Other) > 0 {
			t.Errorf("%s, %s: answers besides those that are to be: %v", target.Name, mix, r.Other)
		}
		if r.Latency.Count() > 0 {
			return
		}
	}
	t.Errorf("%s, %s: no answer as it is to be", target.Name, mix)
}

// durable is a Postgres with every promise on.
func durable(t testing.TB) *testdb.DB {
	t.Helper()
	return testdb.NewIn(t, testdb.Start(t, embedpg.Options{Durable: true}))
}
