package crash

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"refundd/test/harness"
)

// The places inside of one call to the provider.
const (
	dialing     = "dial"           // connect() waits
	handshaking = "handshake"      // TLS waits for the provider
	connected   = "wire.connected" // the connection is there
	checked     = "wire.checked"   // the clocks were asked: the request is written next
	reading     = "read"           // the request is at the provider, its answer on the way
)

// held is one process with one operation in hand, caught inside of its call to the provider.
type held struct {
	operation, place string
	suspended        bool // only the wall clock went on; else the process was stopped
	server           *harness.Server
	line             *line
	clock, gate      string // files
}

func (h *held) String() string {
	if h.suspended {
		return h.operation + ", suspended at " + h.place
	}
	return h.operation + ", stopped at " + h.place
}

// A process is stopped, or its machine suspended for 25 hours, wherever a call to the provider may wait. Meanwhile
// another one settles the operation and the provider forgets every key: one byte too late is a second refund.
func TestA56_StoppedOrSuspendedInsideTheCall_TheProviderExecutesOnce(t *testing.T) {
	t.Parallel()
	s := harness.NewPaying(t, "--listing-lag", "1ms", "--provider-breaker-failures", "1000000", "--pool-size", "4")
	s.AddServer(t)
	tenant := s.OpenTenant(t)
	var told harness.History
	var callers sync.WaitGroup
	var all []*held
	for _, place := range []string{dialing, handshaking, connected, checked, reading} {
		for _, suspended := range []bool{false, true} {
			h := &held{operation: fmt.Sprint("K", len(all)), place: place, suspended: suspended}
			all = append(all, h)
			tenant.Pay(harness.Payment{OrderID: h.operation, Cents: cents})
			h.start(t, s)
			callers.Go(func() {
				told.Ask(t, tenant.ClientOf(h.server), h.operation, h.operation, cents, 2*time.Minute)
			})
			h.await(t, s, tenant)
			h.sleep(t)
		}
	}
	// the leases of those that are stopped; the provider's patience with a silent connection
	time.Sleep(6 * time.Second)
	for round := 0; round < 10 && !settled(t, s); round++ {
		s.Due(t)
		s.Reconcile(t)
	}
	s.Simulator.Forget()
	for _, h := range all {
		h.wake(t)
	}
	callers.Wait()
	for _, h := range all {
		if code := h.server.Terminate(t); code != 0 {
			t.Errorf("%v: exits %d: %s", h, code, h.server.Logs.Text())
		}
		if n := s.Simulator.Requests()[tenant.ProviderKey(h.operation)]; n != 1 {
			t.Errorf("%v: the provider got %d requests", h, n)
		}
	}
	told.Hold(t, s.Simulator.Ledger(), tenant.ProviderKey, harness.Patience{}) // a second refund fails the test
	s.Audit(t)
}

func settled(t *testing.T, s *harness.Service) bool {
	t.Helper()
	for _, r := range rowsOf(t, s) {
		if r.State != "succeeded" {
			return false
		}
	}
	return true
}

// start starts the process, with a line of its own to the provider.
func (h *held) start(t *testing.T, s *harness.Service) {
	t.Helper()
	dir := t.TempDir()
	h.clock, h.gate = filepath.Join(dir, "clock"), filepath.Join(dir, "gate")
	h.line = newLine(t, h.place, strings.TrimPrefix(s.Simulator.URL, "http://"), dir)
	env := []string{"SSL_CERT_FILE=" + filepath.Join(dir, "ca.pem"), "REFUNDD_WALL_CLOCK=" + h.clock}
	if strings.HasPrefix(h.place, "wire.") {
		env = append(env, "REFUNDD_FAILPOINT="+h.place+":1:wait="+h.gate)
	}
	limits := []string{"--provider-timeout", "2s", "--lease", "5s"}
	if h.suspended { // by the monotonic clock no time passes
		limits = []string{"--provider-timeout", "1m", "--lease", "2m"}
	}
	flags := append([]string{"--simulator-url", h.line.url}, limits...)
	for i := 0; i < len(s.Flags); i += 2 {
		if s.Flags[i] != "--simulator-url" {
			flags = append(flags, s.Flags[i], s.Flags[i+1])
		}
	}
	h.server = harness.ServeIn(t, s.DB.ServiceURL, env, flags...)
}

// await waits until the process is at its place.
func (h *held) await(t *testing.T, s *harness.Service, tenant *harness.Tenant) {
	t.Helper()
	switch h.place {
	case connected, checked:
		if _, err := h.server.Logs.Await(time.Minute, nil, "failpoint "+h.place); err != nil {
			t.Fatalf("%v: %v\n%s", h, err, h.server.Logs.Text())
		}
	case reading:
		s.Simulator.AwaitRequests(tenant.ProviderKey(h.operation), 1)
	default:
		h.line.await(t, h)
	}
}

