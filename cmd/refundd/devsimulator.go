package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"refundd/provider/simulator"
)

// devSimulator is a payment provider of dev's own; nil where there is none.
type devSimulator struct {
	listener net.Listener
	options  simulator.Options
}

// openSimulator takes a free port for a simulator and makes it the provider, unless there is to be none or another one.
func (d *devCmd) openSimulator(ctx context.Context, folder *devFolder, log *slog.Logger) (*devSimulator, error) {
	if !d.Simulator || d.SimulatorURL != "" {
		return nil, nil
	}
	listener, err := listen(ctx, "--simulator", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.SimulatorURL = reachable(listener)
	return &devSimulator{listener, simulator.Options{Dir: folder.path, Logger: log}}, nil
}

// close is for the ways out that never served.
func (s *devSimulator) close() {
	if s != nil {
		_ = s.listener.Close()
	}
}

// guard simulates while serve runs, and ends serve where that breaks.
func (s *devSimulator) guard(ctx context.Context, serve func(context.Context) error) error {
	if s == nil {
		return serve(ctx)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // it answers until nobody asks any more
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := simulator.Serve(running, s.listener, s.options); err != nil {
			return fmt.Errorf("simulate a provider: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		defer stop()
		return serve(ctx)
	})
	return group.Wait()
}
