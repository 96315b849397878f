// The command release writes what accompanies a released binary, from what is linked into it: a bill of materials
// (CycloneDX 1.6), and the licences of the modules. Both hold no time and no random name, so that the same source gives
// the same files.
//
//	go run ./internal/release sbom BINARY    prints the bill of materials
//	go run ./internal/release licences       prints docs/licences.md
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var text []byte
	var err error
	switch {
	case len(args) == 2 && args[0] == "sbom":
		text, err = bill(ctx, args[1])
	case len(args) == 1 && args[0] == "licences":
		text, err = licences(ctx)
	default:
		return errors.New("usage: release sbom BINARY | licences")
	}
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// module is one that is linked into the binary of a platform that we release for.
type module struct{ path, version, licence string }

// linked lists the modules, by path.
func linked(ctx context.Context) ([]module, error) {
	var lines []string
	for _, system := range []string{"linux", "darwin"} {
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", "refundd/cmd/refundd")
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list the modules: %w", err)
		}
		lines = append(lines, strings.Fields(strings.ReplaceAll(string(out), "\t", "|"))...)
	}
	slices.Sort(lines)
	var found []module
	for _, line := range slices.Compact(lines) {
		part := strings.Split(line, "|")
		licence, err := licenceIn(part[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part[0], err)
		}
		found = append(found, module{part[0], part[1], licence})
	}
	return found, nil
}

// licences is docs/licences.md.
func licences(ctx context.Context) ([]byte, error) {
	all, err := linked(ctx)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(`# Licences

What is linked into a released binary beside refundd, which is [Apache-2.0](../LICENSE), and Go's own library (BSD-3-Clause). Made by
` + "`go run ./internal/release licences > docs/licences.md`" + `; a test holds it against go.mod. The bill of materials of a release says it too.

| module | version | licence |
|---|---|---|
`)
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.path, m.version, m.licence)
	}
	return b.Bytes(), nil
}

// licenceIn names the licences of a module's folder by SPDX's identifiers.
func licenceIn(dir string) (string, error) {
	var names []string
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "License*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are well-formed
		names = append(names, found...)
	}
	var ids []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // a folder of that name
		}
		ids = append(ids, identify(strings.Join(strings.Fields(string(text)), " "))...)
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) == 0 {
		return "", errors.New("no licence is known in its folder")
	}
	return strings.Join(ids, " AND "), nil
}

// identify tells the licences that a text, of single blanks, contains.
func identify(text string) (ids []string) {
	add := func(id string, is bool) {
		if is {
			ids = append(ids, id)
		}
	}
	has := func(words string) bool { return strings.Contains(text, words) }
	free := has("Permission is hereby granted, free of charge")
	notice := has("copyright notice and this permission notice")
	source := has("Redistribution and use in source and binary forms")
	endorse := has("endorse or promote products")
	add("Apache-2.0", has("Apache License") && has("Version 2.0") || has("Apache License, Version 2.0"))
	add("MPL-2.0", has("Mozilla Public License Version 2.0"))
	add("MIT", free && notice)
	add("MIT-0", free && !notice)
	add("ISC", has("Permission to use, copy, modify, and/or distribute this software"))
	add("BSD-3-Clause", source && endorse)
	add("BSD-2-Clause", source && !endorse)
	return ids
}
