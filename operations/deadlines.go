package operations

import "time"

// lookupLimit bounds a Lookup.
const lookupLimit = 10 * time.Second

// DefaultLease is how long an attempt owns its operation where nothing else is said: a request, a look-up before it,
// and recording what they brought.
func DefaultLease(providerTimeout time.Duration) time.Duration {
	return providerTimeout + 20*time.Second
}

// LeastLease is the shortest lease that leaves time for a request of the provider's timeout, and for a look-up before
// it and the recording after it, which share as much again.
func LeastLease(providerTimeout time.Duration) time.Duration {
	return providerTimeout + min(providerTimeout, lookupLimit)
}

// MostLease is the longest lease during which the provider still knows the key: one that is longer could outlast the
// key of the request that it was taken for.
func (s ProviderSetup) MostLease(providerTimeout time.Duration) time.Duration {
	return s.KeyRetention - keyMargin - providerTimeout
}

// lookupDeadline leaves room in the lease for the request that may follow and for recording what it brought.
func (e *Engine) lookupDeadline() time.Duration {
	return min(lookupLimit, e.config.ProviderTimeout, (e.config.Lease-e.config.ProviderTimeout)/2)
}
