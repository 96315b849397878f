package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"refundd/bench"
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

// simulate starts a provider for the run and answers the flag that tells serve of it.
func (b benchCmd) simulate(ctx context.Context, d *deployment, program, folder string) (string, error) {
	books, err := memoryFolder()
	if err != nil {
		return "", err
	}
	d.stops = append(d.stops, func() { _ = os.RemoveAll(books) }) // a temporary folder
	addr, err := bench.FreeAddress(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "simulator", "--addr", addr, "--data", books,
		"--latency", b.SimulatorLatency.String())
	provider, err := bench.StartChild(ctx, folder, addr, cmd)
	if err != nil {
		return "", err
	}
	d.stops = append(d.stops, provider.Stop)
	d.provider = provider.Used
	return "--simulator-url=http://" + addr, nil
}

// memoryFolder is a temporary folder in memory where there is one: a provider's disk is not ours, and must not be one that
// our Postgres waits for.
func memoryFolder() (string, error) {
	const memory = "/dev/shm"
	if folder, err := os.MkdirTemp(memory, "refundd-bench-"); err == nil {
		return folder, nil
	}
	folder, err := os.MkdirTemp("", "refundd-bench-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the provider's books: %w", err)
	}
	return folder, nil
}
