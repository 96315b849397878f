package main

import (
	"time"

	"refundd/bench"
)

// benchReport is what a run measured, as JSON. Durations are milliseconds, CPU is microseconds per answer; null where nobody
// can tell.
type benchReport struct {
	Loads        []benchLoad `json:"loads"`
	Acknowledged int64       `json:"acknowledged"`
	Rows         int64       `json:"rows"`
	Unheard      int64       `json:"rows_without_answer"`
	Missing      int64       `json:"missing_rows"`
	Unexplained  int64       `json:"unexplained_rows"`
	Untrue       string      `json:"untrue,omitzero"`
}

type benchLoad struct {
	Target      string           `json:"target"`
	Mix         string           `json:"mix"`
	Connections int              `json:"connections"`
	Rate        float64          `json:"rate"`
	Rounds      int              `json:"rounds"`
	PerSecond   benchRates       `json:"per_second"`
	Latency     benchLatency     `json:"latency_ms"`
	Shed        float64          `json:"shed_per_second"`
	ShedLatency benchLatency     `json:"shed_latency_ms"`
	Other       map[string]int64 `json:"other_answers"`
	Answered    int64            `json:"answered"`
	CPU         benchCPU         `json:"cpu_us_per_answer"`
	WALBytes    int64            `json:"wal_bytes_per_answer"`
	Memory      *int64           `json:"service_memory_bytes"`
	OthersCPUs  *float64         `json:"others_cpus"`
}

type benchRates struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

type benchLatency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

type benchCPU struct {
	Service   *int64 `json:"service"`
	Postgres  *int64 `json:"postgres"`
	Provider  *int64 `json:"provider"`
	Generator *int64 `json:"generator"`
}

func (b benchCmd) print(c console, summaries []bench.Summary, p bench.Proof, untrue error) error {
	if !b.JSON {
		if err := bench.Print(c.stdout, summaries); err != nil {
			return err
		}
		c.printf("%d refunds were acknowledged; %d rows were found, %d of them without an answer; %d are missing, %d unexplained\n",
			p.Acknowledged, p.Rows, p.Unheard, p.Missing, p.Unexplained)
		return nil
	}
	report := benchReport{Loads: []benchLoad{}, Acknowledged: p.Acknowledged, Rows: p.Rows, Unheard: p.Unheard,
		Missing: p.Missing, Unexplained: p.Unexplained}
	if untrue != nil {
		report.Untrue = sentence(untrue)
	}
	for _, s := range summaries {
		report.Loads = append(report.Loads, benchLoadOf(s))
	}
	return printJSON(c, report)
}

func benchLoadOf(s bench.Summary) benchLoad {
	l := benchLoad{
		Target: s.Target, Mix: s.Mix, Connections: s.Connections, Rate: s.Rate, Rounds: s.Rounds,
		PerSecond: benchRates{s.Median, s.Min, s.Max}, Latency: latencyOf(s.Latency),
		Shed: s.ShedPerSecond, ShedLatency: latencyOf(s.Shedding), Other: s.Other, Answered: s.Answered,
		CPU: benchCPU{
			perAnswer(s, s.Cost.Service), perAnswer(s, s.Cost.Postgres), perAnswer(s, s.Cost.Provider), perAnswer(s, s.Cost.Generator),
		},
		WALBytes: s.Cost.WALBytes / max(s.Answered, 1),
	}
	if s.Memory > 0 {
		l.Memory = &s.Memory
	}
	if s.Cost.Others >= 0 {
		cpus := s.Cost.Others.Seconds() / s.Took.Seconds()
		l.OthersCPUs = &cpus
	}
	return l
}

func latencyOf(h *bench.Histogram) benchLatency {
	at := func(q float64) float64 { return float64(h.Quantile(q).Microseconds()) / 1000 }
	return benchLatency{at(0.5), at(0.9), at(0.99), at(0.999)}
}

func perAnswer(s bench.Summary, part time.Duration) *int64 {
	d := s.PerAnswer(part)
	if d < 0 {
		return nil
	}
	us := d.Microseconds()
	return &us
}
