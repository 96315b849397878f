package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"refundd/cmd/refundd/internal/fault"
	"refundd/operations"
	"refundd/provider/simulator"
	"refundd/provider/stripe"
)

// The names that orders carry.
const (
	providerSimulator = "simulator"
	providerStripe    = "stripe"
)

// providerAccess says where providers are.
type providerAccess struct {
	SimulatorURL  string `placeholder:"URL" help:"Where the simulated provider is; without it, nothing of provider simulator is sent or looked up."`
	StripeAPIKey  string `placeholder:"KEY" help:"The secret or restricted key of Stripe's, of test or live mode; without it, nothing of provider stripe is sent or looked up. Give it as a variable: arguments are seen by every process."`
	StripeAPIBase string `placeholder:"URL" help:"Where Stripe's API is (default https://api.stripe.com)."`
}

// providerFlags are shared by all that refunds through providers.
type providerFlags struct {
	providerAccess
	policyFlags
	StripeWebhookSecret     string        `placeholder:"SECRET[,SECRET]" help:"The signing secret of Stripe's webhook endpoint at /v1/webhooks/stripe; two of them while it is rotated. Give it as a variable."`
	VerifyPayments          bool          `help:"Read the payment at Stripe before an order is registered with it, and refuse what its currency or captured amount contradicts."`
	ProviderTimeout         time.Duration `default:"10s" help:"Deadline of one call to a provider."`
	Lease                   time.Duration `default:"0" help:"How long one attempt owns its operation, at least the provider timeout and as much again, up to 10s; 0 takes the provider timeout and 20s."`
	ListingLag              time.Duration `default:"1m" help:"How long a provider's listing may lack a refund that was made."`
	ProviderBreakerFailures int           `default:"5" help:"Refunds that fail in a row until a provider is sent no more for a while."`
	ProviderBreakerOpen     time.Duration `default:"10s" help:"How long that is."`
	ReservedAge             time.Duration `default:"72h" help:"Age at which a human is told of a refund without an outcome."`
	PendingAge              time.Duration `default:"336h" help:"Age at which a human is told of a refund that its provider still works on."`
	RecheckFor              time.Duration `default:"720h" help:"How long a settled refund is looked up daily, since it may fail late."`
	BackoffMin              time.Duration `default:"10s" help:"Until reconciliation looks at an operation again; doubled by each attempt."`
	BackoffMax              time.Duration `default:"1h" help:"The limit of that."`
}

// faults are the values that make no sense.
func (f providerFlags) faults() []error {
	var faults []error
	providers, err := f.providers()
	if err != nil {
		faults = append(faults, err)
	}
	if _, err := f.stripeEvents(); err != nil {
		faults = append(faults, err)
	}
	if f.VerifyPayments && f.StripeAPIKey == "" {
		faults = append(faults, errors.New("--verify-payments needs --stripe-api-key"))
	}
	if f.ProviderTimeout <= 0 {
		faults = append(faults, errors.New("--provider-timeout must be positive"))
	} else if err := f.leaseFault(providers); err != nil {
		faults = append(faults, err)
	}
	if f.ProviderBreakerFailures < 1 {
		faults = append(faults, errors.New("--provider-breaker-failures must be at least 1"))
	}
	if f.ProviderBreakerOpen <= 0 {
		faults = append(faults, errors.New("--provider-breaker-open must be positive"))
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--listing-lag", f.ListingLag}, {"--reserved-age", f.ReservedAge}, {"--pending-age", f.PendingAge},
		{"--recheck-for", f.RecheckFor}, {"--backoff-min", f.BackoffMin},
	} {
		if d.value < 0 {
			faults = append(faults, fmt.Errorf("%s must not be negative", d.flag))
		}
	}
	if f.BackoffMax < f.BackoffMin {
		faults = append(faults, errors.New("--backoff-max must not be less than --backoff-min"))
	}
	return faults
}

// leaseFault tells why a lease makes no sense with the provider timeout, or with how long providers remember a key. One
// that is not given is as long as it has to be. No provider that there is remembers a key for longer than the
// simulator.
func (f providerFlags) leaseFault(providers map[string]operations.ProviderSetup) error {
	lease := f.Lease
	if lease == 0 {
		lease = operations.DefaultLease(f.ProviderTimeout)
	}
	if least := operations.LeastLease(f.ProviderTimeout); lease < least {
		return fmt.Errorf("--lease must be at least %v, to leave time to look a refund up and to record it", least)
	}
	if len(providers) == 0 {
		providers = map[string]operations.ProviderSetup{providerSimulator: {KeyRetention: simulator.KeyRetention}}
	}
	for name, setup := range providers {
		if most := setup.MostLease(f.ProviderTimeout); lease > most {
			return fmt.Errorf("--provider-timeout and --lease must be shorter: provider %s remembers a key for %v, which leaves %v for a lease",
				name, setup.KeyRetention, most)
		}
	}
	return nil
}

// wrongUse is all faults in one sentence; nil where there is none.
func wrongUse(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	texts := make([]string, len(faults))
	for i, err := range faults {
		texts[i] = err.Error()
	}
	return fault.Usage("%s", strings.Join(texts, "; "))
}

