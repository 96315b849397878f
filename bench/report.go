package bench

import "time"

// Report is what a run measured, to be written as JSON. Durations are milliseconds, CPU is microseconds per answer;
// null where nobody can tell.
type Report struct {
	Loads        []loadReport `json:"loads"`
	Acknowledged int64        `json:"acknowledged"`
	Rows         int64        `json:"rows"`
	Unheard      int64        `json:"rows_without_answer"`
	Missing      int64        `json:"missing_rows"`
	Unexplained  int64        `json:"unexplained_rows"`
	Untrue       string       `json:"untrue,omitzero"`
}

type loadReport struct {
	Target      string           `json:"target"`
	Mix         string           `json:"mix"`
	Connections int              `json:"connections"`
	Rate        float64          `json:"rate"`
	Rounds      int              `json:"rounds"`
	PerSecond   ratesReport      `json:"per_second"`
	Latency     latencyReport    `json:"latency_ms"`
	Shed        float64          `json:"shed_per_second"`
	ShedLatency latencyReport    `json:"shed_latency_ms"`
	Other       map[string]int64 `json:"other_answers"`
	Answered    int64            `json:"answered"`
	CPU         cpuReport        `json:"cpu_us_per_answer"`
	WALBytes    int64            `json:"wal_bytes_per_answer"`
	Memory      *int64           `json:"service_memory_bytes"`
	OthersCPUs  *float64         `json:"others_cpus"`
}

type ratesReport struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

type latencyReport struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

type cpuReport struct {
	Service   *int64 `json:"service"`
	Postgres  *int64 `json:"postgres"`
	Provider  *int64 `json:"provider"`
	Generator *int64 `json:"generator"`
}

// NewReport returns what was measured and proved; untrue words what was not true, "" where all was.
func NewReport(summaries []Summary, p Proof, untrue string) Report {
	report := Report{Loads: []loadReport{}, Acknowledged: p.Acknowledged, Rows: p.Rows, Unheard: p.Unheard,
		Missing: p.Missing, Unexplained: p.Unexplained, Untrue: untrue}
	for _, s := range summaries {
		report.Loads = append(report.Loads, loadReportOf(s))
	}
	return report
}

func loadReportOf(s Summary) loadReport {
	l := loadReport{
		Target: s.Target, Mix: s.Mix, Connections: s.Connections, Rate: s.Rate, Rounds: s.Rounds,
		PerSecond: ratesReport{s.Median, s.Min, s.Max}, Latency: latencyOf(s.Latency),
		Shed: s.ShedPerSecond, ShedLatency: latencyOf(s.Shedding), Other: s.Other, Answered: s.Answered,
		CPU: cpuReport{
			perAnswer(s, s.Cost.Service), perAnswer(s, s.Cost.Postgres), perAnswer(s, s.Cost.Provider),
			perAnswer(s, s.Cost.Generator),
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

func latencyOf(h *Histogram) latencyReport {
	at := func(q float64) float64 { return float64(h.Quantile(q).Microseconds()) / 1000 }
	return latencyReport{at(0.5), at(0.9), at(0.99), at(0.999)}
}

func perAnswer(s Summary, part time.Duration) *int64 {
	d := s.PerAnswer(part)
	if d < 0 {
		return nil
	}
	us := d.Microseconds()
	return &us
}
