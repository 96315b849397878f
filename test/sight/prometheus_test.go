//go:build sight

package sight

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"refundd/test/harness"
)

var pictures = flag.String("pictures", "", "folder for what test/sight/draw draws the dashboard from")

// TestDashboard_ShowsARunWithFaults has a real Prometheus scrape two real servers while refunds go well and wrong, and
// asks it each query of the dashboard and each rule.
func TestDashboard_ShowsARunWithFaults(t *testing.T) {
	s := harness.NewPaying(t, "--provider-breaker-failures", "3", "--provider-breaker-open", "3s",
		"--webhook-allow-private", "--backoff-min", "1s", "--backoff-max", "2s")
	s.AddServer(t)
	s.AddServer(t)
	p := startPrometheus(t, map[string][]string{"refundd": {host(s.Servers[0].AdminURL), host(s.Servers[1].AdminURL)}})
	run := newRun(t, s)
	for round := range 12 {
		run.round(round)
	}
	s.Audit(t)
	time.Sleep(2 * time.Second)

	var answers []answer
	for _, q := range p.dashboard(t) {
		series := p.ask(t, q.expr)
		if len(series) == 0 {
			t.Errorf("panel %q: no data for %s", q.title, q.expr)
		}
		answers = append(answers, q.answer(series))
	}
	if *pictures != "" {
		keep(t, *pictures, answers)
	}
	raised := []string{"RefunddNeedsAttention", "RefunddBooksContradicted", "RefunddProviderUncertain"}
	alerts := p.states(t)
	for more := 12; more < 24 &&
		slices.ContainsFunc(raised, func(name string) bool { return alerts[name] == "inactive" }); more++ {
		run.round(more) // a counter rises only between two scrapes
		time.Sleep(time.Second)
		alerts = p.states(t)
	}
	for _, name := range raised {
		if alerts[name] != "pending" && alerts[name] != "firing" {
			t.Errorf("%s is %q after this run", name, alerts[name])
		}
	}
	if quiet := []string{"RefunddDown", "RefunddAuditLies", "RefunddOverRefunded", "RefunddInternalErrors",
		"RefunddLogLinesLost"}; slices.ContainsFunc(quiet,
		func(name string) bool { return alerts[name] != "inactive" }) {
		t.Errorf("an alert is raised for nothing: %v", alerts)
	}
}

// states are what the alerts are in, by their names; each must be a rule that Prometheus can follow.
func (p prometheus) states(t *testing.T) map[string]string {
	t.Helper()
	alerts := map[string]string{}
	for _, rule := range p.rules(t) {
		if rule.Health != "ok" {
			t.Errorf("rule %s is %s: %s", rule.Name, rule.Health, rule.LastError)
		}
		alerts[rule.Name] = rule.State
	}
	return alerts
}

// run is refunds that go well and wrong.
type run struct {
	t      *testing.T
	s      *harness.Service
	tenant *harness.Tenant

	refuses *atomic.Bool // webhooks
}

func newRun(t *testing.T, s *harness.Service) run {
	r := run{t, s, s.OpenTenant(t), &atomic.Bool{}}
	r.tenant.Order("P", 1_000_000)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if r.refuses.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(func() { receiver.CloseClientConnections(); receiver.Close() })
	r.tenant.Client().Post("/v1/webhook-endpoints", harness.Fields{"url": receiver.URL})
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(func() { gone.CloseClientConnections(); gone.Close() })
	r.tenant.Client().Post("/v1/webhook-endpoints", harness.Fields{"url": gone.URL})
	return r
}

// round is about a second of it.
func (r run) round(n int) {
	pay := func(operation string, fault ...string) {
		for _, mode := range fault {
			r.s.Simulator.Fault(mode, harness.Times(1), harness.After(time.Millisecond))
		}
		r.tenant.Pay(harness.Payment{OrderID: operation, Cents: 1000})
		r.tenant.At(n).Refund(operation, operation, 500)
	}
	for i := range 20 {
		r.tenant.At(i).Refund(fmt.Sprintf("K-%d-%d", n, i), "P", 100)
		r.tenant.At(i).Refund(fmt.Sprintf("K-%d-%d", n, i), "P", 100)
	}
	r.tenant.At(n).Refund(fmt.Sprintf("K-%d-0", n), "P", 101)
	pay(fmt.Sprintf("well-%d", n))
	pay(fmt.Sprintf("declined-%d", n), "decline")
	pay(fmt.Sprintf("lost-%d", n), "error_after")
	pay(fmt.Sprintf("pending-%d", n), "pending")
	r.tenant.At(n).Post("/v1/refund-requests", harness.Fields{
		"case_id": fmt.Sprint("c-", n), "order_id": "P", "amount_cents": 1, "reason_code": "damaged",
	})
	r.refuses.Store(n > 4)
	switch n {
	case 3: // the provider shows two refunds where there is to be one
		pay("twice")
		r.s.Simulator.Refund("by-hand", harness.Fields{
			"payment_ref": r.tenant.Ref("twice"), "amount_cents": 500, "currency": "EUR",
			"metadata": harness.Fields{"tenant_id": r.tenant.ID, "operation_id": "twice"},
		})
		r.s.Due(r.t)
	case 5: // nothing answers for longer than a person is to be told
		r.s.Simulator.Fault("error_before", harness.Times(3))
		for i := range 4 {
			pay(fmt.Sprintf("away-%d", i))
		}
		r.tenant.Exec(`UPDATE refund_operations SET created_at = now() - interval '100 hours'
			WHERE operation_id LIKE 'away-%'`)
		r.s.Simulator.Fault("lookup_down")
		r.s.Due(r.t)
	case 7:
		r.s.Simulator.Heal()
	}
	r.s.Reconcile(r.t)
	time.Sleep(300 * time.Millisecond)
}

