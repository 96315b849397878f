package simulator_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// serveDir makes the test's binary a simulator with this folder, so that it can be killed.
const serveDir = "SIMULATOR_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveDir); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return simulator.Serve(ctx, listener, simulator.Options{
		Dir: dir, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// process is a simulator in a process of its own.
type process struct {
	provider
	cmd *exec.Cmd
}

func startProcess(t *testing.T, dir string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read the process's address: %v", err)
	}
	p.provider = provider{url: strings.TrimSpace(line)}
	p.ledger(t) // answered once it serves
	return p
}

// kill is a kill −9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// stop asks the process to end and waits for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("the process ended with %v", err)
	}
}

// provider is a simulator as its callers see it.
type provider struct{ url string }

// start serves a simulator with books of its own.
func start(t *testing.T, options simulator.Options) provider {
	t.Helper()
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	s, err := simulator.New(options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return provider{url: server.URL}
}

// client sends each request once: without a connection to reuse, net/http never sends again.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// answer is what a request brought; err where it brought none.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (p provider) send(ctx context.Context, method, path, key, body string) answer {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, body: string(all), err: err}
}

// body is a refund of 4999 of a payment.
func body(paymentRef string) string {
	return fmt.Sprintf(`{"payment_ref":%q,"amount_cents":4999,"currency":"EUR","metadata":{"operation_id":"op-1"}}`,
		paymentRef)
}

// refund asks for 4999 of pay-1 under key.
func (p provider) refund(t *testing.T, key string) answer {
	t.Helper()
	return p.send(t.Context(), "POST", "/refunds", key, body("pay-1"))
}

func (p provider) fault(t *testing.T, body string) {
	t.Helper()
	p.send(t.Context(), "POST", "/_faults", "", body).want(t, http.StatusOK)
}

func (p provider) ledger(t *testing.T) []entry { return p.list(t, "/_ledger") }

func (p provider) lookup(t *testing.T, paymentRef string) []entry {
	t.Helper()
	return p.list(t, "/refunds?payment_ref="+url.QueryEscape(paymentRef))
}

func (p provider) list(t *testing.T, path string) []entry {
	t.Helper()
	a := p.send(t.Context(), "GET", path, "", "").want(t, http.StatusOK)
	return decode[struct {
		Refunds []entry `json:"refunds"`
	}](t, a.body).Refunds
}

// entry is a refund of the ledger, of a lookup or of an answer.
type entry struct {
	RefundID    string            `json:"refund_id"`
	Key         string            `json:"idempotency_key"`
	PaymentRef  string            `json:"payment_ref"`
	AmountCents int64             `json:"amount_cents"`
	Currency    string            `json:"currency"`
	Metadata    map[string]string `json:"metadata"`
	Status      string            `json:"status"`
	FailureCode *string           `json:"failure_code"`
	CreatedAt   time.Time         `json:"created_at"`
	Requests    int               `json:"requests"`
}

func decode[T any](t *testing.T, body string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	return v
}

func (a answer) want(t *testing.T, status int) answer {
	t.Helper()
	if a.err != nil || a.status != status {
		t.Fatalf("got %d %s (%v), want %d", a.status, a.body, a.err, status)
	}
	return a
}

// dropped wants a connection that was closed without an answer.
func (a answer) dropped(t *testing.T) {
	t.Helper()
	if a.err == nil {
		t.Fatalf("got %d %s, want a closed connection", a.status, a.body)
	}
}

// refused wants an error with a code.
func (a answer) refused(t *testing.T, status int, code string) {
	t.Helper()
	a.want(t, status)
	got := decode[struct {
		Code string `json:"code"`
	}](t, a.body).Code
	if got != code {
		t.Errorf("got the code %q, want %q", got, code)
	}
}

// eventually waits for a condition that comes by time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// appendTo adds raw bytes to the books of dir.
func appendTo(t *testing.T, dir string, raw []byte) {
	t.Helper()
	path := dir + "/simulator.jsonl"
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Join([][]byte{all, raw}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}
