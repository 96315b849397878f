package main

import (
	"context"
	"errors"
	"log/slog"

	"refundd/cmd/refundd/internal/dev"
	"refundd/cmd/refundd/internal/postgres"
)

type devCmd struct {
	postgres.Database
	serviceFlags
	Addr      string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the API is served (default ${default}; port 0 takes a free one)."`
	Data      string `default:".refundd" placeholder:"FOLDER" help:"Where the Postgres of its own, keys, the policy, the simulator's books and dev.json are kept (default ${default})."`
	Really    string `placeholder:"DATABASE" help:"The name of the database in DATABASE_URL, to write samples into it though it holds what is not dev's."`
	Console   bool   `default:"true" help:"Serve the console, a page for people, at /console/ (default ${default})."`
	Simulator bool   `default:"true" help:"Start a simulated provider, unless --simulator-url names one (default ${default})."`
}

// Run serves with a Postgres, a tenant, orders and approvals of its own until it is told to stop. To be told so while
// it starts is no failure.
func (d devCmd) Run(ctx context.Context, c console) error {
	if err := d.check(); err != nil {
		return err
	}
	folder, err := dev.OpenFolder(d.Data)
	if err != nil {
		return err
	}
	defer folder.Close()
	c, flush := c.unhurried()
	defer flush()
	serves := false
	err = d.runIn(ctx, c, folder, &serves)
	if ctx.Err() != nil && !serves {
		return nil // whatever was interrupted says so in words of its own
	}
	return err
}

func (d devCmd) runIn(ctx context.Context, c console, folder *dev.Folder, serves *bool) error {
	collectSeldom()
	public, admin, err := listenBoth(ctx, d.Addr, d.AdminAddr)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(public.Close(), admin.Close()) }() // for the ways out that do not serve
	owner, err := dev.OpenPostgres(ctx, folder,
		dev.PostgresOptions{URL: d.DatabaseURL, Really: d.Really, Logger: c.log})
	if err != nil {
		return err
	}
	defer owner.Stop()
	secrets, err := folder.Secrets()
	if err != nil {
		return err
	}
	pool, err := owner.Connect(ctx, secrets, d.PoolSize)
	if err != nil {
		return err
	}
	defer pool.Close()
	simulator, err := d.openSimulator(ctx, folder, c.log)
	if err != nil {
		return err
	}
	defer simulator.Close()
	if d.Policy == "" {
		if d.Policy, err = folder.Policy(); err != nil {
			return err
		}
	}
	d.WebhookAllowPrivate = true // whoever tries webhooks here receives them on this machine
	service, err := newService(c, pool, d.serviceFlags)
	if err != nil {
		return err
	}
	if d.Console {
		if err := service.offerConsole(); err != nil {
			return err
		}
	}
	if err := owner.Seed(ctx, service.engine, service.keys, folder, &secrets); err != nil {
		return err
	}
	record := dev.Record{
		URL: reachable(public), AdminURL: reachable(admin), DatabaseURL: postgres.LibpqURL(owner.DatabaseURL),
		TenantID: dev.Tenant, APIKey: secrets.APIKey,
	}
	if d.SimulatorURL != "" {
		record.SimulatorURL = &d.SimulatorURL
	}
	defer func() { _ = folder.Forget() }()
	serving := func() error {
		*serves = true
		if err := folder.Announce(record); err != nil {
			return err
		}
		c.printf("%s", dev.Tour(record))
		if d.Console {
			tellConsole(c, record.URL, record.APIKey)
		}
		return nil
	}
	return simulator.Guard(ctx, func(ctx context.Context) error {
		return owner.Guard(ctx, secrets.Role, func(ctx context.Context) error {
			return service.run(ctx, public, admin, dev.Grace, serving)
		})
	})
}

// openSimulator takes a free port for a simulator and makes it the provider, unless there is to be none or another one.
func (d *devCmd) openSimulator(ctx context.Context, folder *dev.Folder, log *slog.Logger) (*dev.Simulator, error) {
	if !d.Simulator || d.SimulatorURL != "" {
		return nil, nil
	}
	listener, err := listen(ctx, "--simulator", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.SimulatorURL = reachable(listener)
	return dev.NewSimulator(listener, folder, log), nil
}