// providers are those that orders may name, as far as it is known where they are.
func (a providerAccess) providers() (map[string]operations.ProviderSetup, error) {
	known := map[string]operations.ProviderSetup{}
	if a.SimulatorURL != "" {
		client, err := simulator.NewClient(a.SimulatorURL)
		if err != nil {
			return nil, errors.New("--simulator-url must be a URL such as http://127.0.0.1:4010")
		}
		known[providerSimulator] = operations.ProviderSetup{
			Provider: client, KeyRetention: simulator.KeyRetention, MaxKeyLength: simulator.MaxKeyLength,
		}
	}
	if a.StripeAPIKey != "" {
		client, err := stripe.NewClient(stripe.Config{Key: stripe.Secret(a.StripeAPIKey), Base: a.StripeAPIBase})
		switch {
		case errors.Is(err, stripe.ErrKey):
			return nil, fmt.Errorf("--stripe-api-key is %w", err)
		case err != nil:
			return nil, errors.New("--stripe-api-base must be a URL such as https://api.stripe.com")
		}
		known[providerStripe] = operations.ProviderSetup{
			Provider: client, KeyRetention: stripe.KeyRetention, MaxKeyLength: stripe.MaxKeyLength, Payments: client,
		}
	}
	return known, nil
}

// stripeEvents reads what Stripe announces; nil where no secret is given.
func (f providerFlags) stripeEvents() (*stripe.Events, error) {
	if f.StripeWebhookSecret == "" {
		return nil, nil
	}
	if f.StripeAPIKey == "" {
		return nil, errors.New("--stripe-webhook-secret needs --stripe-api-key: what is announced is looked up")
	}
	var secrets []stripe.Secret
	for secret := range strings.SplitSeq(f.StripeWebhookSecret, ",") {
		secrets = append(secrets, stripe.Secret(strings.TrimSpace(secret)))
	}
	events, err := stripe.NewEvents(stripe.Secret(f.StripeAPIKey), secrets...)
	switch {
	case errors.Is(err, stripe.ErrKey):
		return nil, nil // said of the key
	case err != nil || len(secrets) > 2:
		return nil, errors.New("--stripe-webhook-secret takes one secret, or two with a comma between them")
	}
	return events, nil
}

// names are the configured providers'.
func (a providerAccess) names() []string {
	providers, _ := a.providers() // whose faults are told where they are used
	return slices.Sorted(maps.Keys(providers))
}

// newEngine makes the engine that the flags describe. Once cut ends, no call to a provider goes on.
func (f providerFlags) newEngine(cut context.Context, log *slog.Logger, pool *pgxpool.Pool, r prometheus.Registerer,
	maxQueue int, hook operations.OnEvents) (
	*operations.Engine, error,
) {
	providers, err := f.providers()
	if err != nil {
		return nil, fault.Usage("%s", err)
	}
	for name, setup := range providers {
		setup.Provider = interruptible{setup.Provider, cut}
		if !f.VerifyPayments {
			setup.Payments = nil
		}
		providers[name] = setup
	}
	engine, err := operations.New(operations.Config{
		Pool: pool, Logger: log, Registerer: r, MaxQueue: maxQueue, OnEvents: hook, Followed: followed,
		Providers: providers, ProviderTimeout: f.ProviderTimeout, Lease: f.Lease,
		BreakerFailures: f.ProviderBreakerFailures, BreakerOpen: f.ProviderBreakerOpen,
		ListingLag: given(f.ListingLag), ReservedAge: given(f.ReservedAge), PendingAge: given(f.PendingAge),
		RecheckFor: given(f.RecheckFor), BackoffMin: given(f.BackoffMin), BackoffMax: given(f.BackoffMax),
	})
	if err != nil {
		return nil, fmt.Errorf("make engine: %w", err)
	}
	return engine, nil
}

// followed are the states whose reaching is told to the rooms that follow operations.
var followed = []operations.State{
	operations.StatePending, operations.StateSucceeded, operations.StateFailed, operations.StateNeedsAttention,
}

// given is a duration that was asked for: to the engine, zero means its own default, and it counts in milliseconds.
func given(d time.Duration) time.Duration { return max(d, time.Nanosecond) }

// interruptible ends the calls to a provider at the end of cut, as one whose outcome is unknown: what may outlast
// everything else at a shutdown is recorded then, instead of being killed with its process.
type interruptible struct {
	provider operations.Provider
	cut      context.Context
}

// Refund implements operations.Provider.
func (i interruptible) Refund(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	ctx, done := i.until(ctx)
	defer done()
	return i.provider.Refund(ctx, r)
}

// Lookup implements operations.Provider.
func (i interruptible) Lookup(ctx context.Context, r operations.ProviderRequest) (operations.ProviderResult, error) {
	ctx, done := i.until(ctx)
	defer done()
	return i.provider.Lookup(ctx, r)
}

func (i interruptible) until(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(i.cut, cancel)
	return ctx, func() { detach(); cancel() }
}
