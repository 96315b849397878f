package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"refundd/access"
	"refundd/api"
	"refundd/cmd/refundd/internal/fault"
	"refundd/escalations"
	"refundd/internal/halfclose"
	"refundd/operations"
	"refundd/provider/stripe"
	"refundd/reconcile"
	"refundd/webhooks"
)

const (
	serveGrace = 25 * time.Second // for what is in flight at a SIGTERM; orchestrators kill after 30 s
	graceSlack = time.Second      // for an answer whose request ran into its deadline
	writeSlack = 30 * time.Second // how much longer a connection may take than its request
)

// serviceFlags are shared by all that serves the API.
type serviceFlags struct {
	providerFlags
	traceFlags
	webhookFlags
	AdminAddr      string        `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where /metrics is served (default a free port of 127.0.0.1, logged)."`
	RequestTimeout time.Duration `default:"30s" help:"A request's deadline, at least 100ms."`
	RateLimit      int           `default:"0" help:"Requests per minute and key; 0 sets no limit."`
	MaxQueue       int           `default:"4096" help:"Refunds that may wait for a transaction."`
	ReconcileEvery time.Duration `default:"0" help:"Find out, with this period, what became of refunds whose provider never told; 0 leaves that to refundd reconcile."`
	Pprof          bool          `help:"Serve Go's profiles on the admin address, under /debug/pprof/."`
	PoolSize       int32         `default:"0" help:"Connections to Postgres; 0 takes pool_max_conns of the URL, else 16."`
}

// check reports every value that makes no sense.
func (f serviceFlags) check() error {
	faults := f.faults()
	if _, err := f.collector(); err != nil {
		faults = append(faults, err)
	}
	if f.RequestTimeout < 100*time.Millisecond {
		faults = append(faults, errors.New("--request-timeout must be at least 100ms"))
	}
	if f.RateLimit < 0 {
		faults = append(faults, errors.New("--rate-limit must not be negative"))
	}
	if f.MaxQueue < 1 {
		faults = append(faults, errors.New("--max-queue must be at least 1"))
	}
	if f.ReconcileEvery < 0 || f.ReconcileEvery > 0 && f.ReconcileEvery < minPeriod {
		faults = append(faults, errors.New("--reconcile-every must be 0 or at least "+minPeriod.String()))
	}
	if f.WebhookRate < 0 {
		faults = append(faults, errors.New("--webhook-rate must not be negative"))
	}
	if f.PoolSize < 0 {
		faults = append(faults, errors.New("--pool-size must not be negative"))
	}
	return wrongUse(faults)
}

// grace is how long a shutdown waits for the answers to what is in flight.
func (f serviceFlags) grace() time.Duration { return min(serveGrace, f.RequestTimeout+graceSlack) }

// service is the API with all it runs on.
type service struct {
	log      *slog.Logger
	pool     *pgxpool.Pool
	writes   *readiness
	engine   *operations.Engine
	keys     *access.Keys
	registry *prometheus.Registry
	traces   traces
	handler  api.API
	desk     *escalations.Desk
	outbox   *webhooks.Outbox
	courier  *webhooks.Courier // nil where others deliver
	policy   policyFlags
	api      *http.Server
	admin    *http.Server
	draining atomic.Bool
	linger   time.Duration  // how long it still serves once it says that it is not ready
	cutOff   func()         // ends the calls to providers
	job      *reconcile.Job // nil where another process reconciles
	every    time.Duration  // of job
}

// newRegistry collects what every long-running process on Postgres tells.
func newRegistry(c console, pool *pgxpool.Pool, providers []string) *prometheus.Registry {
	registry := processRegistry(c)
	registry.MustRegister(
		poolCollector{pool},
		reconcile.NewCollector(pool, providers...),
		escalations.NewCollector(pool),
		webhooks.NewCollector(pool),
	)
	return registry
}