func host(rawURL string) string {
	u, _ := url.Parse(rawURL)
	return u.Host
}

// prometheus is a real one.
type prometheus struct{ url string }

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

func startPrometheus(t *testing.T, targets map[string][]string) prometheus {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n",
		filepath.Join(harness.Root(), "deploy", "prometheus", "alerts.yaml"))
	for job, hosts := range targets {
		config += fmt.Sprintf("  - {job_name: %s, static_configs: [{targets: [%s]}]}\n", job, strings.Join(hosts, ", "))
	}
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), "prometheus", "--config.file", path, "--storage.tsdb.path",
		filepath.Join(dir, "data"),
		"--web.listen-address", "127.0.0.1:0")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start prometheus (Debian: apt-get install prometheus): %v", err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
	for range 200 {
		said, _ := os.ReadFile(log.Name())
		if m := listening.FindSubmatch(said); m != nil {
			return prometheus{"http://" + string(m[1])}
		}
		time.Sleep(50 * time.Millisecond)
	}
	said, _ := os.ReadFile(log.Name())
	t.Fatalf("prometheus does not serve:\n%s", said)
	return prometheus{}
}

// get asks Prometheus's API.
func (p prometheus) get(t *testing.T, path string, data any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Errorf("prometheus answers %s: %d %s %v", path, res.StatusCode, answer.Error, err)
	}
}

// series is one line of a panel.
type series struct {
	Metric map[string]string
	Values [][2]any // time, value as text
}

// window is how far back rates look, and the whole of a picture.
const window, picture = "5s", time.Minute

// ask answers a query over the run; what is only NaN is no data.
func (p prometheus) ask(t *testing.T, expr string) []series {
	t.Helper()
	expr = strings.ReplaceAll(expr, "$__rate_interval", window)
	now := time.Now()
	var data struct{ Result []series }
	p.get(t, "/api/v1/query_range?"+url.Values{
		"query": {expr}, "start": {fmt.Sprint(now.Add(-picture).Unix())}, "end": {fmt.Sprint(now.Unix())}, "step": {"1"},
	}.Encode(), &data)
	return slices.DeleteFunc(data.Result, func(s series) bool {
		return !slices.ContainsFunc(s.Values, func(v [2]any) bool { return v[1] != "NaN" })
	})
}

type rule struct{ Name, State, Health, LastError string }

func (p prometheus) rules(t *testing.T) []rule {
	t.Helper()
	var data struct{ Groups []struct{ Rules []rule } }
	p.get(t, "/api/v1/rules", &data)
	var all []rule
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Errorf("prometheus has %d rules", len(all))
	}
	return all
}

// query is one of a panel's.
type query struct {
	panel               int
	title, expr, legend string
}

func (p prometheus) dashboard(t *testing.T) []query {
	t.Helper()
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy", "grafana", "refundd.json")), &d); err != nil {
		t.Fatal(err)
	}
	var all []query
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{panel.ID, panel.Title, target.Expr, target.LegendFormat})
		}
	}
	if len(all) < 30 {
		t.Errorf("the dashboard has %d queries", len(all))
	}
	return all
}

// answer is a query's lines as a panel shows them.
type answer struct {
	Panel  int    `json:"panel"`
	Series []line `json:"series"`
}

type line struct {
	Name   string `json:"name"`
	Times  []any  `json:"times"`
	Values []any  `json:"values"` // as text
}

func (q query) answer(all []series) answer {
	a := answer{Panel: q.panel}
	for _, s := range all {
		l := line{Name: q.legend}
		for label, value := range s.Metric {
			l.Name = strings.ReplaceAll(l.Name, "{{"+label+"}}", value)
		}
		for _, v := range s.Values {
			l.Times, l.Values = append(l.Times, v[0]), append(l.Values, v[1])
		}
		a.Series = append(a.Series, l)
	}
	return a
}

// keep writes what test/sight/draw draws.
func keep(t *testing.T, dir string, answers []answer) {
	t.Helper()
	text, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	module := "export const dashboard = " + read(t, "deploy", "grafana", "refundd.json") +
		";\nexport const answers = " + string(text) + ";\n"
	if err := os.WriteFile(filepath.Join(dir, "run.js"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
}
