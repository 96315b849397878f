package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/test/testdb"
)

// described is a metric as the registry describes it: {fqName: "…", …, constLabels: {a="…"}, variableLabels: {b,c}}.
var described = regexp.MustCompile(`fqName: "(refundd_[a-z_]+)".*constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}`)

var documented = regexp.MustCompile("(?m)^\\| `(refundd_[a-z_]+)` \\| ([a-z, ]*) ?\\| ")

// TestReference_ListsEveryMetric holds docs/reference.md, names and labels, against what a service registers.
func TestReference_ListsEveryMetric(t *testing.T) {
	t.Parallel()
	c, flush := newConsole(&bytes.Buffer{}, &bytes.Buffer{})
	defer flush()
	f := serviceFlags{RequestTimeout: time.Second, MaxQueue: 1}
	f.SimulatorURL, f.ProviderTimeout, f.ProviderBreakerFailures, f.ProviderBreakerOpen = "http://127.0.0.1:1",
		time.Second, 1, time.Second
	s, err := newService(c, testdb.New(t).Pool, f)
	if err != nil {
		t.Fatal(err)
	}
	defer s.cutOff()
	registered := map[string]string{}
	for _, d := range describe(s.registry) {
		m := described.FindStringSubmatch(d)
		if m == nil {
			continue // of Go and its process
		}
		labels := regexp.MustCompile(`[a-z_]+(?:=)?`).FindAllString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(m[2],
			""),
			-1)
		for i := range labels {
			labels[i] = strings.TrimSuffix(labels[i], "=")
		}
		if m[3] != "" {
			labels = append(labels, strings.Split(m[3], ",")...)
		}
		slices.Sort(labels)
		registered[m[1]] = strings.Join(labels, " ")
	}
	told := map[string]string{}
	for _, row := range documented.FindAllStringSubmatch(reference(t), -1) {
		labels := strings.FieldsFunc(row[2], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		told[row[1]] = strings.Join(labels, " ")
	}
	if d := cmp.Diff(told, registered); d != "" || len(told) < 20 {
		t.Errorf("%d in docs/reference.md (-), registered (+):\n%s", len(told), d)
	}
}

func describe(r *prometheus.Registry) []string {
	out := make(chan *prometheus.Desc)
	go func() {
		defer close(out)
		r.Describe(out)
	}()
	var all []string
	for d := range out {
		all = append(all, d.String())
	}
	return all
}