// newService wires the rooms together; nothing runs yet.
func newService(c console, pool *pgxpool.Pool, f serviceFlags) (*service, error) {
	log := c.log
	cut, cutOff := context.WithCancel(context.Background())
	s := &service{log: log, pool: pool, writes: newReadiness(pool), cutOff: cutOff}
	registry := newRegistry(c, pool, f.names())
	s.registry = registry // which the operator's guide is held against
	var err error
	if s.traces, err = f.traceFlags.open(log, registry); err != nil {
		return nil, err
	}
	if s.desk, err = f.newDesk(log, pool); err != nil {
		return nil, err
	}
	s.policy = f.policyFlags
	if s.outbox, err = f.newOutbox(log, pool); err != nil {
		return nil, err
	}
	if s.courier, err = f.newCourier(s.outbox, registry); err != nil {
		return nil, err
	}
	if s.engine, err = f.newEngine(cut, log, pool, registry, f.MaxQueue,
		each(s.desk.OnEvents, s.outbox.OnEvents)); err != nil {
		return nil, err
	}
	if f.ReconcileEvery > 0 {
		s.every = f.ReconcileEvery
		if s.job, err = reconcile.New(reconcile.Config{Rates: usualRates,
			Engine: s.engine, Pool: pool, Logger: log, Tracer: s.traces.tracer(),
		}); err != nil {
			return nil, fmt.Errorf("make reconciliation: %w", err)
		}
	}
	if s.keys, err = access.New(access.Config{Pool: pool, Logger: log}); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	history, err := reconcile.NewHistory(pool)
	if err != nil {
		return nil, err
	}
	events, err := f.stripeEvents()
	if err != nil {
		return nil, fault.Usage("%s", err)
	}
	s.handler, err = api.New(api.Config{
		Engine: s.engine, Keys: s.keys, Desk: s.desk, History: history, Outbox: s.outbox, Logger: log,
		Registerer: registry, Tracer: s.traces.tracer(),
		RequestTimeout: f.RequestTimeout, RateLimit: f.RateLimit, Ready: s.ready, Events: eventReaders(events),
	})
	if err != nil {
		return nil, fmt.Errorf("make api: %w", err)
	}
	metrics, err := api.NewAdmin(api.AdminConfig{Gatherer: registry, Logger: log, Ready: s.ready})
	if err != nil {
		return nil, fmt.Errorf("make admin api: %w", err)
	}
	if f.Pprof {
		metrics = profiled(metrics)
	}
	write := max(time.Minute, f.RequestTimeout+writeSlack)
	s.api = api.NewServer("", s.partingWhileDraining(s.handler), api.Timeouts{Write: write}, log)
	s.admin = api.NewServer("", metrics, api.Timeouts{}, log)
	return s, nil
}

// ready is what /readyz asks: not once a shutdown began, and not while a write could not succeed.
func (s *service) ready(ctx context.Context) error {
	if s.draining.Load() {
		return operations.ErrOverloaded
	}
	return s.writes.check(ctx)
}

// partingWhileDraining asks each client whose request is answered to connect anew for its next one: to another replica.
func (s *service) partingWhileDraining(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// run serves until ctx ends, and while it lingers; then it answers what is in flight for up to grace, and stops.
// serving is called once both addresses answer. The listeners are closed in any case. Calls to providers that outlast
// the grace end unanswered, which is recorded; reconciliation finds out what became of them.
func (s *service) run(ctx context.Context, public, admin net.Listener, grace time.Duration,
	serving func() error) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer s.traces.close()
	defer s.cutOff()
	due, endDue := context.WithCancel(ctx)
	defer endDue()
	reconciled := make(chan struct{})
	loops, alive := errgroup.WithContext(work)
	loops.Go(func() error { return loop(s.engine.Run(alive)) })
	loops.Go(func() error { return loop(s.keys.Run(alive)) })
	loops.Go(func() error { s.rereadPolicy(alive); return nil })
	loops.Go(func() error { s.deliver(due); return nil })
	loops.Go(func() error {
		defer close(reconciled)
		s.reconcile(due)
		return nil
	})
	loops.Go(func() error { return serveOn(s.api, s.handler.Listen(halfclose.Listener(public))) })
	loops.Go(func() error { return serveOn(s.admin, halfclose.Listener(admin)) })
	loops.Go(func() error {
		defer stop()
		defer func() { <-reconciled }() // what it has in hand needs the engine
		defer endDue()
		s.log.Info("serving", "addr", public.Addr().String(), "admin_addr", admin.Addr().String(), "build", thisBuild())
		if err := serving(); err != nil {
			s.shutdown(grace)
			return err
		}
		select {
		case <-ctx.Done():
			s.drain(alive)
		case <-alive.Done(): // a loop broke: its error is the group's
		}
		s.shutdown(grace)
		return nil
	})
	return loops.Wait()
}

