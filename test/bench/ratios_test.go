package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"refundd/bench"
)

var (
	rounds   = flag.Int("rounds", 5, "of each load, the targets taking turns")
	duration = flag.Duration("duration", 5*time.Second, "of a round")
	warmup   = flag.Duration("warmup", time.Second, "before each round")
	flood    = flag.Int("flood", 5000, "connections of the overload")
)

// pgbenchClients are tried once each; the best one then takes part in every round.
var pgbenchClients = []int{8, 16, 32, 64}

// BenchmarkRatios prints how refundd compares with the baseline and with pgbench. It runs once, whatever b.N.
func BenchmarkRatios(b *testing.B) {
	c := compare(b, durable(b), bench.Scale{})
	c.duration, c.warmup = *duration, *warmup
	for _, target := range []bench.Target{c.refundd, c.baseline} { // caches, connections, plans
		c.round(b, target, "new", 64, 0)
	}
	c.results = nil
	clients, best := 0, 0.0
	for _, n := range pgbenchClients {
		rate := c.pgbench(b, n)
		fmt.Fprintf(os.Stderr, "pgbench   %4d clients: %5.0f per second\n", n, rate)
		if rate > best {
			clients, best = n, rate
		}
	}
	var reference, peaks []float64
	for _, connections := range []int{1, 64, 256} {
		for range *rounds { // what is compared takes turns, so that it meets the same moods of the machine
			for _, mix := range []string{"new", "replays", "hot", "conflicts"} {
				c.round(b, c.refundd, mix, connections, 0)
				c.round(b, c.baseline, mix, connections, 0)
				if mix == "new" && connections > 1 {
					reference = append(reference, c.pgbench(b, clients))
				}
			}
		}
		c.check(b)
	}
	for range *rounds {
		c.round(b, c.refundd, "simulator", 256, 0)
	}
	c.check(b)
	peak := find(c.summaries(), "refundd", "new", 256).Median
	for range *rounds {
		peaks = append(peaks, c.round(b, c.refundd, "new", 256, 0).PerSecond())
		c.round(b, c.refundd, "new", *flood, 5*peak)
	}
	c.check(b)
	c.report(b, clients, max(best, median(reference)), median(peaks))
}

func (c *comparison) summaries() []bench.Summary { return bench.Summarize(c.results) }

func find(summaries []bench.Summary, target, mix string, connections int) bench.Summary {
	for _, s := range summaries {
		if s.Target == target && s.Mix == mix && s.Connections == connections {
			return s
		}
	}
	return bench.Summary{Latency: new(bench.Histogram), Shedding: new(bench.Histogram)}
}

// report prints everything, and the ratios beside their goals.
func (c *comparison) report(b *testing.B, clients int, pgbench, peak float64) {
	b.Helper()
	all := c.summaries()
	if err := bench.Print(os.Stdout, all); err != nil {
		b.Fatal(err)
	}
	ours := func(mix string, n int) bench.Summary { return find(all, "refundd", mix, n) }
	theirs := func(mix string, n int) bench.Summary { return find(all, "baseline", mix, n) }
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	ratio := func(what string, a, b float64, goal string) {
		fmt.Fprintf(out, "%s\t%.2f\t%s\n", what, a/b, goal)
	}
	fmt.Fprintf(out, "\none transaction per refund, pgbench, best of any number of clients (%d)\t%.0f/s\t\nratio\tmeasured\tgoal\n", clients, pgbench)
	ratio("new refunds, 256 connections, to the baseline", ours("new", 256).Median, theirs("new", 256).Median,
		"at least 4")
	ratio("new refunds, 64 connections, to the baseline", ours("new", 64).Median, theirs("new", 64).Median,
		"at least 3")
	ratio("new refunds, 256 connections, to pgbench", ours("new", 256).Median, pgbench, "at least 1.0")
	ratio("new refunds, 64 connections, to pgbench", ours("new", 64).Median, pgbench, "at least 1.0")
	ratio("p50 of 1 connection, to the baseline's", seconds(ours("new", 1), 0.5), seconds(theirs("new", 1), 0.5),
		"at most 1.1")
	ratio("p99 of 256 connections, to the baseline's", seconds(ours("new", 256), 0.99),
		seconds(theirs("new", 256), 0.99), "at most 0.5")
	ratio("replays to new refunds, 256 connections", ours("replays", 256).Median, ours("new", 256).Median,
		"at least 2.5")
	ratio("one hot order, 256 connections, to the baseline", ours("hot", 256).Median, theirs("hot", 256).Median,
		"at least 2")
	// Whatever else the machine did meanwhile, CPU per refund stays: what each rate is limited by where the CPU is the
	// limit.
	ratio("CPU per new refund of all parts, 256 connections, the baseline's to ours", cpu(theirs("new", 256)),
		cpu(ours("new", 256)), "")
	ratio("CPU per new refund of all parts, 64 connections, the baseline's to ours", cpu(theirs("new", 64)),
		cpu(ours("new", 64)), "")
	// What 256 connections and a provider that takes 10 ms allow.
	ratio("refunds through the simulator, 256 connections, to connections / latency", ours("simulator", 256).Median,
		256/0.010, "at least 0.8, or the CPU is the limit")
	flooded := ours("new", *flood)
	ratio("goodput at 5 times the capacity, to the peak", flooded.Median, peak, "at least 0.8")
	fmt.Fprintf(out, "503 at 5 times the capacity, p99\t%v\tat most 100ms\n", flooded.Shedding.Quantile(0.99))
	fmt.Fprintf(out, "answers at 5 times the capacity, 503 included\t%.0f/s\tCPU of all parts for each: %.0f µs\n",
		float64(flooded.Answered+flooded.Shed)/flooded.Took.Seconds(),
		cpu(flooded)*1e6*float64(flooded.Answered)/float64(max(flooded.Answered+flooded.Shed, 1)))
	if err := out.Flush(); err != nil {
		b.Fatal(err)
	}
}

func seconds(s bench.Summary, q float64) float64 { return s.Latency.Quantile(q).Seconds() }

func cpu(s bench.Summary) float64 {
	return s.PerAnswer(s.Cost.Service + s.Cost.Postgres + s.Cost.Generator).Seconds()
}

func median(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(rates))
	return sorted[len(sorted)/2]
}
