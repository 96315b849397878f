package blackbox

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"refundd/test/harness"
)

// hooks is a caller's receiver of webhooks, with a library that others wrote.
type hooks struct {
	t    *testing.T
	URL  string
	mu   sync.Mutex
	told []string          // in the order in which they came, repeated ones left out
	ids  map[string]string // what each id told
	hook *standardwebhooks.Webhook
}

// receive makes a receiver and the tenant's endpoint that leads to it.
func receive(t *testing.T, tenant *harness.Tenant) *hooks {
	t.Helper()
	h := &hooks{t: t, ids: map[string]string{}}
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	a := tenant.Client().Post("/v1/webhook-endpoints", harness.Fields{"url": s.URL})
	want(t, a, "201")
	var made struct {
		Secret string `json:"secret"`
	}
	if err := json.Unmarshal(a.Body, &made); err != nil {
		t.Fatal(err)
	}
	hook, err := standardwebhooks.NewWebhook(made.Secret)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
	return h
}

// ServeHTTP implements http.Handler.
func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.hook.Verify(body, r.Header); err != nil {
		h.t.Errorf("a message that is not refundd's: %v", err)
	}
	var event struct {
		Type string `json:"type"`
		Data struct {
			OperationID string  `json:"operation_id"`
			FailureCode *string `json:"failure_code"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		h.t.Error(err)
	}
	told := event.Data.OperationID + " " + event.Type
	if event.Data.FailureCode != nil {
		told += " " + *event.Data.FailureCode
	}
	id := r.Header.Get("webhook-id")
	if before, known := h.ids[id]; !known {
		h.ids[id], h.told = told, append(h.told, told)
	} else if before != told {
		h.t.Errorf("%s told %q, and then %q", id, before, told)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *hooks) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.told)
}

func (h *hooks) await(n int) []string {
	h.t.Helper()
	for began := time.Now(); len(h.heard()) < n; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 40*time.Second {
			h.t.Fatalf("%d of %d messages came: %q", len(h.heard()), n, h.heard())
		}
	}
	return h.heard()
}

// A process is killed while it refunds and delivers: what was acknowledged is told all the same, by the next one.
func TestWebhooks_LoseNothingToAKill(t *testing.T) {
	t.Parallel()
	service := harness.New(t, "--webhook-allow-private")
	tenant := service.OpenTenant(t)
	tenant.Load([]string{"P0", "P1", "P2", "P3"}, 1_000_000)
	h := receive(t, tenant)
	l := begin(t, tenant, 4, func() []string { return []string{service.Servers[0].URL} })
	h.await(20)
	service.Servers[0].Kill() // of its refunds some were committed and not told yet
	l.halt()
	heard := len(h.heard())
	tenant.Exec(`UPDATE webhook_endpoints SET lease_until = '-infinity'`) // time goes by
	service.AddServer(t, "--webhook-allow-private")
	var executed int
	err := service.DB.Owner.QueryRow(t.Context(), `SELECT count(*) FROM refund_operations WHERE tenant_id = $1`,
		tenant.ID).Scan(&executed)
	if err != nil {
		t.Fatal(err)
	}
	told := h.await(executed)
	if executed <= heard || executed < len(l.acknowledged) {
		t.Errorf("%d were told before the kill, of %d that were executed and %d that were acknowledged: it came too late",
			heard, executed, len(l.acknowledged))
	}
	for key := range l.acknowledged {
		if !slices.Contains(told, key+" refund.succeeded") {
			t.Errorf("%s was acknowledged and is not told", key)
		}
	}
	service.Audit(t)
}

// What the provider says days later reaches the caller, in the order in which it happened; a reader of the log finds
// the same.
func TestWebhooks_TellALateFailure(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--webhook-allow-private")
	h := receive(t, p.Tenant)
	p.provider.Fault("pending", harness.Times(1), harness.After(time.Hour))
	p.refund("K", "P0", "pending")
	h.await(1)
	p.provider.Fault("fail_later", harness.Times(1), harness.After(time.Millisecond))
	p.refund("L", "P0", "processed")
	h.await(2)
	p.Service.Due(t)
	p.reconcile()
	told := h.await(3)
	want := []string{"K refund.pending", "L refund.succeeded", "L refund.failed late_failure"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	a := p.Client.Get("/v1/events")
	for _, w := range want {
		id, _, _ := strings.Cut(w, " ")
		if !strings.Contains(string(a.Body), fmt.Sprintf(`"operation_id":%q`, id)) ||
			!strings.Contains(string(a.Body), `"failure_code":"late_failure"`) {
			t.Errorf("%s is not in the log: %s", w, a.Body)
		}
	}
	p.Service.Audit(t)
}
