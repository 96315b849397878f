//go:build drill

package chaos

import "testing"

// The same storm, with a fake of Stripe as the provider, whose events are delivered in any order and any number of
// times.
func TestStormAtStripe_EveryAnswerWasTrueAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	storm(t, true)
}