// rereadPolicy reads the policy file anew at each SIGHUP, until ctx ends. Requests go on meanwhile.
func (s *service) rereadPolicy(ctx context.Context) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			s.policy.reload(s.log, s.desk)
		}
	}
}

// reconcile runs the job until ctx ends, if there is one here.
func (s *service) reconcile(ctx context.Context) {
	if s.job == nil {
		return
	}
	s.job.Loop(ctx, s.every, func(r reconcile.Summary, err error) {
		if err != nil {
			s.log.Error("reconciliation failed", "error", fault.Sentence(err))
		}
		if r.Claimed > 0 {
			s.log.Info("reconciled", "summary", runSummary(r))
		}
	})
}

// drain says that it is not ready, and goes on serving until those who balance load have noticed: a connection that
// they still send here is answered.
func (s *service) drain(alive context.Context) {
	s.draining.Store(true)
	if s.linger <= 0 {
		return
	}
	s.log.Info("draining", "drain_seconds", s.linger.Seconds())
	select {
	case <-time.After(s.linger):
	case <-alive.Done():
	}
}

// shutdown answers what is in flight, then hangs up. Metrics are served to the last.
func (s *service) shutdown(grace time.Duration) {
	s.draining.Store(true)
	s.log.Info("stopping", "grace_seconds", grace.Seconds())
	time.AfterFunc(grace, s.cutOff)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := s.api.Shutdown(ctx); err != nil {
		s.log.Warn("requests were cut off", "error", err.Error())
		_ = s.api.Close() // it is closed either way
	}
	_ = s.admin.Close()
	s.log.Info("stopped")
}

// loop drops the end that was asked for.
func loop(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func serveOn(server *http.Server, listener net.Listener) error {
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// listenBoth opens the two addresses of a service.
func listenBoth(ctx context.Context, addr, adminAddr string) (public, admin net.Listener, err error) {
	if public, err = listen(ctx, "--addr", addr); err != nil {
		return nil, nil, err
	}
	if admin, err = listen(ctx, "--admin-addr", adminAddr); err != nil {
		return nil, nil, errors.Join(err, public.Close())
	}
	return public, admin, nil
}

func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fault.Usage("%s takes HOST:PORT such as 127.0.0.1:8080, not %q", flag, addr)
	}
	if _, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil {
		return nil, fault.Usage("%s %s: the port is a number from 0 to 65535", flag, addr)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fault.Listen(flag, addr, err)
	}
	return listener, nil
}

// reachable is a listener's URL from this machine.
func reachable(listener net.Listener) string {
	host, port, _ := net.SplitHostPort(listener.Addr().String()) // a TCP address always splits
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// eventReaders are those of the providers that announce what happens, by the name that orders carry.
func eventReaders(s *stripe.Events) map[string]api.EventReader {
	if s == nil {
		return nil
	}
	return map[string]api.EventReader{providerStripe: func(body []byte, h http.Header,
		now time.Time) (operations.Hint, error) {
		return s.Read(body, h.Get("Stripe-Signature"), now)
	}}
}
