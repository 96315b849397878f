package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breaker fails calls at once while the service has failed several times in a row.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	open    time.Duration
	opened  atomic.Pointer[time.Time]
}

func newBreaker(failures int, open time.Duration) *breaker {
	b := &breaker{open: open}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     open,
		MaxRequests: 1,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(failures) },
		IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.opened.Store(new(time.Now()))
			}
		},
	})
	return b
}

// allow lets one request through; its outcome is to be reported once. Otherwise it returns how long the rest lasts.
func (b *breaker) allow() (report func(error), wait time.Duration) {
	report, err := b.circuit.Allow()
	if err == nil {
		return report, 0
	}
	if at := b.opened.Load(); at != nil {
		wait = b.open - time.Since(*at)
	}
	return nil, max(wait, 0)
}

// failure is what an attempt says of the service's health: no answer and 5xx do; a refusal, a rate limit and a caller
// who left do not.
func failure(ctx context.Context, e *failedAttempt) error {
	switch {
	case e == nil:
		return nil
	case e.Status == 0 && errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case e.Status == 0, e.Status >= 500:
		return e.Error
	default:
		return nil
	}
}
