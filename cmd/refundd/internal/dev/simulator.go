package dev

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"refundd/provider/simulator"
)

// Simulator is a payment provider of dev's own; a nil one simulates nothing.
type Simulator struct {
	listener net.Listener
	options  simulator.Options
}

// NewSimulator returns a provider that will answer on the listener, with its books in the folder.
func NewSimulator(listener net.Listener, folder *Folder, log *slog.Logger) *Simulator {
	return &Simulator{listener, simulator.Options{Dir: folder.path, Logger: log}}
}

// Close is for the ways out that never served.
func (s *Simulator) Close() {
	if s != nil {
		_ = s.listener.Close()
	}
}

// Guard simulates while serve runs, and ends serve where that breaks.
func (s *Simulator) Guard(ctx context.Context, serve func(context.Context) error) error {
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
