package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is one load on one target, as far as it was counted.
type Result struct {
	Target      string
	Mix         string
	Connections int
	Rate        float64          // of an open loop, requests per second; 0 is a closed one
	Took        time.Duration    // for which it was counted
	Answered    int64            // requests that ended in the counted time and were answered as they are to be
	Shed        int64            // that were answered 503
	Latency     *Histogram       // of Answered; of an open loop from when the request was to be sent
	ShedLatency *Histogram       // of Shed, from when the request was sent
	Other       map[string]int64 // anything else, by status and code or by error, warm-up included
	// the longest that a request of an open loop waited for a free connection; its latency includes it
	Late   time.Duration
	Cost   Cost
	Memory int64 // bytes that the service held at the end, resident; 0 where nobody can tell
}

// PerSecond is the rate of answers as they are to be.
func (r Result) PerSecond() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Answered) / r.Took.Seconds()
}

// OthersShare is the part of one processor that everything else on the machine used meanwhile; -1 where nobody can
// tell.
func (r Result) OthersShare() float64 {
	if r.Cost.Others == untold || r.Took <= 0 {
		return -1
	}
	return r.Cost.Others.Seconds() / r.Took.Seconds()
}

// Summary is the rounds of one load on one target.
type Summary struct {
	Target, Mix       string
	Connections       int
	Rate              float64
	Rounds            int
	Median, Min, Max  float64 // answers per second
	Latency, Shedding *Histogram
	ShedPerSecond     float64
	Shed              int64
	Other             map[string]int64
	Answered          int64
	Took              time.Duration
	Cost              Cost
	Memory            int64 // of the last round
}

// Summarize puts rounds of the same target and load together, in the order in which they first appear.
func Summarize(results []Result) []Summary {
	type load struct {
		target, mix string
		connections int
		rate        float64
	}
	var order []load
	rounds := make(map[load][]Result)
	for _, r := range results {
		l := load{r.Target, r.Mix, r.Connections, r.Rate}
		if rounds[l] == nil {
			order = append(order, l)
		}
		rounds[l] = append(rounds[l], r)
	}
	summaries := make([]Summary, 0, len(order))
	for _, l := range order {
		summaries = append(summaries, summarize(rounds[l]))
	}
	return summaries
}

func summarize(rounds []Result) Summary {
	first := rounds[0]
	s := Summary{
		Target: first.Target, Mix: first.Mix, Connections: first.Connections, Rate: first.Rate, Rounds: len(rounds),
		Latency: new(Histogram), Shedding: new(Histogram), Other: make(map[string]int64), Cost: first.Cost,
	}
	rates := make([]float64, 0, len(rounds))
	for i, r := range rounds {
		rates = append(rates, r.PerSecond())
		s.Latency.Merge(r.Latency)
		s.Shedding.Merge(r.ShedLatency)
		s.Answered += r.Answered
		s.Took += r.Took
		s.Memory = r.Memory
		s.Shed += r.Shed
		for what, n := range r.Other {
			s.Other[what] += n
		}
		if i > 0 {
			s.Cost = s.Cost.Add(r.Cost)
		}
	}
	slices.Sort(rates)
	s.Min, s.Max = rates[0], rates[len(rates)-1]
	s.Median = (rates[(len(rates)-1)/2] + rates[len(rates)/2]) / 2
	s.ShedPerSecond = float64(s.Shed) / s.Took.Seconds()
	return s
}

// PerAnswer is a part of the cost for each answer that was as it is to be; -1 where it is not known.
func (s Summary) PerAnswer(part time.Duration) time.Duration {
	if part == untold || s.Answered == 0 {
		return untold
	}
	return part / time.Duration(s.Answered)
}

// Print writes summaries as a table: answers per second, latency, CPU and log per answer, what was shed, and how many
// CPUs everything else on the machine used meanwhile.
func Print(w io.Writer, summaries []Summary) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(out, "target\tmix\tconns\t/s\tmin–max\tp50 ms\tp90\tp99\tp99.9\tservice µs\tPostgres µs\tprovider µs\tgenerator µs\tWAL B\tmemory MiB\t503/s\tp99 ms\tothers\t")
	for _, s := range summaries {
		load := fmt.Sprintf("%d", s.Connections)
		if s.Rate > 0 {
			load += fmt.Sprintf("@%.0f/s", s.Rate)
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t%.0f\t%.0f–%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%.0f\t%s\t%s\t\n",
			s.Target, s.Mix, load, s.Median, s.Min, s.Max,
			millis(s.Latency, 0.5), millis(s.Latency, 0.9), millis(s.Latency, 0.99), millis(s.Latency, 0.999),
			micros(s.PerAnswer(s.Cost.Service)), micros(s.PerAnswer(s.Cost.Postgres)), micros(s.PerAnswer(s.Cost.Provider)),
			micros(s.PerAnswer(s.Cost.Generator)), s.Cost.WALBytes/max(s.Answered,
				1), mebibytes(s.Memory), s.ShedPerSecond,
			millis(s.Shedding, 0.99), share(s))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	for _, s := range summaries {
		for _, what := range slices.SortedFunc(keysOf(s.Other),
			func(a, b string) int { return cmp.Compare(s.Other[b], s.Other[a]) }) {
			_, _ = fmt.Fprintf(w, "%s, %s, %d connections: %d × %s\n", s.Target, s.Mix, s.Connections, s.Other[what],
				strings.TrimSpace(what))
		}
	}
	return nil
}

func keysOf(m map[string]int64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func millis(h *Histogram, q float64) string {
	if h.Count() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(h.Quantile(q).Microseconds())/1000)
}

func micros(d time.Duration) string {
	if d == untold {
		return "-"
	}
	return fmt.Sprintf("%d", d.Microseconds())
}

func mebibytes(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d", n>>20)
}

func share(s Summary) string {
	if s.Cost.Others == untold || s.Took <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", s.Cost.Others.Seconds()/s.Took.Seconds())
}
