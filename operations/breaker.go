package operations

import (
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breaker stops the requests to a provider that has failed several of them in a row, or that refuses our credentials.
// It does not stop looking at the provider's books, nor do look-ups that fail open it.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	trip    atomic.Bool // the next failure opens it, whatever went before
}

// errUnused reports a permit that no call was made with: it counts neither way.
var errUnused = errors.New("permit not used")

func newBreaker(name string, failures int, open time.Duration, log *slog.Logger) *breaker {
	b := &breaker{}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:    name,
		Timeout: open,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return b.trip.Load() || int64(c.ConsecutiveFailures) >= int64(failures)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errUnused) },
		OnStateChange: func(name string, from, to gobreaker.State) {
			log.Warn("provider breaker", slog.String("provider", name), slog.String("from", from.String()),
				slog.String("to", to.String()))
		},
	})
	return b
}

// permit lets one call through. Its outcome is to be reported once; nil means that no call may be made now.
func (b *breaker) permit() permit {
	done, err := b.circuit.Allow()
	if err != nil {
		return nil
	}
	return func(err error) {
		var failure *ProviderError
		misconfigured := errors.As(err, &failure) && failure.Kind == ErrorMisconfigured
		if !errors.Is(err, errUnused) {
			b.trip.Store(misconfigured)
		}
		done(err)
	}
}

// admits is how many refunds may be reserved for the provider now: none while the circuit is open, one while it tries
// whether it may close again.
func (b *breaker) admits() int32 {
	switch b.circuit.State() {
	case gobreaker.StateOpen:
		return 0
	case gobreaker.StateHalfOpen:
		tries := b.circuit.Counts()
		return int32(1 - min(tries.Requests-tries.TotalExclusions, 1))
	default:
		return math.MaxInt32
	}
}

// admission is the permit of a refund that was reserved while the circuit admitted it. Where it has opened since, the
// call is made all the same, and counts neither way.
func (b *breaker) admission() permit {
	if p := b.permit(); p != nil {
		return p
	}
	return func(error) {}
}

// permit reports what became of a permitted call: nil for any answer that the provider gave in good order. Whoever
// needs no permit has none.
type permit func(error)

// used reports what a permitted call came to.
func (p permit) used(err error) {
	if p != nil {
		p(err)
	}
}

// drop gives an unused permit back.
func (p permit) drop() {
	if p != nil {
		p(errUnused)
	}
}
