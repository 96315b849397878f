package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"refundd/internal/embedpg"
	"refundd/test/harness"
)

// The times that refundd runs with, short enough for many leases to run out in a storm.
const (
	providerTimeout = 400 * time.Millisecond
	lease           = 1500 * time.Millisecond
	listingLag      = 400 * time.Millisecond // longer than the provider's listing ever lags
	settleDelay     = 200 * time.Millisecond
	failDelay       = 600 * time.Millisecond
)

func flags(provider harness.Provider) []string {
	return append(provider.Flags(), "--provider-timeout", providerTimeout.String(), "--lease", lease.String(),
		"--listing-lag", listingLag.String(), "--provider-breaker-open", "300ms", "--backoff-min", "100ms",
		"--backoff-max", "1s",
		"--pool-size", "8")
}

// dice are one monkey's own: the same seed gives each of them the same luck.
type dice struct{ *rand.Rand }

func newDice(seed uint64, monkey string) dice {
	var n uint64
	for _, c := range monkey {
		n = n*31 + uint64(c)
	}
	return dice{rand.New(rand.NewPCG(seed, n))}
}

func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)))
}

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// slot is a place for a process, in which one lives at a time.
type slot struct {
	t      *testing.T
	name   string
	start  func() (*harness.Process, string, error)
	did    *tally
	mu     sync.Mutex // of whoever does something to the process
	now    *harness.Process
	url    atomic.Pointer[string]
	former []*harness.Process
}

// fill starts a process, again and again while there is no database.
func (s *slot) fill(ctx context.Context) {
	for ctx.Err() == nil {
		p, url, err := s.start()
		s.former = append(s.former, p)
		if err == nil {
			s.now = p
			s.url.Store(&url)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// torment kills, stops and suspends the slot's process until the storm is over, and leaves it alive.
func (s *slot) torment(storm context.Context, d dice, c *callers) {
	for c.progress(storm, 3) {
		rest(storm, d.between(100*time.Millisecond, 2500*time.Millisecond))
		s.once(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.Ended() {
		s.fill(context.WithoutCancel(storm))
	}
}

func (s *slot) once(d dice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := strings.Fields(s.name)[0]
	switch {
	case s.now.Ended(): // it found no database
	case d.chance(45):
		s.did.add("suspended " + kind)
		s.now.Pause(s.t)
		time.Sleep(d.between(lease/3, lease*2))
		s.now.Resume(s.t)
		return
	case d.chance(25):
		s.did.add("terminated " + kind)
		s.now.Terminate(s.t)
	default:
		s.did.add("killed " + kind)
		s.now.Kill()
	}
	s.fill(context.Background())
}

// rest waits for d or for the end of ctx.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// tally counts what was done.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimPrefix(fmt.Sprint(c.n), "map")
}

// tempt makes the provider misbehave, and now and then die, while nobody else needs it alive.
func tempt(storm context.Context, d dice, provider harness.Provider, alive *sync.Mutex, did *tally) {
	for storm.Err() == nil {
		rest(storm, d.between(20*time.Millisecond, 400*time.Millisecond))
		count := harness.Times(1 + d.IntN(4))
		mode := []string{"error_before", "error_after", "drop_before", "drop_after", "hang", "refuse", "decline",
			"pending", "fail_later",
			"lookup_down", "lookup_lag", "error_before", "heal", "die"}[d.IntN(14)]
		delay := time.Duration(0)
		switch mode {
		case "hang":
			delay = d.between(providerTimeout/2, lease*2)
		case "pending":
			delay = settleDelay
		case "fail_later":
			delay = failDelay
		case "lookup_lag":
			delay = listingLag / 2
		case "error_after", "drop_after":
			delay = d.between(time.Millisecond, lease)
		case "heal":
			provider.Heal()
			continue
		case "die":
			if d.chance(30) {
				did.add("killed provider")
				alive.Lock()
				provider.Kill()
				time.Sleep(d.between(time.Millisecond, 300*time.Millisecond))
				provider.Start()
				alive.Unlock()
			}
			continue
		}
		more := harness.Fields{}
		if mode == "error_before" || mode == "error_after" {
			more["status"] = []int{400, 401, 404, 409, 422, 429, 500, 502, 503}[d.IntN(9)]
			if mode == "error_after" && more["status"] == 429 {
				more["status"] = 500 // a provider that says 429 executed nothing: that much it must promise
			}
		}
		if mode == "decline" && d.chance(30) {
			more["code"] = "already_refunded"
		}
		did.add("fault " + mode)
		provider.Fault(mode, count, harness.After(delay), more)
	}
	provider.Heal()
}

// outage cuts Postgres's power.
func outage(t *testing.T, storm context.Context, d dice, c *callers, cluster *embedpg.Server, did *tally) {
	for rest(storm, d.between(2*time.Second, 6*time.Second)); c.progress(storm, 10); rest(storm,
		d.between(2*time.Second, 6*time.Second)) {
		did.add("killed postgres")
		if err := cluster.Kill(); err != nil {
			t.Error(err)
		}
		time.Sleep(d.between(10*time.Millisecond, 600*time.Millisecond))
		if err := cluster.Restart(context.WithoutCancel(storm)); err != nil {
			t.Error(err)
			return
		}
	}
}
