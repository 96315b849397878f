// Package embedpg finds or starts a Postgres for development and tests.
//
// Its promise: one process at a time owns a data folder, for as long as its
// Server lives, by an flock that dies with the process. Under that lock
// whatever an earlier owner left behind (a postmaster that is still going
// down, a stale postmaster.pid, half an initdb) is cured, and nothing else is
// ever touched: a folder that a living process serves answers ErrInUse. A
// persistent folder keeps every durability setting and data checksums on; a
// throw-away cluster has them off and leaves nothing behind, not even after
// kill -9, since the next start sweeps what a dead owner could not remove.
//
// Postgres refuses to run as root. When the caller is root it runs as the
// owner of the data, or as postgres or nobody; where that account cannot reach
// the folder (a checkout under /root), the cluster is kept in /var/lib/refundd
// and the folder holds a link to it.
//
// Server binaries are looked for on PATH, which chooses among several versions,
// and where packages put them; where there are none, Docker runs the official
// image on the same folder.
package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// ErrNoPostgres says what to install; Start returns it where neither server
// binaries nor a running Docker engine are found.
var ErrNoPostgres = errors.New("no Postgres found: install its server (Debian: apt-get install postgresql; " +
	"macOS: brew install postgresql), or start Docker, or name a running one in DATABASE_URL or TEST_DATABASE_URL")

// ErrInUse is returned for a data folder that a living process serves.
var ErrInUse = errors.New("the data folder is in use")

const (
	superuser = "refundd"          // the bootstrap role: owner of everything, with CREATEDB and CREATEROLE
	marker    = "refundd-embedded" // cluster_name: tells our postmasters and their children from anybody else's
	startWait = 5 * time.Minute    // crash recovery, and the pull of an image, included
	stopWait  = 10 * time.Second   // a fast shutdown, where the caller names no deadline
	killWait  = 10 * time.Second   // for SIGKILLed processes to leave the process table
)

// Options say which cluster Start serves.
type Options struct {
	// Dir is the data folder, made when absent. "" is a throw-away cluster in
	// a fresh temporary folder, which Stop removes.
	Dir string
	// Durable leaves fsync, synchronous_commit and full_page_writes on in a
	// throw-away cluster, for crash tests. Persistent ones always have them.
	Durable bool
	// Settings are further server settings, by name; they win over ours.
	Settings map[string]string
	// Log receives the server's log as well as <dir>/postgres.log.
	Log io.Writer
}

// Server is a running Postgres that this process owns. Its methods may be
// called from several goroutines.
type Server struct {
	options Options
	home    *home
	install install

	mu       sync.Mutex // guards what Restart, Kill and Stop change
	port     int
	password string
	proc     *process // nil while nothing runs
}

// Start serves the cluster of o, making it first where there is none. ctx
// bounds the start alone. Errors: ErrNoPostgres, ErrInUse, or one sentence
// that ends with what the server itself said.
func Start(ctx context.Context, o Options) (*Server, error) {
	h, err := openHome(o.Dir, o.Durable)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, home: h}
	if err := s.boot(ctx); err != nil {
		if o.Dir == "" {
			_ = removeFolder(h.dir) // the next start's sweep tries again
		}
		h.close()
		return nil, err
	}
	return s, nil
}

// boot brings a locked folder to a serving cluster.
func (s *Server) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := s.home.endStale(); err != nil {
		return err
	}
	var err error
	if s.install, err = findInstall(ctx, s.home.version(), packaged); err != nil {
		return err
	}
	if s.password, err = s.home.readOrMakePassword(); err != nil {
		return err
	}
	if err := s.ensureCluster(ctx); err != nil {
		return err
	}
	return s.serve(ctx)
}

// serve starts the postmaster on the port it had before, or on another one
// where that is taken, until it answers our password.
func (s *Server) serve(ctx context.Context) error {
	for range 10 {
		port, err := choosePort(ctx, s.home.readPort())
		if err != nil {
			return err
		}
		s.proc, err = s.launch(port)
		if err != nil {
			return err
		}
		s.port = port
		err = s.awaitReady(ctx)
		if err == nil {
			return s.home.writeFile("port", strconv.Itoa(port)+"\n")
		}
		exitedBySelf := s.proc.exited()
		errKill := s.proc.kill(killWait)
		s.proc = nil
		if !exitedBySelf || portFree(ctx, port) {
			return errors.Join(fmt.Errorf("start postgres: %w%s", err, s.home.logTail()), errKill)
		}
	}
	return errors.New("start postgres: every port tried was taken by another process")
}

// URL is a connection string of the owner, a superuser, to database postgres.
func (s *Server) URL() string { return s.DatabaseURL("postgres") }

// DatabaseURL is the owner's connection string to the named database.
func (s *Server) DatabaseURL(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.databaseURL(name)
}

func (s *Server) databaseURL(name string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     "127.0.0.1:" + strconv.Itoa(s.port),
		Path:     "/" + name,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Dir is the data folder, the temporary one of a throw-away cluster included.
func (s *Server) Dir() string { return s.home.dir }

// PID is the postmaster's process id, 0 while nothing runs.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.postmaster()
}

// Done is closed when the running postmaster has ended, wanted or not.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return s.proc.done
}

// Kill ends the postmaster and all its children with SIGKILL, as a power cut
// would, and returns once they are gone. A persistent folder is given up, so
// that Start may serve it again; a throw-away one stays ours until Stop, and
// Restart serves it again.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	err := s.proc.kill(killWait)
	s.proc = nil
	if s.options.Dir != "" {
		s.home.close()
	}
	return err
}

// Restart serves the folder again after Kill, on the same port unless another
// process took it meanwhile.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return errors.New("restart postgres: it is running")
	}
	if err := s.home.relock(); err != nil {
		return err
	}
	return s.boot(ctx)
}

// Stop shuts the cluster down fast (SIGINT), at the end of ctx at once
// (SIGQUIT, then SIGKILL: a durable cluster recovers at its next start), and
// removes a throw-away one. It may be called again.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	var err error
	if s.proc != nil {
		err = s.proc.stop(ctx)
		s.proc = nil
	}
	if s.options.Dir == "" {
		dropSharedMemory(s.home.data())
		err = errors.Join(err, removeFolder(s.home.dir))
	}
	s.home.close()
	return err
}
