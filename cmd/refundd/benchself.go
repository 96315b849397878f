package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"refundd/bench"
	"refundd/internal/embedpg"
)

// deployment is what is put under load.
type deployment struct {
	database
	target   bench.Target
	service  *bench.Child                              // nil where it was running before
	provider func(context.Context) (bench.Used, error) // nil where there is none of ours
	stops    []func()
}

// stop ends what was started for this run, the last first.
func (d *deployment) stop() {
	for i := len(d.stops) - 1; i >= 0; i-- {
		d.stops[i]()
	}
}

// emptyLog keeps a log, which has a line for each request, from filling the disk.
func (d *deployment) emptyLog() {
	if d.service != nil {
		_ = d.service.EmptyLog() // the next round tries again
	}
}

// deploy starts a durable Postgres and a service on it, in a process of its own and as the restricted role.
func (b benchCmd) deploy(ctx context.Context, c console) (d deployment, err error) {
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	folder, err := os.MkdirTemp("", "refundd-bench-")
	if err != nil {
		return d, fmt.Errorf("make a folder for logs: %w", err)
	}
	d.stops = append(d.stops, func() { _ = os.RemoveAll(folder) }) // a temporary folder
	c.log.Info("starting postgres, durable")
	server, err := embedpg.Start(ctx, embedpg.Options{Durable: true, Settings: b.PostgresSetting})
	if err != nil {
		return d, err
	}
	d.stops = append(d.stops, func() { _ = server.Stop(context.Background()) }) // a throw-away one
	if err := createDatabase(ctx, server.URL()); err != nil {
		return d, err
	}
	owner := &devPostgres{url: server.DatabaseURL(devDatabase)}
	if err := owner.migrate(ctx); err != nil {
		return d, err
	}
	role := devSecrets{Role: "refundd_bench", Password: rand.Text()}
	if err := owner.createRole(ctx, role); err != nil {
		return d, err
	}
	d.database = database{owner.url}
	err = b.serve(ctx, c, &d, folder, role)
	return d, err
}

// serve starts this very program as a service.
func (b benchCmd) serve(ctx context.Context, c console, d *deployment, folder string, role devSecrets) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	addr, err1 := bench.FreeAddress(ctx)
	admin, err2 := bench.FreeAddress(ctx)
	u, err3 := url.Parse(d.DatabaseURL)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	u.User = url.UserPassword(role.Role, role.Password)
	args := []string{"serve", "--addr", addr, "--admin-addr", admin, "--drain-delay", "0s"}
	if b.asks(bench.KindSimulator) {
		flag, err := b.simulate(ctx, d, program, folder)
		if err != nil {
			return err
		}
		args = append(args, flag)
	}
	args = append(args, b.ServeFlags...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...) // ended by stop, which lets it answer
	cmd.Env = append(os.Environ(), "DATABASE_URL="+u.String())
	if d.service, err = bench.StartChild(ctx, folder, addr, cmd); err != nil {
		return err
	}
	d.stops = append(d.stops, d.service.Stop)
	c.log.Info("serving", "command", strings.Join(args, " "), "pid", d.service.PID())
	d.target.Name, d.target.URL, d.target.Used = "refundd", "http://"+addr, d.service.Used
	return nil
}
