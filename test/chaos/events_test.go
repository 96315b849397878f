package chaos

import (
	"context"
	"fmt"
	"time"

	"refundd/test/harness"
	"refundd/test/stripefake"
)

// announce delivers events of refunds, old and new ones, in any order and again and again, to whatever server there is.
func announce(storm context.Context, d dice, s *harness.Stripe, c *callers, did *tally) {
	kinds := []string{"refund.created", "refund.updated", "refund.failed", "charge.refund.updated", "charge.refunded"}
	var told [][]byte
	for storm.Err() == nil {
		rest(storm, d.between(time.Millisecond, 60*time.Millisecond))
		if made := s.Fake.Refunds(); len(made) > 0 && (len(told) == 0 || d.chance(70)) {
			recent := made[max(0, len(made)-1-d.IntN(12))]
			told = append(told, s.Event(kinds[d.IntN(len(kinds))], recent.ID, d.chance(50)))
		}
		if len(told) == 0 {
			continue
		}
		url := c.slots[d.IntN(len(c.slots))].url.Load()
		status := stripefake.Deliver(*url, told[d.IntN(len(told))], harness.StripeSecret)
		did.add(fmt.Sprintf("event answered %dxx", status/100))
	}
}
