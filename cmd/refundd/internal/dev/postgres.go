package dev

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/internal/embedpg"
	"refundd/migrations"
)

const databaseName = "refundd" // in a cluster of dev's own

// A stop takes less than 5 s, all together.
const (
	Grace    = 2 * time.Second         // for requests in flight
	patience = 2500 * time.Millisecond // for what still waits in Postgres; then its sessions are ended
	stopTime = 4500 * time.Millisecond // for all of it; Postgres is killed then, and recovers at the next start
)

// Postgres is the Postgres that dev works on, seen as its owner.
type Postgres struct {
	postgres.Database
	server *embedpg.Server // nil where the Postgres is not ours to stop
	stopBy time.Time       // zero until dev was told to stop
}

// PostgresOptions say which Postgres that is.
type PostgresOptions struct {
	URL    string // of one that runs; else one is started in the folder
	Really string // the name of its database, to mean one that holds what is not dev's
	Logger *slog.Logger
}

// OpenPostgres starts a Postgres in the folder, or takes the one that was named, and migrates it.
func OpenPostgres(ctx context.Context, folder *Folder, o PostgresOptions) (p *Postgres, err error) {
	p = &Postgres{Database: postgres.Database{DatabaseURL: o.URL}}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	if o.URL == "" {
		o.Logger.Info("starting postgres", "data", filepath.Join(folder.path, "postgres"))
		err = p.start(ctx, folder)
	} else {
		err = p.meant(ctx, folder, o.Really)
	}
	if err == nil {
		err = migrations.Up(ctx, p.DatabaseURL)
	}
	return p, err
}

// meant refuses a Postgres that was named and holds what is not dev's.
func (p *Postgres) meant(ctx context.Context, folder *Folder, really string) error {
	if u, err := url.Parse(p.DatabaseURL); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return fault.Usage("dev needs DATABASE_URL as a URL such as postgres://owner:password@127.0.0.1:5432/refundd")
	}
	conn, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	secrets, err := folder.Secrets()
	if err != nil {
		return err
	}
	return postgres.Meant(ctx, conn, postgres.Intent{
		Command: "dev", Writes: "its samples", Tenants: Tenant, Key: secrets.APIKey, Really: really,
	})
}

func (p *Postgres) start(ctx context.Context, folder *Folder) (err error) {
	p.server, err = embedpg.Start(ctx, embedpg.Options{Dir: filepath.Join(folder.path, "postgres")})
	if errors.Is(err, embedpg.ErrInUse) {
		return fault.New(err, "another process serves the Postgres in %s: stop it, or choose another --data",
			folder.path)
	}
	if err != nil {
		return err
	}
	cluster := postgres.Database{DatabaseURL: p.server.URL()}
	if err := cluster.Create(ctx, databaseName); err != nil {
		return err
	}
	p.DatabaseURL = p.server.DatabaseURL(databaseName)
	return nil
}

// Connect makes the service's login and returns a pool that works as it.
func (p *Postgres) Connect(ctx context.Context, s Secrets, size int32) (*pgxpool.Pool, error) {
	if err := p.MakeLogin(ctx, s.Role, s.Password); err != nil {
		return nil, err
	}
	config, err := p.ServeConfig(size)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.User, config.ConnConfig.Password = s.Role, s.Password
	return postgres.Connect(ctx, config)
}

// Stop ends a Postgres that dev started.
func (p *Postgres) Stop() {
	if p.server == nil {
		return
	}
	if p.stopBy.IsZero() {
		p.stopBy = time.Now().Add(stopTime)
	}
	ctx, cancel := context.WithDeadline(context.Background(), p.stopBy)
	defer cancel()
	_ = p.server.Stop(ctx) // at the end of ctx it is killed, and recovers at the next start
}

// hangUp ends the service's sessions, also those of second attempts, until it is served: what still waits in Postgres
// when dev has to be gone must not hold it.
func (p *Postgres) hangUp(role string, served <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	conn, err := p.Conn(ctx) // now, since it may take a while
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	for wait := patience; ; wait = patience / 10 {
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

// Guard runs serve, and ends it when a Postgres of dev's own dies; once ctx has ended it does not let a statement that
// still waits hold serve for long.
func (p *Postgres) Guard(ctx context.Context, role string, serve func(context.Context) error) error {
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
		p.stopBy = time.Now().Add(stopTime)
		p.hangUp(role, served)
		return nil
	})
	return group.Wait()
}

// died is closed when a Postgres of dev's own has ended; never for another one.
func (p *Postgres) died() <-chan struct{} {
	if p.server == nil {
		return nil
	}
	return p.server.Done()
}
