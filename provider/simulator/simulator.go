// Package simulator is a payment provider to build and test against: a real HTTP server whose books survive a kill,
// that can be told to misbehave, and the client of it that the engine uses.
//
// The provider's promises, which no fault mode breaks: a key executes once, whatever overlaps, until it is forgotten; a
// refund, a decline and the number of requests per key are on the disk before anybody is told of them; what was
// scheduled happens at its time, also across restarts. Requests that fail validation consume no fault and are not
// counted.
//
//	POST   /refunds                     Idempotency-Key; {payment_ref, amount_cents, currency, metadata?}
//	GET    /refunds?payment_ref=        also by idempotency_key; {"refunds":[…]}, all of them, oldest first
//	POST   /_faults                     {mode, count?, delay_ms?, code?, status?, message?}; see below
//	GET    /_faults                     the active ones
//	DELETE /_faults                     clears them; what they scheduled still happens
//	GET    /_ledger                     {"refunds":[…]}: every refund ever executed, with its key's number of requests
//	GET    /_keys                       {"keys":[…]}: every key ever seen, also those that executed nothing
//	POST   /_keys/expire                forgets the idempotency keys; {idempotency_key} or no body for all
//
// A refund is answered 201, under its key for ever after the same 201 and body (with Idempotent-Replayed: true), as a
// provider replays what it stored and not what became of it. A decline is a 402 {code, message}, stored alike; it makes
// no refund, so the ledger does not list it. While a request of a key runs, the others of that key get 409
// idempotency_key_in_use; a key that comes with other parameters gets 422 idempotency_key_reuse. Keys are forgotten
// KeyRetention after their outcome, or when told; the next request of a forgotten key executes AGAIN: that is the
// double refund which a resend too late causes. Payments need no registration and refund any amount.
//
// A fault is active for count requests, or until it is cleared; posting its mode again replaces it, with a count of 0
// it ends. A request meets at most one fault of each line below, and consumes one count of each that it meets, so that
// a decline's answer can be lost, or a refund that hangs fail later:
//
//	refuse, error_before, drop_before   429 with Retry-After; 500; no answer: nothing executed, nothing stored
//	hang                                executes after delay_ms, whether the client is still there or not, then answers
//	decline                             refused for good, with code (default: declined)
//	pending                             accepted; succeeded after delay_ms
//	fail_later                          failed delay_ms after it succeeded; with pending, instead of succeeding
//	error_after, drop_after             executed; 500 or no answer after delay_ms, until when the key is in use
//	lookup_down                         503 on GET /refunds
//	lookup_lag                          GET /refunds hides refunds younger than delay_ms
//
// status replaces that of an error (401: the caller is misconfigured) and never a decline's; message is its text. A
// request that gets 409 met none of them; a replay executes nothing, and meets neither decline, pending nor fail_later.
//
// Faults last until the process ends, the books (simulator.jsonl) for ever. A request that hangs when the process dies
// executes nothing. The control routes know no authentication: serve it on loopback alone.
package simulator

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// KeyRetention is how long the simulator documents that it remembers an idempotency key.
const KeyRetention = 24 * time.Hour

// MaxKeyLength is the longest idempotency key that the simulator takes, in bytes.
const MaxKeyLength = 255

// Options say where and how a Server keeps its books.
type Options struct {
	Dir          string        // the folder of simulator.jsonl; made where it is missing
	Latency      time.Duration // that every answer of /refunds takes; during it, a request holds its key
	KeyRetention time.Duration // default KeyRetention
	Logger       *slog.Logger  // optional
}

// Server is the provider. It is an http.Handler; Serve runs one by itself.
type Server struct {
	options Options
	books   *books
	faults  faults
	mux     *http.ServeMux
	closing chan struct{}
	close   sync.Once
}

// New recovers the books of options.Dir, or begins them. It fails with ErrInUse while another Server has them open, and
// with ErrCorrupt where more than their last line is damaged.
func New(options Options) (*Server, error) {
	if options.KeyRetention <= 0 {
		options.KeyRetention = KeyRetention
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	b, err := openBooks(options.Dir, options.KeyRetention)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: options,
		books:   b,
		faults:  faults{active: make(map[mode]*fault)},
		mux:     http.NewServeMux(),
		closing: make(chan struct{}),
	}
	s.mux.HandleFunc("POST /refunds", s.postRefund)
	s.mux.HandleFunc("GET /refunds", s.getRefunds)
	s.mux.HandleFunc("POST /_faults", s.postFault)
	s.mux.HandleFunc("GET /_faults", s.getFaults)
	s.mux.HandleFunc("DELETE /_faults", s.deleteFaults)
	s.mux.HandleFunc("GET /_ledger", s.getLedger)
	s.mux.HandleFunc("GET /_keys", s.getKeys)
	s.mux.HandleFunc("POST /_keys/expire", s.expireKeys)
	return s, nil
}

// ServeHTTP answers one request. Every answer names the exchange in Request-Id, as providers do for their support.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Request-Id", newID("req_"))
	w.Header().Set("Cache-Control", "no-store")
	s.mux.ServeHTTP(w, r)
}

// Close ends the requests that hang, which then executed nothing, and the books. Requests after it are answered 500.
func (s *Server) Close() error {
	s.interrupt()
	return s.books.close()
}

// interrupt ends the requests that hang.
func (s *Server) interrupt() { s.close.Do(func() { close(s.closing) }) }

// wait lets d pass, whether the client is still there or not, and tells whether the server is still there.
func (s *Server) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.closing:
		return false
	}
}
