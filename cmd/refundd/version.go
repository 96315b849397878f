package main

import (
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

type versionCmd struct{}

// Run prints what the build recorded of itself.
func (versionCmd) Run(c console) error {
	b := thisBuild()
	c.printf("refundd %s (revision %s) %s\n", b.version, b.revision, runtime.Version())
	return nil
}

// Where a build has no history at hand, as in an image's, the linker sets these: -X main.version=1.2.3 -X
// main.revision=abc.
var version, revision string

// build is what a program knows of its making.
type build struct{ version, revision string }

func thisBuild() build {
	b := build{version, revision}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && b.revision == "" {
			b.revision = s.Value
		}
	}
	if b.version == "" {
		b.version = info.Main.Version
	}
	return build{orUnknown(b.version), orUnknown(b.revision)}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// collector tells the build in the metrics, where dashboards join it.
func (b build) collector() prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "refundd_build_info", Help: "1; the labels tell the running program's version, revision and Go.",
		ConstLabels: prometheus.Labels{"version": b.version, "revision": b.revision, "go": runtime.Version()},
	})
	info.Set(1)
	return info
}

// LogValue tells the build in the log.
func (b build) LogValue() slog.Value {
	return slog.GroupValue(slog.String("version", b.version), slog.String("revision", b.revision))
}
