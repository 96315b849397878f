package main

import (
	"context"
	"errors"
)

type serveCmd struct {
	database
	serviceFlags
	Addr string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the API is served (default ${default}; port 0 takes a free one, logged)."`
}

// Run serves until it is told to stop, and ends well only if it was told.
func (s serveCmd) Run(ctx context.Context, c console) error {
	if err := s.check(); err != nil {
		return err
	}
	collectSeldom()
	config, err := s.serveConfig(s.PoolSize)
	if err != nil {
		return err
	}
	public, admin, err := listenBoth(ctx, s.Addr, s.AdminAddr)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(public.Close(), admin.Close()) }() // for the ways out that do not serve
	pool, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	service, err := newService(c.log, pool, s.serviceFlags)
	if err != nil {
		return err
	}
	return service.run(ctx, public, admin, s.grace(), func() error { return nil })
}
