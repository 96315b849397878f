package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/access"
	"refundd/bench"
	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/cmd/refundd/internal/testbed"
	"refundd/migrations"
	"refundd/reconcile"
)

type benchCmd struct {
	postgres.Database
	Self     bool   `help:"Start all of it: a durable Postgres, a service in a process of its own, for this run alone."`
	URL      string `name:"url" placeholder:"URL" help:"The deployment to put under load; needs --database-url of the same."`
	Really   string `placeholder:"DATABASE" help:"The name of its database, to fill that though others' books are in it."`
	AdminURL string `placeholder:"URL" help:"Its admin address, which tells what CPU and memory it uses."`

	Mix         []string      `default:"new,hot,replays,conflicts" placeholder:"A,B" help:"What is asked for, one after the other: new, hot (all on one order), replays, conflicts, simulator, or several at once such as new=80+replays=20 (default ${default})."`
	Connections []int         `default:"1,64,256" placeholder:"N,M" help:"Connections at once, one after the other (default ${default})."`
	Rate        float64       `default:"0" placeholder:"N" help:"Requests per second of an open loop; 0 sends the next one when one was answered."`
	Warmup      time.Duration `default:"2s" help:"Not counted, before each round."`
	Duration    time.Duration `default:"10s" help:"Of a round."`
	Rounds      int           `default:"3" help:"Of each mix and number of connections."`
	Orders      int64         `default:"100000" help:"Orders that refunds are spread over."`
	Executed    int64         `default:"20000" help:"Refunds that are executed before the first round."`
	IDs         string        `name:"ids" enum:"ascending,random" default:"ascending" help:"Operation ids ascend as UUIDv7 do, or are random as UUIDv4 are."`
	JSON        bool          `name:"json" help:"Print one JSON object."`

	ServeFlags       []string          `name:"serve-flag" sep:"none" placeholder:"--FLAG=VALUE" help:"With --self: a flag of serve, once for each."`
	SimulatorLatency time.Duration     `default:"10ms" help:"With --self: how long each answer of the simulated provider takes."`
	PostgresSetting  map[string]string `placeholder:"NAME=VALUE" help:"With --self: a setting of Postgres, such as shared_buffers=1GB."`
}

func (b benchCmd) mixes() ([]bench.Mix, error) {
	mixes := make([]bench.Mix, 0, len(b.Mix))
	for _, text := range b.Mix {
		m, err := bench.ParseMix(text)
		if err != nil {
			return nil, fault.Usage("--mix: %s", err)
		}
		mixes = append(mixes, m)
	}
	return mixes, nil
}

// asks tells whether some mix has requests of the kind.
func (b benchCmd) asks(kind bench.Kind) bool {
	mixes, err := b.mixes()
	return err == nil && slices.ContainsFunc(mixes, func(m bench.Mix) bool { return m.Has(kind) })
}

// check reports every value that makes no sense.
func (b benchCmd) check() error {
	var faults []error
	if b.Self == (b.URL != "") {
		faults = append(faults, errors.New("bench takes either --self, or --url and --database-url of a running deployment"))
	}
	if b.URL == "" && (len(b.Connections) == 0 || len(b.Mix) == 0) {
		faults = append(faults, errors.New("--connections and --mix must not be empty"))
	}
	for _, n := range b.Connections {
		if n < 1 {
			faults = append(faults, errors.New("--connections must be positive"))
		}
	}
	if b.Rate < 0 || b.Warmup < 0 || b.Duration <= 0 || b.Rounds < 1 {
		faults = append(faults, errors.New("--rate and --warmup must not be negative, --duration and --rounds must be positive"))
	}
	if b.Orders < 1 || b.Executed < 1 {
		faults = append(faults, errors.New("--orders and --executed must be positive"))
	}
	if len(faults) == 0 {
		return nil
	}
	return fault.Usage("%s", errors.Join(faults...))
}

// Run puts a deployment under load and prints what it did; where its answers and its rows differ, that ends with
// fault.ErrFound.
func (b benchCmd) Run(ctx context.Context, c console) (err error) {
	mixes, err := b.mixes()
	if err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	bed, err := b.bed(ctx, c)
	if err != nil {
		return err
	}
	defer bed.Stop()
	if err := b.meant(ctx, bed); err != nil {
		return err
	}
	results, proof, err := b.loads(ctx, c, bed, mixes)
	if err != nil && !errors.Is(err, bench.ErrUntrue) {
		return err
	}
	if printed := b.print(c, bench.Summarize(results), proof, err); printed != nil {
		return printed
	}
	if err != nil {
		_, _ = fmt.Fprintf(c.stderr, "refundd: %s\n", fault.Sentence(err))
		return fault.ErrFound
	}
	return nil
}

