package bench

import (
	"strings"
	"testing"
)

func TestParseMix_WeighsKinds(t *testing.T) {
	t.Parallel()
	m, err := ParseMix("new=80+replays=15+conflicts=5")
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[Kind]int)
	for i := range int64(1000) {
		counts[m.parts[m.pick(i)].kind]++
	}
	if counts[KindNew] != 800 || counts[KindReplay] != 150 || counts[KindConflict] != 50 {
		t.Errorf("of 1000 requests: %v", counts)
	}
}

func TestParseMix_RefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "refunds", "new=0", "new=-1", "new=x", "new+", "new=1=2"} {
		if _, err := ParseMix(text); err == nil || !strings.Contains(err.Error(), "is no mix") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
