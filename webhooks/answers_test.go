package webhooks_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"refundd/operations"
	"refundd/webhooks"
)

// attempted sends one event to a URL and returns what became of the first attempt: nothing where it was taken.
func (b *bundle) attempted(t *testing.T, id, url string) string {
	t.Helper()
	e, _ := b.endpoint(t, tenant, url)
	from := read[int64](t, b, `SELECT position FROM webhook_endpoints WHERE endpoint_id = $1::text::uuid`, e.ID)
	b.reserve(t, tenant, id)
	b.move(t, tenant, operations.StatePending, id)
	result := ""
	eventually(t, "attempt of "+url, func() (bool, string) {
		return read[int64](t, b, `SELECT position FROM webhook_endpoints WHERE endpoint_id = $1::text::uuid`,
			e.ID) > from, ""
	})
	found, _, err := b.box.Deliveries(t.Context(), keyOf(e), nil, operations.Page{Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 1 {
		result = string(*found[0].LastResult)
		if found[0].LastStatus != nil {
			result += fmt.Sprint(" ", *found[0].LastStatus)
		}
	}
	if _, err := b.box.Delete(t.Context(), keyOf(e)); err != nil {
		t.Fatal(err)
	}
	return result
}

func TestAnswers_AreTakenByTheirStatusAlone(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	raw := func(answer string) string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write([]byte(answer))
				_ = conn.Close()
			}
		}()
		return "http://" + listener.Addr().String()
	}
	serve := func(f http.HandlerFunc) string {
		s := httptest.NewServer(f)
		t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
		return s.URL
	}
	var poured atomic.Int64
	endless := func(w http.ResponseWriter, r *http.Request) {
		for chunk := bytes.Repeat([]byte("x"), 1<<16); r.Context().Err() == nil; poured.Add(1 << 16) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.deliver(t)
	got := map[string]string{}
	for i, c := range []struct{ name, url string }{
		{"204", serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })},
		{"299", serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) })},
		{"endless body", serve(endless)},
		{"302", serve(func(w http.ResponseWriter,
			r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusFound)
		})},
		{"307", serve(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		})},
		{"400", serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) })},
		{"endless header", raw("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20))},
		{"no HTTP", raw("SSH-2.0-OpenSSH_9.2\r\n")},
		{"nobody", "http://127.0.0.1:1"},
		{"no such name", "http://refundd-test.invalid"},
	} {
		got[c.name] = b.attempted(t, fmt.Sprint("op-", i), c.url)
	}
	want := map[string]string{
		"204": "", "299": "", "endless body": "", "302": "refused 302", "307": "refused 307", "400": "refused 400",
		"endless header": "connection_failed", "no HTTP": "connection_failed", "nobody": "connection_failed", "no such name": "connection_failed",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	runtime.ReadMemStats(&after)
	if n := poured.Load(); n > 64<<20 { // what sockets hold, and not what ten seconds carry
		t.Errorf("%d MiB of an answer were read", n>>20)
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d redirects followed", n)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("%d MiB more", grown>>20)
	}
}

// An endpoint that hangs is left after 10 s; one that says yes and drips its body for ever was told.
func TestAnswers_ThatTakeTooLong(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var began atomic.Int64
	hangs := newReceiver(t, func(got, int) int { began.Store(time.Now().UnixMilli()); return 0 })
	drips := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("."))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	}))
	defer drips.Close()
	b.deliver(t)
	if result := b.attempted(t, "op-1", hangs.URL); result != "timeout" {
		t.Error(result)
	}
	if took := time.Since(time.UnixMilli(began.Load())); took < 8*time.Second || took > 25*time.Second {
		t.Errorf("left after %v", took)
	}
	if result := b.attempted(t, "op-2", drips.URL); result != "" {
		t.Error(result)
	}
}

