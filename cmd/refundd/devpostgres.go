package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"refundd/internal/embedpg"
	"refundd/migrations"
)

const devDatabase = "refundd" // in a cluster of dev's own

// devPostgres is the Postgres that dev works on, seen as its owner.
type devPostgres struct {
	url    string
	server *embedpg.Server // nil where the Postgres is not ours to stop
	stopBy time.Time       // zero until dev was told to stop
}

// openPostgres starts a Postgres in the folder, or takes the one that was named, and migrates it.
func (d devCmd) openPostgres(ctx context.Context, folder *devFolder, log *slog.Logger) (*devPostgres, error) {
	p := &devPostgres{url: d.DatabaseURL}
	if p.url == "" {
		log.Info("starting postgres", "data", filepath.Join(folder.path, "postgres"))
		if err := p.start(ctx, folder); err != nil {
			return nil, err
		}
	}
	if err := d.meant(ctx, p, folder); err != nil {
		p.stop()
		return nil, err
	}
	if err := p.migrate(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// meant refuses a Postgres that was named and holds what is not dev's: DATABASE_URL may be left from another program.
func (d devCmd) meant(ctx context.Context, p *devPostgres, folder *devFolder) error {
	if p.server != nil {
		return nil
	}
	if u, err := url.Parse(p.url); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return usage("dev needs DATABASE_URL as a URL such as postgres://owner:password@127.0.0.1:5432/refundd")
	}
	conn, err := database{p.url}.conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	secrets, err := folder.secrets()
	if err != nil {
		return err
	}
	t, err := look(ctx, conn, devTenant, secrets.APIKey)
	if err != nil {
		return err
	}
	return t.refusal("dev", "its samples", d.Really)
}

func (p *devPostgres) migrate(ctx context.Context) error { return migrations.Up(ctx, p.url) }

func (p *devPostgres) start(ctx context.Context, folder *devFolder) (err error) {
	p.server, err = embedpg.Start(ctx, embedpg.Options{Dir: filepath.Join(folder.path, "postgres")})
	if errors.Is(err, embedpg.ErrInUse) {
		return &fault{text: fmt.Sprintf("another process serves the Postgres in %s: stop it, or choose another --data", folder.path), cause: err}
	}
	if err != nil {
		return err
	}
	if err := createDatabase(ctx, p.server.URL()); err != nil {
		p.stop()
		return err
	}
	p.url = p.server.DatabaseURL(devDatabase)
	return nil
}

func createDatabase(ctx context.Context, url string) error {
	conn, err := database{url}.conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, devDatabase).Scan(&exists); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+devDatabase); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	return nil
}

// stop ends a Postgres that dev started.
func (p *devPostgres) stop() {
	if p.server == nil {
		return
	}
	if p.stopBy.IsZero() {
		p.stopBy = time.Now().Add(devStop)
	}
	ctx, cancel := context.WithDeadline(context.Background(), p.stopBy)
	defer cancel()
	_ = p.server.Stop(ctx) // at the end of ctx it is killed, and recovers at the next start
}

// createRole makes the login that the service works as: with no more rights, and the time limits, that one in production has.
func (p *devPostgres) createRole(ctx context.Context, s devSecrets) error {
	conn, err := database{p.url}.conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return loginFault(migrations.MakeLogin(ctx, conn, migrations.Login{Name: s.Role, Role: migrations.Service, Password: s.Password}))
}

// hangUp ends the service's sessions, also those of second attempts, until it is served: what still waits in Postgres when
// dev has to be gone must not hold it.
func (p *devPostgres) hangUp(role string, served <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), devStop)
	defer cancel()
	conn, err := database{p.url}.conn(ctx) // now, since it may take a while
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	for wait := devPatience; ; wait = devPatience / 10 {
		select {
		case <-served:
			return
		case <-ctx.Done():
			return
		case <-time.After(wait):
			_, _ = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, role)
		}
	}
}

// guard runs serve, and ends it when a Postgres of dev's own dies; once ctx has ended it does not let a statement that
// still waits hold serve for long.
func (p *devPostgres) guard(ctx context.Context, role string, serve func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		defer close(served)
		return serve(ctx)
	})
	group.Go(func() error {
		select {
		case <-p.died():
			if ctx.Err() != nil {
				return nil
			}
			err := errors.New("the Postgres of dev's own has died: start again, it recovers")
			cancel(err)
			return err
		case <-ctx.Done():
		case <-served:
			return nil
		}
		p.stopBy = time.Now().Add(devStop)
		p.hangUp(role, served)
		return nil
	})
	return group.Wait()
}

// died is closed when a Postgres of dev's own has ended; never for another one.
func (p *devPostgres) died() <-chan struct{} {
	if p.server == nil {
		return nil
	}
	return p.server.Done()
}
