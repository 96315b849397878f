package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
)

// document is a bill of materials (https://cyclonedx.org/docs/1.6/json).
type document struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Licenses   []licence  `json:"licenses"`
	Properties []property `json:"properties,omitempty"`
}

type licence struct {
	Expression string `json:"expression"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// bill says what the binary itself says that it was made of.
func bill(ctx context.Context, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read the binary: %w", err)
	}
	all, err := linked(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for _, m := range all {
		known[m.path+"@"+m.version] = m.licence
	}
	d := document{Format: "CycloneDX", SpecVersion: "1.6", Version: 1}
	d.Metadata.Component = of("application", info.Main.Path, info.Main.Version, "Apache-2.0")
	for _, s := range info.Settings { // GOOS, GOARCH, the revision, the flags
		d.Metadata.Component.Properties = append(d.Metadata.Component.Properties,
			property{"go:build:" + s.Key, s.Value})
	}
	d.Components = []component{of("library", "std", info.GoVersion, "BSD-3-Clause")}
	for _, m := range info.Deps {
		licence, ok := known[m.Path+"@"+m.Version]
		if !ok {
			return nil, fmt.Errorf("the binary holds %s %s, which go.mod does not", m.Path, m.Version)
		}
		c := of("library", m.Path, m.Version, licence)
		c.Properties = []property{{"go:sum", m.Sum}}
		d.Components = append(d.Components, c)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

func of(kind, path, version, spdx string) component {
	purl := "pkg:golang/" + path + "@" + version
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl, Licenses: []licence{{spdx}}}
}
