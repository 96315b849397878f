// Package testbed starts a deployment for one run of bench: a durable Postgres, the service, and a simulated provider,
// each in a process of its own, so that its CPU is nobody else's.
package testbed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"refundd/bench"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/internal/embedpg"
	"refundd/migrations"
)

// databaseName and role are what the service works in, and as.
const databaseName, role = "refundd", "refundd_bench"

// Bed is what is put under load. One that was running before has a Database and a Target alone.
type Bed struct {
	Database postgres.Database
	Target   bench.Target
	Provider func(context.Context) (bench.Used, error) // what it used so far; nil where there is none of ours
	service  *bench.Child
	folder   string // for logs
	stops    []func()
}

// Options say what is started.
type Options struct {
	Postgres  map[string]string // settings of Postgres
	Serve     []string          // flags of serve
	Simulator bool              // a provider as well
	Latency   time.Duration     // of each of its answers
	Logger    *slog.Logger
}

// Start starts a durable Postgres and this very program as a service on it, as the restricted role.
func Start(ctx context.Context, o Options) (_ *Bed, err error) {
	b := &Bed{}
	defer func() {
		if err != nil {
			b.Stop()
		}
	}()
	if b.folder, err = os.MkdirTemp("", "refundd-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for logs: %w", err)
	}
	b.atStop(func() { _ = os.RemoveAll(b.folder) }) // a temporary folder
	password := rand.Text()
	if err := b.startPostgres(ctx, o, password); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	var flags []string
	if o.Simulator {
		simulator, err := b.startSimulator(ctx, program, o.Latency)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "--simulator-url="+simulator)
	}
	if err := b.startService(ctx, program, password, append(flags, o.Serve...), o.Logger); err != nil {
		return nil, err
	}
	return b, nil
}

// Stop ends what was started, the last first.
func (b *Bed) Stop() {
	for i := len(b.stops) - 1; i >= 0; i-- {
		b.stops[i]()
	}
}

func (b *Bed) atStop(stop func()) { b.stops = append(b.stops, stop) }

// EmptyLog keeps a log, which has a line for each request, from filling the disk.
func (b *Bed) EmptyLog() {
	if b.service != nil {
		_ = b.service.EmptyLog() // the next round tries again
	}
}

func (b *Bed) startPostgres(ctx context.Context, o Options, password string) error {
	o.Logger.Info("starting postgres, durable")
	server, err := embedpg.Start(ctx, embedpg.Options{Durable: true, Settings: o.Postgres})
	if err != nil {
		return err
	}
	b.atStop(func() { _ = server.Stop(context.Background()) }) // a throw-away one
	cluster := postgres.Database{DatabaseURL: server.URL()}
	if err := cluster.Create(ctx, databaseName); err != nil {
		return err
	}
	b.Database.DatabaseURL = server.DatabaseURL(databaseName)
	if err := migrations.Up(ctx, b.Database.DatabaseURL); err != nil {
		return err
	}
	return b.Database.MakeLogin(ctx, role, password)
}

func (b *Bed) startService(ctx context.Context, program, password string, flags []string, log *slog.Logger) error {
	addr, err1 := bench.FreeAddress(ctx)
	admin, err2 := bench.FreeAddress(ctx)
	u, err3 := url.Parse(b.Database.DatabaseURL)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	u.User = url.UserPassword(role, password)
	args := append([]string{"serve", "--addr", addr, "--admin-addr", admin, "--drain-delay", "0s"}, flags...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...) // ended by Stop, which lets it answer
	cmd.Env = append(os.Environ(), "DATABASE_URL="+u.String())
	service, err := bench.StartChild(ctx, b.folder, addr, cmd)
	if err != nil {
		return err
	}
	b.service = service
	b.atStop(service.Stop)
	log.Info("serving", "command", strings.Join(args, " "), "pid", service.PID())
	b.Target = bench.Target{Name: "refundd", URL: "http://" + addr, Used: service.Used}
	return nil
}

// startSimulator starts a provider and returns its URL.
func (b *Bed) startSimulator(ctx context.Context, program string, latency time.Duration) (string, error) {
	books, err := memoryFolder()
	if err != nil {
		return "", err
	}
	b.atStop(func() { _ = os.RemoveAll(books) }) // a temporary folder
	addr, err := bench.FreeAddress(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "simulator", "--addr", addr, "--data", books,
		"--latency", latency.String())
	provider, err := bench.StartChild(ctx, b.folder, addr, cmd)
	if err != nil {
		return "", err
	}
	b.atStop(provider.Stop)
	b.Provider = provider.Used
	return "http://" + addr, nil
}

// memoryFolder is a temporary folder in memory where there is one: a provider's disk is not ours, and must not be one
// that our Postgres waits for.
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
