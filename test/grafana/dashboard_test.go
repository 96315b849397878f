// Package grafana_test holds the dashboard against the schema that Grafana publishes for it: its own types, which
// refuse a member that they do not know. It is a module of its own, which .ci/alerts runs.
package grafana_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func TestDashboard_IsOfGrafanasSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	raw, err := os.ReadFile("../../deploy/grafana/refundd.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := read(raw); err != nil {
		t.Error(err)
	}
	// Each of these would be passed over by Grafana, or break the page, and is seen here.
	for was, is := range map[string]string{
		`"lineWidth"`: `"linewidth"`, `"reduceOptions"`: `"reduce"`, `"gridPos"`: `"gridpos"`, `"legendFormat"`: `"legend"`,
		`"refresh": "30s"`: `"refresh": 30`,
	} {
		if !strings.Contains(string(raw), was) {
			t.Errorf("the dashboard has no %s", was)
		}
		if read([]byte(strings.Replace(string(raw), was, is, 1))) == nil {
			t.Errorf("%s is taken for %s", is, was)
		}
	}
}

func read(raw []byte) error {
	var d dashboard.Dashboard
	err := d.UnmarshalJSONStrict(raw)
	if faults, ok := errors.AsType[cog.BuildErrors](err); err != nil && (!ok || len(faults) > 0) { // none is no nil
		return err
	}
	return d.Validate()
}

// What Grafana shows wrongly without a word: a unit that it does not know, panels that overlap or leave the page, ids
// that are used twice.
func TestDashboard_PanelsHaveUnitsAndPlaces(t *testing.T) {
	var d struct {
		Panels []struct {
			ID          int
			Type, Title string
			Description string
			GridPos     struct{ X, Y, W, H int }
			FieldConfig struct{ Defaults struct{ Unit string } }
		}
	}
	raw, err := os.ReadFile("../../deploy/grafana/refundd.json")
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	known := []string{units.Short, units.Seconds, units.RequestsPerSecond, units.BytesIEC, units.PercentUnit,
		units.CountsPerSecond}
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, found := ids[p.ID]; found {
			t.Errorf("%q and %q have one id", p.Title, other)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && (!slices.Contains(known, p.FieldConfig.Defaults.Unit) || p.Description == "") {
			t.Errorf("%q has unit %q and description %q", p.Title, p.FieldConfig.Defaults.Unit, p.Description)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, found := taken[[2]int{x, y}]; found || x >= 24 {
					t.Fatalf("%q is at %d, %d, where %q is, or outside", p.Title, x, y, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if len(ids) < 30 {
		t.Errorf("only the panels %v", slices.Sorted(maps.Values(ids)))
	}
}
