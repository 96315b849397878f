package api

import (
	"log/slog"
	"net/http"
	"time"
)

// Timeouts are the deadlines of a connection, each from its own beginning.
type Timeouts struct {
	ReadHeader time.Duration // to have all headers; default 5 s
	Read       time.Duration // to have the whole request; default 15 s
	// from the headers to the end of the answer; must outlast a request's deadline; default 60 s
	Write time.Duration
	Idle  time.Duration // between two requests; default 2 min
}

// maxHeader is generous enough for a key of any length to be refused as too long, by name.
const maxHeader = 32 << 10

// NewServer makes an HTTP server that no slow or oversized request can hold.
func NewServer(addr string, h http.Handler, t Timeouts, log *slog.Logger) *http.Server {
	or := func(d, standard time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return standard
	}
	s := &http.Server{
		Addr:                         addr,
		Handler:                      h,
		ReadHeaderTimeout:            or(t.ReadHeader, 5*time.Second),
		ReadTimeout:                  or(t.Read, 15*time.Second),
		WriteTimeout:                 or(t.Write, 60*time.Second),
		IdleTimeout:                  or(t.Idle, 2*time.Minute),
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered by the handler, as a problem
	}
	if log != nil {
		s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	}
	return s
}
