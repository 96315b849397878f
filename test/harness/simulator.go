package harness

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/provider/simulator"
)

// The environment of a test binary that is run again as a simulator.
const (
	simulatorDir     = "REFUNDD_TEST_SIMULATOR_DIR"
	simulatorAddr    = "REFUNDD_TEST_SIMULATOR_ADDR"
	simulatorLatency = "REFUNDD_TEST_SIMULATOR_LATENCY"
)

// Simulator is a payment provider in a process of its own. Its books survive a kill.
type Simulator struct {
	URL string

	addr    string
	dir     string
	latency time.Duration
	cmd     *exec.Cmd
	done    chan struct{}
	t       testing.TB
}

// Simulate starts a simulator, which is killed when the test ends. Each of its answers takes latency.
func Simulate(t testing.TB, latency time.Duration) *Simulator {
	t.Helper()
	s := &Simulator{addr: "127.0.0.1:0", dir: t.TempDir(), latency: latency, t: t}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Start starts the simulator, again where it was before.
func (s *Simulator) Start() {
	s.t.Helper()
	s.cmd = exec.CommandContext(context.Background(), os.Args[0])
	s.cmd.Env = environment(simulatorDir+"="+s.dir, simulatorAddr+"="+s.addr, simulatorLatency+"="+s.latency.String())
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatalf("open the simulator's output: %v", err)
	}
	address := make(chan string, 1)
	s.done = make(chan struct{})
	err = launch(s.cmd, func() {
		line, _ := bufio.NewReader(out).ReadString('\n') // empty where it did not come to serve
		address <- strings.TrimSpace(line)
		_ = s.cmd.Wait() // it serves until it is killed
		close(s.done)
	})
	if err != nil {
		s.t.Fatalf("start the simulator: %v", err)
	}
	if s.addr = <-address; s.addr == "" {
		s.t.Fatal("the simulator does not serve")
	}
	if s.URL == "" {
		s.URL = "http://" + s.addr
	}
}

// Kill ends the simulator with SIGKILL.
func (s *Simulator) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.done
}

// simulateInstead makes this process a simulator where it was started as one.
func simulateInstead() {
	dir := os.Getenv(simulatorDir)
	if dir == "" {
		return
	}
	if err := simulate(dir, os.Getenv(simulatorAddr), os.Getenv(simulatorLatency)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func simulate(dir, addr, latency string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	takes, err := time.ParseDuration(latency)
	if err != nil {
		return fmt.Errorf("read the simulator's latency: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for the simulator: %w", err)
	}
	if _, err := fmt.Println(listener.Addr()); err != nil {
		return fmt.Errorf("tell the simulator's address: %w", err)
	}
	return simulator.Serve(ctx, listener, simulator.Options{Dir: dir, Latency: takes})
}

// Fault makes the simulator misbehave; see the package simulator. It may be called from any goroutine.
func (s *Simulator) Fault(mode string, more ...Fields) {
	s.t.Helper()
	fault := Fields{"mode": mode}
	for _, f := range more {
		for name, value := range f {
			fault[name] = value
		}
	}
	s.call(http.MethodPost, "/_faults", JSON(fault))
}

// Times is a fault's count.
func Times(n int) Fields { return Fields{"count": n} }

// After is a fault's delay.
func After(d time.Duration) Fields { return Fields{"delay_ms": d.Milliseconds()} }

// Heal ends all faults.
func (s *Simulator) Heal() {
	s.t.Helper()
	s.call(http.MethodDelete, "/_faults", nil)
}

// Forget makes the simulator forget its idempotency keys. What it executed stays executed.
func (s *Simulator) Forget() {
	s.t.Helper()
	s.call(http.MethodPost, "/_keys/expire", nil)
}

// ForgetKey makes the simulator forget one of them.
func (s *Simulator) ForgetKey(key string) {
	s.t.Helper()
	s.call(http.MethodPost, "/_keys/expire", JSON(Fields{"idempotency_key": key}))
}

// Executed is a refund in the simulator's books.
type Executed struct {
	RefundID    string    `json:"refund_id"`
	Key         string    `json:"idempotency_key"`
	PaymentRef  string    `json:"payment_ref"`
	AmountCents int64     `json:"amount_cents"`
	Currency    string    `json:"currency"`
	Status      string    `json:"status"`
	CreatedAt   time.Time `json:"created_at"`
	Requests    int       `json:"requests"`
}

// Ledger is every refund that was ever executed, by its key; a key that executed twice fails the test.
func (s *Simulator) Ledger() map[string]Executed {
	s.t.Helper()
	books := map[string]Executed{}
	for _, e := range s.Refunds() {
		if first, again := books[e.Key]; again {
			s.t.Errorf("the provider refunded %s twice: %+v, %+v", e.Key, first, e)
		}
		books[e.Key] = e
	}
	return books
}

// Refunds is every refund that was ever executed, oldest first.
func (s *Simulator) Refunds() []Executed {
	s.t.Helper()
	return answered[struct {
		Refunds []Executed `json:"refunds"`
	}](s, "/_ledger").Refunds
}

// Requests is how many requests ever carried each key.
func (s *Simulator) Requests() map[string]int {
	s.t.Helper()
	requests := map[string]int{}
	for _, k := range answered[struct {
		Keys []struct {
			Key      string `json:"idempotency_key"`
			Requests int    `json:"requests"`
		} `json:"keys"`
	}](s, "/_keys").Keys {
		requests[k.Key] = k.Requests
	}
	return requests
}

// AwaitRequests waits until n requests have carried the key.
func (s *Simulator) AwaitRequests(key string, n int) {
	s.t.Helper()
	for began := time.Now(); s.Requests()[key] < n; time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > startWait {
			s.t.Fatalf("no request %d of %s reaches the provider", n, key)
		}
	}
}

func answered[T any](s *Simulator, path string) T {
	s.t.Helper()
	var v T
	if err := json.Unmarshal(s.call(http.MethodGet, path, nil), &v); err != nil {
		s.t.Fatalf("read the simulator's %s: %v", path, err)
	}
	return v
}

func (s *Simulator) call(method, path string, body []byte) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), requestWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatalf("%s %s of the simulator: %v", method, path, err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		s.t.Fatalf("%s %s of the simulator: %v", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s of the simulator: %d %s (%v)", method, path, res.StatusCode, all, err)
	}
	return all
}

// Refund asks the simulator for a refund as nobody of ours would.
func (s *Simulator) Refund(key string, refund Fields) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL+"/refunds",
		bytes.NewReader(JSON(refund)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		s.t.Fatalf("refund at the simulator: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusCreated {
		s.t.Fatalf("refund at the simulator: %d", res.StatusCode)
	}
}