// bed is the deployment to put under load: the one that was named, or one that is started for this run.
func (b benchCmd) bed(ctx context.Context, c console) (*testbed.Bed, error) {
	if b.Self {
		return testbed.Start(ctx, testbed.Options{
			Postgres: b.PostgresSetting, Serve: b.ServeFlags, Simulator: b.asks(bench.KindSimulator),
			Latency: b.SimulatorLatency,
			Logger:  c.log,
		})
	}
	bed := &testbed.Bed{Database: b.Database, Target: bench.Target{Name: "refundd", URL: b.URL}}
	if b.AdminURL != "" {
		bed.Target.Used = bench.OfMetrics(b.AdminURL)
	}
	return bed, nil
}

// meant refuses a database with other books than those of earlier benches: what bench writes stays.
func (b benchCmd) meant(ctx context.Context, bed *testbed.Bed) error {
	conn, err := bed.Database.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := migrations.Check(ctx, conn); err != nil {
		return err
	}
	return postgres.Meant(ctx, conn, postgres.Intent{
		Command: "bench", Writes: "books that stay", Tenants: "bench-%", Really: b.Really,
	})
}

// loads runs every round of every load, and proves answers and books after each load.
func (b benchCmd) loads(ctx context.Context, c console, bed *testbed.Bed, mixes []bench.Mix) (
	results []bench.Result, total bench.Proof, err error,
) {
	pool, err := bed.Database.Open(ctx)
	if err != nil {
		return nil, total, err
	}
	defer pool.Close()
	progress := progressTo(c)
	defer progress("")
	runner, err := b.runner(ctx, pool, bed, progress)
	if err != nil {
		return nil, total, err
	}
	for _, mix := range mixes {
		for _, connections := range b.Connections {
			load := bench.Load{Mix: mix, Connections: connections, Rate: b.Rate, Warmup: b.Warmup, Duration: b.Duration}
			for range b.Rounds {
				result, err := runner.Run(ctx, bed.Target, load)
				if err != nil {
					return results, total, err
				}
				results = append(results, result)
				bed.EmptyLog()
			}
			progress("proving rows and books")
			proof, err := runner.Check(ctx)
			total = total.Add(proof)
			if err != nil {
				return results, total, err
			}
		}
	}
	return results, total, nil
}

// runner makes the tenant, its key and its rows.
func (b benchCmd) runner(ctx context.Context, pool *pgxpool.Pool, bed *testbed.Bed,
	progress func(string)) (*bench.Bench, error) {
	keys, err := access.New(access.Config{Pool: pool})
	if err != nil {
		return nil, err
	}
	tenant := "bench-" + strings.ToLower(rand.Text()[:10])
	if err := keys.CreateTenant(ctx, tenant, true); err != nil {
		return nil, accessFault(err)
	}
	secret, _, err := keys.CreateKey(ctx, access.NewKey{TenantID: tenant, Scopes: []access.Scope{access.RefundsWrite}})
	if err != nil {
		return nil, accessFault(err)
	}
	return bench.New(ctx, bench.Config{
		Pool: pool, TenantID: tenant, Secret: secret, Progress: progress, Audit: proveBooks(pool), Provider: bed.Provider,
		Scale: bench.Scale{Orders: b.Orders, Executed: b.Executed, Random: b.IDs == "random"},
	})
}

// proveBooks is the audit as a check.
func proveBooks(pool *pgxpool.Pool) func(context.Context) error {
	return func(ctx context.Context) error {
		report, err := reconcile.Audit(ctx, pool)
		if err != nil {
			return err
		}
		if report.LieCount == 0 {
			return nil
		}
		first := report.Lies[0]
		return fmt.Errorf("%w: %d contradictions in the books, the first of them: %s of order %s, operation %s: %s",
			bench.ErrUntrue, report.LieCount, first.Rule, first.OrderID, first.OperationID, first.Detail)
	}
}

// progressTo answers what shows a line: over the last one on a terminal, else one in five seconds. An empty one ends
// it.
func progressTo(c console) func(string) {
	var last time.Time
	return func(line string) {
		switch {
		case c.screen != nil:
			_, _ = fmt.Fprintf(c.screen, "\r\x1b[K%s", line)
		case line != "" && time.Since(last) > 5*time.Second:
			_, _ = fmt.Fprintln(c.stderr, line)
			last = time.Now()
		}
	}
}

func (b benchCmd) print(c console, summaries []bench.Summary, p bench.Proof, untrue error) error {
	if b.JSON {
		text := ""
		if untrue != nil {
			text = fault.Sentence(untrue)
		}
		return c.printJSON(bench.NewReport(summaries, p, text))
	}
	if err := bench.Print(c.stdout, summaries); err != nil {
		return err
	}
	c.printf("%d refunds were acknowledged; %d rows were found, %d of them without an answer; %d are missing, %d unexplained\n",
		p.Acknowledged, p.Rows, p.Unheard, p.Missing, p.Unexplained)
	return nil
}
