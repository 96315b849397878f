package operations_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/internal/clocks"
	"refundd/operations"
	"refundd/provider/simulator"
)

// watched is a provider that is asked over HTTP, elsewhere where nobody listens while it is down, and that notes the
// requests.
type watched struct {
	operations.Provider
	nobody operations.Provider
	down   atomic.Bool
	asked  atomic.Pointer[operations.ProviderRequest]
}

func (w *watched) Refund(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	w.asked.Store(&r)
	if w.down.Load() {
		return w.nobody.Refund(ctx, r)
	}
	return w.Provider.Refund(ctx, r)
}

func (w *watched) Lookup(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	if w.down.Load() {
		return w.nobody.Lookup(ctx, r)
	}
	return w.Provider.Lookup(ctx, r)
}

// newWatched is a paying whose provider is watched.
func newWatched(t *testing.T, change ...func(*operations.Config)) (*paying, *watched) {
	t.Helper()
	nobody, err := simulator.NewClient("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{nobody: nobody}
	watch := func(c *operations.Config) {
		setup := c.Providers["simulator"]
		w.Provider, setup.Provider = setup.Provider, w
		c.Providers["simulator"] = setup
	}
	return newPaying(t, append([]func(*operations.Config){watch}, change...)...), w
}

func (p *paying) answers(mode string, status int) {
	p.t.Helper()
	p.call(http.MethodPost, "/_faults", fmt.Sprintf(`{"mode":%q,"count":1,"status":%d}`, mode, status))
}

// forgotten lets a day and an hour pass: the provider has forgotten every key.
func (p *paying) forgotten() {
	p.t.Helper()
	p.call(http.MethodPost, "/_keys/expire", "")
	p.exec(`UPDATE refund_operations SET created_at = created_at - interval '25 hours',
		provider_key_expires_at = provider_key_expires_at - interval '25 hours'`)
	p.due()
}

// A 429 may come from somebody in between, after the provider executed: only a look tells.
func TestA65_A429AfterTheProviderExecuted_IsLookedUpFirst(t *testing.T) {
	t.Parallel()
	for _, times := range []int{1, 3} {
		for _, by := range []string{"caller", "reconciliation"} {
			t.Run(fmt.Sprintf("%d times, by %s", times, by), func(t *testing.T) {
				p := newPaying(t)
				r := p.pay("K", 4000)
				p.answers("error_after", http.StatusTooManyRequests)
				for range times {
					expect(t, p.submit(r), operations.StatusPending)
					p.fault("lookup_down", times, 0) // the attempts between only look, and see nothing
					p.due()
				}
				p.call(http.MethodDelete, "/_faults", "")
				p.forgotten()
				if by == "caller" {
					expect(t, p.submit(r), operations.StatusProcessed)
				} else {
					p.reconcile()
				}
				p.books("K", 4000, "hold", "settle")
				if diff := cmp.Diff(map[string]int{key: 1}, p.executed()); diff != "" {
					t.Errorf("provider (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The key's expiry begins anew only where no attempt before can have told the provider of the key.
func TestA65_OnlyAttemptsThatWroteNothing_RenewTheKey(t *testing.T) {
	t.Parallel()
	type attempt func(*paying, *watched)
	unwritten := func(_ *paying, w *watched) { w.down.Store(true) }
	refused := func(p *paying, _ *watched) { p.answers("refuse", http.StatusTooManyRequests) }
	lost := func(p *paying, _ *watched) { p.fault("drop_before", 1, 0) }
	blind := func(p *paying, _ *watched) { p.fault("lookup_down", 1, 0) }
	for name, c := range map[string]struct {
		attempts []attempt
		renewed  bool
	}{
		"one that wrote nothing":            {[]attempt{unwritten}, true},
		"two that wrote nothing":            {[]attempt{unwritten, unwritten}, true},
		"a 429":                             {[]attempt{refused}, false},
		"a lost answer":                     {[]attempt{lost}, false},
		"a 429, then only a look":           {[]attempt{refused, blind}, false},
		"a lost answer, then only a look":   {[]attempt{lost, blind}, false},
		"a lost answer, then nothing":       {[]attempt{lost, unwritten}, false},
		"a lost answer, then only looks":    {[]attempt{lost, blind, blind}, false},
		"one that wrote nothing, then lost": {[]attempt{unwritten, lost}, false},
		"one that wrote nothing, then 429":  {[]attempt{unwritten, refused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, w := newWatched(t)
			r := p.pay("K", 4000)
			for _, attempt := range c.attempts {
				attempt(p, w)
				p.due()
				expect(t, p.submit(r), operations.StatusPending)
				w.down.Store(false)
				p.call(http.MethodDelete, "/_faults", "")
			}
			p.exec(`UPDATE refund_operations SET provider_key_expires_at = now() + interval '1 hour'`)
			p.due()
			w.down.Store(true)
			if all := p.reconcile(); len(all) != 1 {
				t.Fatalf("%d operations were due", len(all))
			}
			renewed := p.count(`SELECT count(*) FROM refund_operations
				WHERE provider_key_expires_at > now() + interval '2 hours'`) == 1
			if renewed != c.renewed {
				t.Errorf("the key's expiry began anew: %v", renewed)
			}
		})
	}
}

// What goes with the request is the moment from which its row counts the listing's lag, by both clocks; a look before
// it sets it anew. A key that would be forgotten before is not sent at all.
func TestA56_TheRequestCarriesTheMomentAfterWhichItIsTooLate(t *testing.T) {
	const timeout = 10 * time.Second
	p, w := newWatched(t, func(c *operations.Config) { c.Lease, c.ProviderTimeout = 3*timeout, timeout })
	r := p.pay("K", 4000)
	p.fault("drop_before", 1, 0)
	for _, want := range []operations.Status{operations.StatusPending, operations.StatusProcessed} {
		began := clocks.Now()
		expect(t, p.submit(r), want)
		// A little earlier is as good: our clock is read before the database's.
		got, earliest, latest := w.asked.Load().NotAfter, began.Add(timeout-time.Second), clocks.Now().Add(timeout)
		if got.Wall.After(latest.Wall) || got.Monotonic.After(latest.Monotonic) ||
			got.Wall.Before(earliest.Wall) || got.Monotonic.Before(earliest.Monotonic) {
			t.Errorf("%s: not after %+v, want one from %+v to %+v", want, got, earliest, latest)
		}
		p.due()
	}
}

// The provider's wish is heeded, by the next look and by what callers are told, within an hour.
func TestA66_RetryAfter_PutsTheNextLookOff(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "99999999999": time.Hour, "-7": 0, "soon": 0,
		"in ten minutes": 10 * time.Minute,
	} {
		t.Run(value, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", value)
				if value == "in ten minutes" {
					w.Header().Set("Retry-After", time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat))
				}
				w.WriteHeader(http.StatusTooManyRequests)
			}))
			t.Cleanup(web.Close)
			client, err := simulator.NewClient(web.URL)
			if err != nil {
				t.Fatal(err)
			}
			p := newPaying(t, func(c *operations.Config) {
				c.Providers = map[string]operations.ProviderSetup{"simulator": {Provider: client,
					KeyRetention: time.Hour, MaxKeyLength: 255}}
				c.BackoffMin, c.BackoffMax = time.Second, time.Second
			})
			wait := func(after string) {
				t.Helper()
				seconds := p.count(`SELECT extract(epoch FROM next_check_at - now())::bigint FROM refund_operations`)
				if least := int64(want.Seconds()); seconds < least-30 || seconds > max(least, 1) {
					t.Errorf("after a %s the next look is in %d s, want %v", after, seconds, want)
				}
			}
			first := p.submit(p.pay("K", 4000))
			expect(t, first, operations.StatusPending)
			if told := first.receipt.RetryAfter; told < want-30*time.Second || told > max(want, 2*time.Second) {
				t.Errorf("the caller is told to wait for %v, want %v", told, want)
			}
			wait("refund")
			p.due()
			p.reconcile()
			wait("look")
		})
	}
}

func TestA66_LongBackOffs_StayInTheCalendar(t *testing.T) {
	t.Parallel()
	for least, most := range map[time.Duration]time.Duration{200 * time.Hour: math.MaxInt64,
		math.MaxInt64: math.MaxInt64, time.Second: 200 * time.Hour} {
		t.Run(least.String(), func(t *testing.T) {
			p := newPaying(t, func(c *operations.Config) {
				c.BackoffMin, c.BackoffMax, c.ListingLag = least,
					most, most
			})
			p.fault("drop_before", 1, 0)
			expect(t, p.submit(p.pay("K", 4000)), operations.StatusPending)
			p.fault("lookup_down", 100, 0)
			for _, attempts := range []int{1, 2, 13, 14, 15, 21, 22, 40, 64, 65, 1 << 30} {
				p.exec(`UPDATE refund_operations SET attempts = $1`, attempts)
				p.due()
				p.reconcile()
				if n := p.count(`SELECT count(*) FROM refund_operations WHERE next_check_at > now()
					AND isfinite(next_check_at)`); n != 1 {
					t.Errorf("after %d attempts it is looked at never, or at once", attempts)
				}
			}
		})
	}
}
