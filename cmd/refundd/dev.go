package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/access"
)

// A stop takes less than 5 s, all together.
const (
	devGrace    = 2 * time.Second         // for requests in flight
	devPatience = 2500 * time.Millisecond // for what still waits in Postgres; then its sessions are ended
	devStop     = 4500 * time.Millisecond // for all of it; Postgres is killed then, and recovers at the next start
)

type devCmd struct {
	database
	serviceFlags
	Addr      string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the API is served (default ${default}; port 0 takes a free one)."`
	Data      string `default:".refundd" placeholder:"FOLDER" help:"Where the Postgres of its own, keys, the policy, the simulator's books and dev.json are kept (default ${default})."`
	Really    string `placeholder:"DATABASE" help:"The name of the database in DATABASE_URL, to write samples into it though it holds what is not dev's."`
	Simulator bool   `default:"true" help:"Start a simulated provider, unless --simulator-url names one (default ${default})."`
}

// Run serves with a Postgres, a tenant, orders and approvals of its own until it is told to stop. To be told so while it
// starts is no failure.
func (d devCmd) Run(ctx context.Context, c console) error {
	if err := d.check(); err != nil {
		return err
	}
	folder, err := openFolder(d.Data)
	if err != nil {
		return err
	}
	defer folder.close()
	c, flush := c.unhurried()
	defer flush()
	serves := false
	err = d.runIn(ctx, c, folder, &serves)
	if ctx.Err() != nil && !serves {
		return nil // whatever was interrupted says so in words of its own
	}
	return err
}

func (d devCmd) runIn(ctx context.Context, c console, folder *devFolder, serves *bool) error {
	public, admin, err := listenBoth(ctx, d.Addr, d.AdminAddr)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(public.Close(), admin.Close()) }() // for the ways out that do not serve
	postgres, err := d.openPostgres(ctx, folder, c.log)
	if err != nil {
		return err
	}
	defer postgres.stop()
	secrets, err := folder.secrets()
	if err != nil {
		return err
	}
	pool, err := postgres.login(ctx, secrets, d.PoolSize)
	if err != nil {
		return err
	}
	defer pool.Close()
	simulator, err := d.openSimulator(ctx, folder, c.log)
	if err != nil {
		return err
	}
	defer simulator.close()
	if d.Policy == "" {
		if d.Policy, err = folder.policy(); err != nil {
			return err
		}
	}
	service, err := newService(c, pool, d.serviceFlags)
	if err != nil {
		return err
	}
	if err := postgres.prepare(ctx, service, folder, &secrets); err != nil {
		return err
	}
	record := devRecord{
		URL: reachable(public), AdminURL: reachable(admin), DatabaseURL: libpqURL(postgres.url), TenantID: devTenant, APIKey: secrets.APIKey,
	}
	if d.SimulatorURL != "" {
		record.SimulatorURL = &d.SimulatorURL
	}
	defer func() { _ = folder.forget() }()
	serving := func() error {
		*serves = true
		if err := folder.announce(record); err != nil {
			return err
		}
		c.printf("%s", tour(record))
		return nil
	}
	return simulator.guard(ctx, func(ctx context.Context) error {
		return postgres.guard(ctx, secrets.Role, func(ctx context.Context) error {
			return service.run(ctx, public, admin, devGrace, serving)
		})
	})
}

// login makes the service's role and answers a pool that works as it.
func (p *devPostgres) login(ctx context.Context, s devSecrets, size int32) (*pgxpool.Pool, error) {
	if err := p.createRole(ctx, s); err != nil {
		return nil, err
	}
	config, err := database{p.url}.serveConfig(size)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.User, config.ConnConfig.Password = s.Role, s.Password
	return connect(ctx, config)
}

// prepare makes tenant, key and samples where they are not there yet. The service itself may not let anybody in.
func (p *devPostgres) prepare(ctx context.Context, s *service, folder *devFolder, secrets *devSecrets) error {
	return database{p.url}.withKeys(ctx, func(keys *access.Keys) error {
		err := keys.CreateTenant(ctx, devTenant, true)
		if err != nil && !errors.Is(err, access.ErrTenantExists) {
			return err
		}
		if err := seed(ctx, s.engine); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		_, err = s.keys.Authenticate(ctx, secrets.APIKey) // the folder may have met another database
		if err == nil || !errors.Is(err, access.ErrUnauthenticated) {
			return err
		}
		secret, _, err := keys.CreateKey(ctx, access.NewKey{TenantID: devTenant, Scopes: access.AllScopes()})
		if err != nil {
			return err
		}
		secrets.APIKey = secret
		return folder.keep(*secrets)
	})
}
