package reconcile

import (
	"context"
	"math"
	"time"

	"golang.org/x/time/rate"

	"refundd/operations"
)

// pace keeps the requests to one provider within a rate, by what is claimed: a lease must not run out in a queue.
type pace struct {
	spent *rate.Limiter // nil without a limit
}

// newPace allows so many requests per second, and at once a twentieth of them, or what asks for the first sign of life:
// one that hangs must not stand for the provider. 0 sets no limit.
func newPace(perSecond float64) pace {
	if perSecond == 0 {
		return pace{}
	}
	return pace{rate.NewLimiter(rate.Limit(perSecond), max(firstWidth, int(perSecond/20)))}
}

// allowed waits until the provider can take a request, and answers how many operations may be claimed; none at the end
// of ctx.
func (p pace) allowed(ctx context.Context) int {
	for ctx.Err() == nil {
		if p.spent == nil {
			return math.MaxInt
		}
		tokens := p.spent.TokensAt(time.Now())
		if tokens >= 1 {
			return int(tokens)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration((1 - tokens) / float64(p.spent.Limit()) * float64(time.Second))):
		}
	}
	return 0
}

// claimed counts the requests that look operations up, on credit if need be.
func (p pace) claimed(n int) {
	if p.spent != nil {
		for range n {
			p.spent.ReserveN(time.Now(), 1)
		}
	}
}

// pursued counts the request that was sent after that.
func (p pace) pursued(r operations.Pursuit) {
	if r.Resent {
		p.claimed(1)
	}
}
