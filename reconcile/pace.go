package reconcile

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"refundd/operations"
)

// pace keeps the requests to each provider within a rate, by what is claimed: a lease must not run out in a queue.
type pace struct {
	limit rate.Limit // requests per second; 0 = none
	mu    sync.Mutex
	spent map[string]*rate.Limiter // by provider
}

func newPace(perSecond float64) *pace {
	return &pace{limit: rate.Limit(perSecond), spent: make(map[string]*rate.Limiter)}
}

// allowed waits until each provider can take a request, and answers how many operations may be claimed whoever their
// provider is; none at the end of ctx.
func (p *pace) allowed(ctx context.Context) int {
	for ctx.Err() == nil {
		if p.limit == 0 {
			return math.MaxInt
		}
		tokens := p.tokens(time.Now())
		if tokens >= 1 {
			return int(tokens)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration((1 - tokens) / float64(p.limit) * float64(time.Second))):
		}
	}
	return 0
}

// tokens are the requests that the most burdened provider can take now.
func (p *pace) tokens(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	least := float64(p.burst())
	for _, l := range p.spent {
		least = min(least, l.TokensAt(now))
	}
	return least
}

// burst is what may be sent at once: a twentieth of a second's.
func (p *pace) burst() int { return max(1, int(p.limit/20)) }

// claimed counts the request that looks an operation up.
func (p *pace) claimed(l operations.Lease) { p.spend(l) }

// resolved counts the request that was sent after that.
func (p *pace) resolved(l operations.Lease, r operations.Resolution) {
	if r.Resent {
		p.spend(l)
	}
}

// spend takes one request of the lease's provider, on credit if need be.
func (p *pace) spend(l operations.Lease) {
	if p.limit == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := deref(l.Operation.Provider)
	limiter := p.spent[name]
	if limiter == nil {
		limiter = rate.NewLimiter(p.limit, p.burst())
		p.spent[name] = limiter
	}
	limiter.ReserveN(time.Now(), 1)
}
