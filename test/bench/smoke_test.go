package bench

import (
	"maps"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"refundd/test/harness"
)

// report is the part of bench's JSON that is looked at here.
type report struct {
	Loads []struct {
		Mix         string           `json:"mix"`
		Connections int              `json:"connections"`
		Answered    int64            `json:"answered"`
		Other       map[string]int64 `json:"other_answers"`
		Memory      int64            `json:"service_memory_bytes"`
		CPU         struct {
			Service *int64 `json:"service"`
		} `json:"cpu_us_per_answer"`
	} `json:"loads"`
	Acknowledged int64 `json:"acknowledged"`
	Rows         int64 `json:"rows"`
}

func read(t *testing.T, r harness.Result) report {
	t.Helper()
	if r.ExitCode != 0 {
		t.Fatalf("bench exits %d: %s\n%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	var found report
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		t.Fatalf("%v: %s", err, r.Stdout)
	}
	return found
}

// check wants nothing but the answers that each load is to have, and a row for each acknowledgement. How many there are
// in so short a time is the machine's affair.
func (r report) check(t *testing.T, loads int) {
	t.Helper()
	if len(r.Loads) != loads {
		t.Errorf("%d loads, want %d", len(r.Loads), loads)
	}
	for _, l := range r.Loads {
		// A busy machine may not keep up with an open loop; that is no fault of an answer.
		maps.DeleteFunc(l.Other, func(what string, _ int64) bool { return strings.HasPrefix(what, "not sent") })
		if len(l.Other) > 0 {
			t.Errorf("%s with %d connections: %d answers as they are to be, besides %v", l.Mix, l.Connections,
				l.Answered, l.Other)
		}
		if l.Memory == 0 || l.Answered > 0 && l.CPU.Service == nil {
			t.Errorf("%s with %d connections: neither CPU nor memory of the service is told", l.Mix, l.Connections)
		}
	}
	if r.Acknowledged == 0 || r.Acknowledged != r.Rows {
		t.Errorf("%d refunds were acknowledged, %d rows found", r.Acknowledged, r.Rows)
	}
}

func TestBench_ProvesTheAnswersOfARunningDeployment(t *testing.T) {
	t.Parallel()
	s := harness.New(t)
	r := harness.Command(t, s.DB.URL, "bench", "--url", s.Servers[0].URL, "--admin-url", s.Servers[0].AdminURL,
		"--json", "--rounds", "1", "--warmup", "100ms",
		"--duration", "900ms", "--orders", "500", "--executed", "500", "--connections", "16",
		"--mix", "new,hot,replays,conflicts,new=60+hot=10+replays=20+conflicts=10", "--ids", "random")
	read(t, r).check(t, 5)
	s.Audit(t)
}

func TestBench_StartsADeploymentOfItsOwn(t *testing.T) {
	t.Parallel()
	r := harness.Command(t, "", "bench", "--self", "--json", "--rounds", "2", "--warmup", "100ms", "--duration",
		"500ms",
		"--orders", "500", "--executed", "500", "--connections", "16", "--mix", "new,simulator,replays", "--rate", "100",
		"--simulator-latency", "5ms")
	read(t, r).check(t, 3)
}
