// Package collector has a real OpenTelemetry collector take the spans of a real server. It is a module of its own,
// since the service needs none of what a collector is made of; .ci/collector runs it.
package collector

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

// kept is the end of the pipeline: what the collector took, in memory.
type kept struct {
	component.StartFunc
	component.ShutdownFunc
	*consumertest.TracesSink
}

// start runs a collector with one pipeline: OTLP over HTTP, and what is kept.
func start(t *testing.T, addr string) *consumertest.TracesSink {
	t.Helper()
	sink := new(consumertest.TracesSink)
	exports := exporter.NewFactory(component.MustNewType("kept"), func() component.Config { return &struct{}{} },
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			return kept{TracesSink: sink}, nil
		}, component.StabilityLevelStable))
	receives := otlpreceiver.NewFactory()
	config := fmt.Sprintf(`yaml:
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {kept: {}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines: {traces: {receivers: [otlp], exporters: [kept]}}`, addr)
	collector, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo:               component.NewDefaultBuildInfo(),
		DisableGracefulShutdown: true,
		Factories: func() (otelcol.Factories, error) {
			return otelcol.Factories{
				Receivers: map[component.Type]receiver.Factory{receives.Type(): receives},
				Exporters: map[component.Type]exporter.Factory{exports.Type(): exports},
				Telemetry: otelconftelemetry.NewFactory(),
			}, nil
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{config}, ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- collector.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("the collector ends with %v", err)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); collector.GetState() != otelcol.StateRunning; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the collector is %v", collector.GetState())
		}
	}
	return sink
}

func TestCollector_TakesTheSpansOfARefund(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	sink := start(t, addr)

	s := harness.NewPaying(t, "--otlp-endpoint", "http://"+addr)
	server := s.AddServer(t)
	tenant := s.OpenTenant(t)
	tenant.Pay(harness.Payment{OrderID: "L", Cents: 100})
	if a := tenant.Client().Refund("K", "L", 100); a.Says() != "processed" {
		t.Fatalf("refund: %d %s", a.Status, a.Body)
	}
	if code := server.Terminate(t); code != 0 { // which sends what is left
		t.Errorf("serve ends with %d", code)
	}
	names := map[string]int{}
	for _, traces := range sink.AllTraces() {
		for _, resource := range traces.ResourceSpans().All() {
			if name, _ := resource.Resource().Attributes().Get("service.name"); name.Str() != "refundd" {
				t.Errorf("spans of service %q", name.Str())
			}
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					names[span.Name()]++
				}
			}
		}
	}
	for _, name := range []string{"POST /v1/refunds", "batch of refunds", "transaction", "provider refund",
		"batch of outcomes"} {
		if names[name] == 0 {
			t.Errorf("the collector got no span %q: %v", name, names)
		}
	}
}
