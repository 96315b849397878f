package main

import (
	"fmt"
	"runtime/debug"
)

type versionCmd struct{}

// Run prints what the build recorded of itself.
func (versionCmd) Run(c console) error {
	c.printf("refundd %s\n", buildVersion())
	return nil
}

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	text := info.Main.Version
	if text == "" {
		text = "(devel)"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		text += fmt.Sprintf(" (revision %s, %s)", revision, settings["vcs.time"])
	}
	return text + " " + info.GoVersion
}
