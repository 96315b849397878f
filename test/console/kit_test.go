// Package console_test is what a person sees: the console in a real browser, against refundd dev and its simulator's
// faults. It is a module of its own, which .ci/console runs: the suite of the program needs no browser.
package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
)

// world is one refundd dev and one browser, which all tests share; each test has orders and a tab of its own.
type world struct {
	URL          string `json:"url"`
	DatabaseURL  string `json:"database_url"`
	SimulatorURL string `json:"simulator_url"`
	TenantID     string `json:"tenant_id"`
	APIKey       string `json:"api_key"`

	program string
	folder  string
	browser context.Context
}

var w world

// pictures is where screenshots go.
var pictures = os.Getenv("REFUNDD_PICTURES")

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	stop, err := w.start()
	defer stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// start builds and starts what the tests look at.
func (w *world) start() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	if w.folder, err = os.MkdirTemp("", "refundd-console-"); err != nil {
		return stop, err
	}
	stops = append(stops, func() { _ = os.RemoveAll(w.folder) })
	if err := os.Chmod(w.folder, 0o755); err != nil { // its Postgres runs as another account when root runs this
		return stop, err
	}
	w.program = filepath.Join(w.folder, "refundd")
	build := exec.Command("go", "build", "-o", w.program, "./cmd/refundd")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return stop, fmt.Errorf("build: %w: %s", err, out)
	}
	end, err := w.serve()
	if err != nil {
		return stop, err
	}
	stops = append(stops, end)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Env("HOME="+w.folder),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("lang", "en-GB"),
		chromedp.WSURLReadTimeout(time.Minute))
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	var quit context.CancelFunc
	w.browser, quit = chromedp.NewContext(allocated)
	stops = append(stops, release, quit)
	return stop, chromedp.Run(w.browser)
}

// serve starts refundd dev and reads where it is.
func (w *world) serve() (end func(), err error) {
	data := filepath.Join(w.folder, "data")
	log, err := os.Create(filepath.Join(w.folder, "log"))
	if err != nil {
		return nil, err
	}
	dev := exec.Command(w.program, "dev", "--addr", "127.0.0.1:0", "--data", data, "--listing-lag", "1s",
		"--provider-timeout", "2s",
		"--provider-breaker-failures", "1000")
	dev.Stdout, dev.Stderr = log, log
	dev.Env = append(os.Environ(), "DATABASE_URL=")
	if err := dev.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = dev.Wait(); close(ended) }()
	end = func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		<-ended
	}
	for range 600 {
		if raw, err := os.ReadFile(filepath.Join(data, "dev.json")); err == nil {
			return end, json.Unmarshal(raw, w)
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			return end, fmt.Errorf("refundd dev ended: %s", said)
		case <-time.After(100 * time.Millisecond):
		}
	}
	end()
	return func() {}, errors.New("refundd dev does not serve")
}

// do sends JSON and wants one of the statuses.
func do(t *testing.T, method, address, key, body string, want ...int) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range want {
		if answer.StatusCode == status {
			return raw
		}
	}
	t.Fatalf("%s %s: %d %s", method, address, answer.StatusCode, raw)
	return nil
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

type object map[string]any

// order registers a payment at the simulator; more are further members.
func order(t *testing.T, id, currency string, captured int64, more object) {
	t.Helper()
	body := object{"currency": currency, "captured_cents": captured, "provider": "simulator",
		"provider_payment_ref": "pay-" + id}
	for k, v := range more {
		body[k] = v
	}
	do(t, "PUT", w.URL+"/v1/orders/"+url.PathEscape(id), w.APIKey, marshal(t, body), 201)
}

func approve(t *testing.T, operation, caseID, orderID string, cents int64, more object) {
	t.Helper()
	body := object{"case_id": caseID, "order_id": orderID, "amount_cents": cents, "approved_by": "Ann"}
	for k, v := range more {
		body[k] = v
	}
	do(t, "PUT", w.URL+"/v1/authorizations/"+operation, w.APIKey, marshal(t, body), 201)
}

// paid is an order with an approved refund of part of it, all named alike.
func paid(t *testing.T, id string, cents int64) {
	t.Helper()
	order(t, id, "USD", 10000,
		object{"customer": object{"id": "cus-" + id, "email": id + "@example.com", "name": "Ada Lindqvist"}})
	approve(t, id, "case-"+id, id, cents, object{"reason": "Arrived damaged"})
}

func refund(t *testing.T, id string, cents int64, want int) {
	t.Helper()
	do(t, "POST", w.URL+"/v1/refunds", w.APIKey,
		fmt.Sprintf(`{"operation_id":%q,"order_id":%q,"amount_cents":%d}`, id, id, cents), want)
}

// oneFault lets one test at a time tell the simulator how to fail.
var oneFault sync.Mutex

// faulty does act while the simulator fails as told.
func faulty(t *testing.T, act func(), faults ...string) {
	t.Helper()
	oneFault.Lock()
	defer oneFault.Unlock()
	for _, f := range faults {
		do(t, "POST", w.SimulatorURL+"/_faults", "", f, 200)
	}
	defer do(t, "DELETE", w.SimulatorURL+"/_faults", "", "", 200)
	act()
}

// sql runs statements as the owner of the database.
func sql(t *testing.T, statement string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// waits makes a refund that waits for a person: its answer was lost, the provider's books hide it, and its key may be
// forgotten. executed says whether the provider paid it.
func waits(t *testing.T, id string, cents int64, executed bool) {
	t.Helper()
	paid(t, id, cents)
	mode := "drop_before"
	if executed {
		mode = "drop_after"
	}
	faulty(t, func() {
		refund(t, id, cents, 202)
		sql(t, `UPDATE refund_operations SET provider_key_expires_at = now() - interval '1 hour',
			last_send_ended = now() - interval '1 hour',
			lease_until = '-infinity' WHERE operation_id = $1`, id)
		raw := do(t, "POST", w.URL+"/v1/refunds/"+id+"/reconcile", w.APIKey, "", 200)
		if !bytes.Contains(raw, []byte("needs_attention")) {
			t.Fatalf("%s does not wait: %s", id, raw)
		}
	}, `{"mode":"`+mode+`","count":1}`, `{"mode":"lookup_lag","delay_ms":600000}`)
}

// key makes a key of the tenant's with these scopes.
func key(t *testing.T, scopes string) string {
	t.Helper()
	make := exec.CommandContext(t.Context(), w.program, "keys", "create", "--tenant", w.TenantID, "--scopes", scopes)
	make.Env = append(os.Environ(), "DATABASE_URL="+w.DatabaseURL)
	secret, err := make.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(secret))
}

// stateOf is a refund's state, as the API tells it.
func stateOf(t *testing.T, id string) string {
	t.Helper()
	var r struct{ State string }
	if err := json.Unmarshal(do(t, "GET", w.URL+"/v1/refunds/"+id, w.APIKey, "", 200), &r); err != nil {
		t.Fatal(err)
	}
	return r.State
}
