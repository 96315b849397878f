package operations_test

import (
	"testing"

	"refundd/operations"
)

func TestFingerprint_MatchesThePublishedVectors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		order  string
		amount int64
		want   string
	}{
		{"A-1001", 4999, "7e15038037248f2d875a940c35361ea1827868c8eb1f6ee87b1ebb3a4e7991ea"},
		{"#1001", 1, "8ad86c2cb1303270294b5530acbaa1c966264046f0c11e1bd508ee3b7cfc1bb8"},
		{`ord<&>"q\`, 9007199254740991, "559e6dfd88d16547fa862040c4f680c15607c7ed854ff21b00dfbcdfa7fdef39"},
	} {
		if got := operations.Fingerprint(v.order, v.amount); got != v.want {
			t.Errorf("Fingerprint(%q, %d) = %s, want %s", v.order, v.amount, got, v.want)
		}
	}
}

func TestFingerprint_TellsRefundsApart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, order := range []string{"1", "12", `1"`, `1\`, `1\"`, `1, "amount_cents": 2`, "A", "a"} {
		for _, amount := range []int64{1, 2, 12, 21} {
			f := operations.Fingerprint(order, amount)
			if other, twice := seen[f]; twice {
				t.Errorf("%q/%d and %s share %s", order, amount, other, f)
			}
			seen[f] = order
		}
	}
}
