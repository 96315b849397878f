package harness

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Sample is one number of /metrics.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// MetricsText reads /metrics of the admin address as it is.
func (s *Server) MetricsText(t testing.TB) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.AdminURL+"/metrics", nil)
	if err != nil {
		t.Fatalf("read metrics: %v", err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatalf("read metrics: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("read metrics: %d %v", res.StatusCode, err)
	}
	return string(body)
}

// Metrics reads /metrics apart.
func (s *Server) Metrics(t testing.TB) []Sample {
	t.Helper()
	var samples []Sample
	for line := range strings.Lines(s.MetricsText(t)) {
		line = strings.TrimSpace(line)
		cut := strings.LastIndexByte(line, ' ')
		if line == "" || line[0] == '#' || cut < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		name, labels, _ := strings.Cut(strings.TrimSuffix(line[:cut], "}"), "{")
		samples = append(samples, Sample{name, readLabels(labels), value})
	}
	return samples
}

func readLabels(text string) map[string]string {
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, `",`) {
		name, value, _ := strings.Cut(pair, `="`)
		labels[name] = strings.TrimSuffix(value, `"`)
	}
	return labels
}
