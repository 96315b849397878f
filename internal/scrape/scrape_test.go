package scrape_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"refundd/internal/scrape"
)

func TestReading_IsReadOnceInAMomentHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reading scrape.Reading[int]
		reads := 0
		read := func(ctx context.Context) int {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 5*time.Second {
				t.Errorf("a read may take until %v", deadline)
			}
			reads++
			return reads
		}
		var together sync.WaitGroup
		for range 50 {
			together.Go(func() {
				if got := reading.Get(read); got != 1 {
					t.Errorf("at once: reading %d", got)
				}
			})
		}
		together.Wait()
		time.Sleep(900 * time.Millisecond)
		if got := reading.Get(read); got != 1 {
			t.Errorf("within the moment: reading %d", got)
		}
		time.Sleep(200 * time.Millisecond)
		if got := reading.Get(read); got != 2 {
			t.Errorf("after it: reading %d", got)
		}
	})
}