// resolving answers every question for addresses with the next ones of a list, and the last ones for ever.
func resolving(t *testing.T, answers ...[]netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		buf := make([]byte, 512)
		for asked := 0; ; {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			q := buf[:n]
			end := 12 + bytes.IndexByte(q[12:], 0) + 5
			kind := binary.BigEndian.Uint16(q[end-4:])
			addresses := answers[min(asked/2, len(answers)-1)] // A and AAAA are asked for together
			asked++
			reply := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
			for _, ip := range addresses {
				if (kind == 28) == ip.Is6() {
					reply[7]++
					raw := ip.AsSlice()
					reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
					reply = append(reply, raw...)
				}
			}
			_, _ = server.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// Whatever a name resolves to, and however often it changes its mind, nothing inside the network is sent anything.
func TestAddresses_InsideTheNetworkAreSentNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := accepting(t)
	u, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	inside := func(all ...string) []netip.Addr {
		addresses := make([]netip.Addr, len(all))
		for i, a := range all {
			addresses[i] = netip.MustParseAddr(a)
		}
		return addresses
	}
	registry := prometheus.NewPedanticRegistry()
	b.courier(t, b.outbox(t, false),
		resolving(t, inside("127.0.0.1"), inside("10.0.0.1", "127.0.0.1"), inside("::1", "::ffff:127.0.0.1"),
			inside("127.0.0.1")), registry)
	for i, host := range []string{"rebinding.example", "rebinding.example", "rebinding.example", "127.0.0.1", "[::1]",
		"[::ffff:127.0.0.1]", "localhost"} {
		// made while private addresses were allowed
		if result := b.attempted(t, fmt.Sprint("op-", i),
			"http://"+host+":"+u.Port()); result != "address_not_allowed" {
			t.Errorf("%s: %s", host, result)
		}
	}
	if told := r.told(); len(told) != 0 {
		t.Errorf("%q", told)
	}
	if n := testutil.ToFloat64(mustGather(t, registry, "address_not_allowed")); n < 7 {
		t.Errorf("%v attempts counted", n)
	}
}

// mustGather is one result's count.
func mustGather(t *testing.T, r *prometheus.Registry, result string) prometheus.Collector {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "found"})
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "refundd_webhook_attempts_total" && m.GetLabel()[0].GetValue() == result {
				gauge.Set(m.GetCounter().GetValue())
			}
		}
	}
	return gauge
}

func TestCollector_TellsWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	r := newReceiver(t, func(got, int) int { return 500 })
	e, _ := b.endpoint(t, tenant, r.URL)
	b.reserve(t, tenant, "op-1", "op-2")
	b.move(t, tenant, operations.StatePending, "op-1", "op-2")
	b.exec(t, `UPDATE webhook_events SET created_at = now() - interval '1 hour'`)
	if _, cursor := b.follow(t, tenant, ""); cursor == "" {
		t.Fatal("no events")
	}
	told := func() string {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(webhooks.NewCollector(b.db.Pool))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, f := range families {
			all = append(all, fmt.Sprintf("%s %.0f", strings.TrimPrefix(f.GetName(), "refundd_webhook_"),
				f.GetMetric()[0].GetGauge().GetValue()/10))
		}
		return strings.Join(all, ", ")
	}
	if got := told(); got != "endpoints_disabled 0, oldest_seconds 360, queued 0" {
		t.Error(got)
	}
	for range 9 {
		b.move(t, tenant, operations.StateSucceeded, "op-1", "op-2")
	}
	b.follow(t, tenant, "")
	if got := told(); got != "endpoints_disabled 0, oldest_seconds 360, queued 2" {
		t.Error(got)
	}
	b.exec(t, `UPDATE webhook_endpoints SET disabled_at = now(), disabled_because = 'gone'`)
	if got := told(); got != "endpoints_disabled 0, oldest_seconds 0, queued 0" || read[int](t, b, `SELECT count(*)
		FROM webhook_endpoints WHERE disabled_because <> 'requested'`) != 1 {
		t.Error(got, e)
	}
}
