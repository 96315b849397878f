package main

import (
	"context"
	"errors"
	"time"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
)

// maxDrain leaves time to answer what came last.
const maxDrain = 20 * time.Second

type serveCmd struct {
	postgres.Database
	serviceFlags
	Addr string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the API is served (default ${default}; port 0 takes a free one, logged)."`

	Console bool `help:"Serve the console, a page for people, at /console/."`

	DrainDelay time.Duration `default:"3s" help:"How long it still takes connections after SIGTERM, while /readyz says 503."`
}

// Run serves until it is told to stop, and ends well only if it was told.
func (s serveCmd) Run(ctx context.Context, c console) error {
	if err := s.check(); err != nil {
		return err
	}
	if s.DrainDelay < 0 || s.DrainDelay > maxDrain {
		return fault.Usage("--drain-delay must be from 0 to %s: all of a stop takes %s", maxDrain, serveGrace)
	}
	collectSeldom()
	config, err := s.ServeConfig(s.PoolSize)
	if err != nil {
		return err
	}
	public, admin, err := listenBoth(ctx, s.Addr, s.AdminAddr)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(public.Close(), admin.Close()) }() // for the ways out that do not serve
	pool, err := postgres.Connect(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	service, err := newService(c, pool, s.serviceFlags)
	if err != nil {
		return err
	}
	if s.Console {
		if err := service.offerConsole(); err != nil {
			return err
		}
	}
	service.linger = s.DrainDelay
	return service.run(ctx, public, admin, min(s.grace(), serveGrace-s.DrainDelay), func() error { return nil })
}
