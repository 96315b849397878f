package main

import (
	"strings"
	"testing"
	"time"
)

func TestVariables_ThatNothingReads_AreNamedOnce(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"REFUNDD_RATE_LIMT=5", "REFUNDD_COLOUR=red", "REFUNDD_MAX_QUEUE=7",
		"REFUNDD_PORT_8080_TCP=x"},
		"version")
	if code := p.wait(t, time.Minute); code != 0 {
		t.Errorf("exits %d", code)
	}
	said := p.stderr.String()
	if strings.Count(said, "\n") != 1 ||
		!strings.Contains(said, `"names":"REFUNDD_COLOUR, REFUNDD_RATE_LIMT (did you mean REFUNDD_RATE_LIMIT?)"`) {
		t.Errorf("it says %q", said)
	}
}
