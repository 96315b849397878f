package webhooks

import (
	"context"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// pace bounds how many messages a process sends in a second on average, to all endpoints together. A round that is
// planned is sent at once, whoever else sends: nobody who has an endpoint's lease waits for his share. While something
// is owed no round is planned.
type pace struct{ limit *rate.Limiter }

// newPace returns a pace of so many messages per second; 0 sets no limit.
func newPace(perSecond int) pace {
	if perSecond <= 0 {
		return pace{rate.NewLimiter(rate.Inf, roundSize)}
	}
	return pace{rate.NewLimiter(rate.Limit(perSecond), roundSize)}
}

// sends counts a round's messages.
func (p pace) sends(n int) { p.limit.ReserveN(time.Now(), n) }

// owed is how long no round begins.
func (p pace) owed() time.Duration {
	if p.limit.Limit() == rate.Inf {
		return 0
	}
	missing := max(0, -p.limit.Tokens())
	return time.Duration(math.Ceil(missing / float64(p.limit.Limit()) * float64(time.Second)))
}

// atOnce is how many endpoints may begin a round together: what all of them may send is paid within two seconds.
func (p pace) atOnce() int {
	if p.limit.Limit() == rate.Inf {
		return math.MaxInt
	}
	return max(1, int(2*p.limit.Limit()/roundSize))
}

// rest waits until nothing is owed any more, but no longer than most, and reports whether that is so.
func (p pace) rest(ctx context.Context, most time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(min(p.owed(), most)):
	}
	return p.owed() == 0
}
