package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLicences_AreListedAsTheModulesHaveThem(t *testing.T) {
	t.Parallel()
	want, err := licences(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/licences.md")
	if d := cmp.Diff(string(want), string(got)); err != nil || d != "" {
		t.Errorf("%v: run go run ./internal/release licences > docs/licences.md (-want +got):\n%s", err, d)
	}
}

func TestLicences_AreToldApart(t *testing.T) {
	t.Parallel()
	const free, redistribution = "Permission is hereby granted, free of charge",
		"Redistribution and use in source and binary forms"
	for text, want := range map[string][]string{
		free + " provided that the above copyright notice and this permission notice": {"MIT"},
		free: {"MIT-0"},
		redistribution + " to endorse or promote products": {"BSD-3-Clause"},
		redistribution:                   {"BSD-2-Clause"},
		"Apache License Version 2.0":     {"Apache-2.0"},
		"GNU AFFERO GENERAL PUBLIC":      nil,
		"All rights reserved. Pay first": nil,
	} {
		if d := cmp.Diff(want, identify(text)); d != "" {
			t.Errorf("%q (-want +got):\n%s", text, d)
		}
	}
}

// The test's own binary holds what go test links too, so only its shape is looked at.
func TestBill_RefusesWhatIsNoBinaryAndAModuleThatIsNotOurs(t *testing.T) {
	t.Parallel()
	if _, err := bill(t.Context(), "main.go"); err == nil {
		t.Error("a source file has a bill of materials")
	}
	text, err := json.Marshal(of("library", "example.org/x", "v1.0.0", "MIT"))
	const want = `{"type":"library","bom-ref":"pkg:golang/example.org/x@v1.0.0","name":"example.org/x","version":"v1.0.0",` +
		`"purl":"pkg:golang/example.org/x@v1.0.0","licenses":[{"expression":"MIT"}]}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
