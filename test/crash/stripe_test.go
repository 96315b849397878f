//go:build drill

package crash

import "testing"

// The same matrix, with a fake of Stripe as the provider.
func TestMatrixAtStripe_KillEverywhere_ProviderExecutesOnceAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	matrix(t, moods(), true)
}
