package simulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// grace is how long the requests in hand may take to end when the simulator is told to stop.
const grace = time.Second

// Serve runs a simulator on listener until ctx ends, and closes listener. Requests that hang then end unexecuted.
//
// A process that starts one (refundd dev, or a test's own binary run again) listens on a free port of the loopback,
// keeps the books in its data folder, and gives "http://" + listener.Addr() to those who call it:
//
//	listener, err := net.Listen("tcp", "127.0.0.1:0")
//	…
//	group.Go(func() error { return simulator.Serve(ctx, listener, simulator.Options{Dir: data}) })
func Serve(ctx context.Context, listener net.Listener, options Options) error {
	s, err := New(options)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // no write timeout: a request may hang for as long as it was told to
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelWarn),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the simulator: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return s.stop(server)
	})
	return group.Wait()
}

// stop ends the requests that hang, then the others, then the books.
func (s *Server) stop(server *http.Server) error {
	s.interrupt()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
	return s.Close()
}
