package access

import (
	"context"
	"testing"
	"time"

	"refundd/test/testdb"
)

func TestRun_WritesLastUse(t *testing.T) {
	t.Parallel()
	keys, _ := replica(t, testdb.New(t))
	secret, _ := newKey(t, keys, NewKey{})
	mustAdmit(t, keys, secret)
	if used := listOne(t, keys).LastUsedAt; used != nil {
		t.Errorf("written on the request's path: %v", used)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keys.runUses(ctx, 20*time.Millisecond) }()
	first := waitUsed(t, keys, time.Time{})
	time.Sleep(100 * time.Millisecond) // several rounds without a use
	if still := waitUsed(t, keys, time.Time{}); !still.Equal(first) {
		t.Errorf("written without a use: %v after %v", still, first)
	}
	mustAdmit(t, keys, secret)
	second := waitUsed(t, keys, first)
	mustAdmit(t, keys, secret)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	waitUsed(t, keys, second) // the last round is written when Run ends
}

func waitUsed(t *testing.T, keys *Keys, after time.Time) time.Time {
	t.Helper()
	for range 200 {
		if used := listOne(t, keys).LastUsedAt; used != nil && used.After(after) {
			return *used
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("last_used_at was not written")
	return time.Time{}
}