// sleep stops the process, or lets 25 hours pass by its wall clock alone.
func (h *held) sleep(t *testing.T) {
	t.Helper()
	if !h.suspended {
		h.server.Pause(t)
		return
	}
	if err := os.WriteFile(h.clock+".new", []byte("25h"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(h.clock+".new", h.clock); err != nil {
		t.Fatal(err)
	}
}

// wake lets the call go on, once the provider's side of it is there for a process that still sleeps.
func (h *held) wake(t *testing.T) {
	t.Helper()
	close(h.line.released)
	if h.place == dialing {
		select {
		case <-h.line.reached: // the kernel completes the connection for the process
		case <-time.After(40 * time.Second):
			t.Errorf("%v: no connection", h)
		}
	}
	if err := os.WriteFile(h.gate, nil, 0o600); err != nil {
		t.Error(err)
	}
	if !h.suspended {
		h.server.Resume(t)
	}
}

// line is the way from one process to the provider. It holds its first connection at a place until it is released.
type line struct {
	url      string
	place    string
	provider string
	addr     net.Addr
	reached  chan struct{}
	once     sync.Once
	released chan struct{}
	tls      *tls.Config
	fillers  map[string]bool // connections that only fill the queue
}

func newLine(t *testing.T, place, provider, dir string) *line {
	t.Helper()
	l := &line{place: place, provider: provider, reached: make(chan struct{}), released: make(chan struct{})}
	var listener net.Listener
	if place == dialing {
		listener, l.fillers = fullListener(t)
	} else {
		var err error
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	l.addr, l.url = listener.Addr(), "http://"+listener.Addr().String()
	if place != dialing { // one place is enough to see that all is the same without TLS
		l.url = "https" + strings.TrimPrefix(l.url, "http")
		l.tls = certified(t, dir)
	}
	t.Cleanup(func() { listener.Close() })
	go l.serve(listener)
	return l
}

// certified makes a certificate for the loopback, and puts it where processes look for those that they trust.
func certified(t *testing.T, dir string) *tls.Config {
	t.Helper()
	web := httptest.NewTLSServer(http.NotFoundHandler())
	defer web.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}
}

// fullListener is one whose queue is full, so that whoever connects waits until somebody accepts.
func fullListener(t *testing.T) (listener net.Listener, fillers map[string]bool) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = syscall.Listen(fd, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if listener, err = net.FileListener(file); err != nil {
		t.Fatal(err)
	}
	fillers = map[string]bool{}
	for range 10 {
		c, err := net.DialTimeout("tcp", listener.Addr().String(), 200*time.Millisecond)
		if err != nil {
			return listener, fillers
		}
		fillers[c.LocalAddr().String()] = true
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue is never full")
	return nil, nil
}

func (l *line) serve(listener net.Listener) {
	if l.place == dialing {
		<-l.released
	}
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go l.pass(c)
	}
}

// await waits until the first connection is at the line's place.
func (l *line) await(t *testing.T, h *held) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if l.place == dialing && l.connecting(t) {
			return
		}
		select {
		case <-l.reached:
			if l.place != dialing {
				return
			}
		default:
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%v: no connection\n%s", h, h.server.Logs.Text())
		}
	}
}

// connecting tells whether somebody's connect() waits for the line.
func (l *line) connecting(t *testing.T) bool {
	t.Helper()
	sockets, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const synSent = "02"
	return strings.Contains(string(sockets), fmt.Sprintf("0100007F:%04X %s", l.addr.(*net.TCPAddr).Port, synSent))
}

// pass carries one connection to the provider and back.
func (l *line) pass(c net.Conn) {
	defer c.Close()
	if l.fillers[c.RemoteAddr().String()] {
		return
	}
	l.once.Do(func() { close(l.reached) })
	if l.tls != nil {
		if l.place == handshaking {
			<-l.released
		}
		client := tls.Server(c, l.tls)
		if err := client.Handshake(); err != nil {
			return
		}
		if c = client; l.place == connected {
			<-l.released // what is written now meets a provider that waits for it
		}
	}
	provider, err := net.Dial("tcp", l.provider)
	if err != nil {
		return
	}
	defer provider.Close()
	go func() {
		_, _ = io.Copy(provider, c)
		_ = provider.(*net.TCPConn).CloseWrite()
	}()
	if l.place == reading {
		<-l.released
	}
	_, _ = io.Copy(c, provider)
}
