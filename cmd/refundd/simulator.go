package main

import (
	"context"
	"time"

	"refundd/provider/simulator"
)

// simulatorCmd is a provider in a process of its own, so that its CPU is nobody else's.
type simulatorCmd struct {
	Addr    string        `default:"127.0.0.1:4010" placeholder:"HOST:PORT" help:"Where it listens."`
	Data    string        `required:"" placeholder:"FOLDER" help:"Where its books are kept."`
	Latency time.Duration `default:"10ms" help:"How long each answer takes."`
}

// Run simulates a provider until it is told to stop.
func (s simulatorCmd) Run(ctx context.Context, c console) error {
	listener, err := listen(ctx, "--addr", s.Addr)
	if err != nil {
		return err
	}
	return simulator.Serve(ctx, listener, simulator.Options{Dir: s.Data, Latency: s.Latency, Logger: c.log})
}
