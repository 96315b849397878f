package webhooks_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"refundd/api"
	"refundd/internal/pgtx"
	"refundd/operations"
	"refundd/test/testdb"
	"refundd/webhooks"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const tenant = "acme"

// bundle is an outbox on a database of its own.
type bundle struct {
	db  *testdb.DB
	box *webhooks.Outbox
	log *slog.Logger
}

func newBundle(t *testing.T) *bundle {
	t.Helper()
	return newBundleOn(t, testdb.New(t))
}

func newBundleOn(t *testing.T, db *testdb.DB) *bundle {
	t.Helper()
	b := &bundle{db: db, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	b.exec(t, `INSERT INTO tenants (tenant_id) VALUES ('acme'), ('other')`)
	b.exec(t, `INSERT INTO orders (tenant_id, order_id, currency, captured_cents, provider, provider_payment_ref)
		VALUES ('acme', 'P', 'EUR', 1000000, 'simulator', 'pay_1'), ('other', 'P', 'EUR', 1000000, 'simulator',
			'pay_2')`)
	b.exec(t, `INSERT INTO orders (tenant_id, order_id, currency, captured_cents) VALUES ('acme', 'L', 'EUR', 1000000)`)
	b.box = b.outbox(t, true)
	return b
}

func (b *bundle) outbox(t *testing.T, allowPrivate bool) *webhooks.Outbox {
	t.Helper()
	box, err := webhooks.New(webhooks.Config{Pool: b.db.Pool, Logger: b.log, AllowPrivate: allowPrivate})
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.db.Owner.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// read is the one value of a query.
func read[T any](t *testing.T, b *bundle, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := b.db.Owner.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// reserve makes operations at a provider, which no event tells of.
func (b *bundle) reserve(t *testing.T, tenantID string, ids ...string) {
	t.Helper()
	b.exec(t, `INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
		currency, state,
			metadata, provider, provider_key, provider_key_expires_at, attempts)
		SELECT $1, id, repeat('a', 64), gen_random_uuid(), 'P', 100, 'EUR', 'reserved', '{"note":"a"}', 'simulator',
			$1 || ':' || id, now(), 1
		FROM unnest($2::text[]) AS id`, tenantID, ids)
}

// move takes operations to a state, and tells of it in the same transaction, as the engine does.
func (b *bundle) move(t *testing.T, tenantID string, to operations.State, ids ...string) {
	t.Helper()
	if err := pgtx.Do(t.Context(), b.db.Pool,
		func(tx *pgtx.Tx) error { return b.moveIn(t.Context(), tx, tenantID, to, ids...) }); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) moveIn(ctx context.Context, tx pgx.Tx, tenantID string, to operations.State, ids ...string) error {
	_, err := tx.Exec(ctx, `UPDATE refund_operations SET state = $3, settled_at = CASE
		WHEN $3 IN ('succeeded', 'failed') THEN clock_timestamp() END,
			provider_refund_id = CASE WHEN $3 = 'reserved' THEN NULL ELSE 're_' || tenant_id || operation_id END,
			failure_code = CASE WHEN $3 = 'failed' THEN 'late_failure' END
		WHERE tenant_id = $1 AND operation_id = ANY ($2)`, tenantID, ids, to)
	if err != nil {
		return err
	}
	events := make([]operations.Event, len(ids))
	for i, id := range ids {
		events[i] = operations.Event{TenantID: tenantID, OperationID: id, Kind: "transition", ToState: &to,
			CreatedAt: time.Now()}
	}
	told := &pgx.Batch{}
	if err := b.box.OnEvents(told, events); err != nil {
		return err
	}
	return tx.SendBatch(ctx, told).Close()
}

// courier delivers until the test ends, or until the function that it returns is called.
func (b *bundle) courier(t *testing.T, box *webhooks.Outbox, resolver *net.Resolver,
	r prometheus.Registerer) (stop func()) {
	t.Helper()
	return b.run(t, webhooks.CourierConfig{Outbox: box, Body: api.WebhookBody, Resolver: resolver, Registerer: r})
}

func (b *bundle) run(t *testing.T, config webhooks.CourierConfig) (stop func()) {
	t.Helper()
	c, err := webhooks.NewCourier(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return stop
}

func (b *bundle) deliver(t *testing.T) (stop func()) { return b.courier(t, b.box, nil, nil) }

func (b *bundle) endpoint(t *testing.T, tenantID, url string, types ...string) (webhooks.Endpoint, webhooks.Secret) {
	t.Helper()
	e, secret, err := b.box.Create(t.Context(),
		webhooks.NewEndpoint{TenantID: tenantID, KeyID: "key", URL: url, EventTypes: types})
	if err != nil {
		t.Fatal(err)
	}
	return e, secret
}

func keyOf(e webhooks.Endpoint) webhooks.EndpointKey {
	return webhooks.EndpointKey{TenantID: e.TenantID, KeyID: "key", EndpointID: e.ID}
}

// got is a message as a receiver got it.
type got struct {
	ID        string
	Type      string `json:"type"`
	EventID   string `json:"event_id"`
	Truncated bool   `json:"truncated"`
	Data      struct {
		OperationID      string  `json:"operation_id"`
		State            string  `json:"state"`
		MoneyMoved       string  `json:"money_moved"`
		AmountCents      int64   `json:"amount_cents"`
		FailureCode      *string `json:"failure_code"`
		ProviderRefundID *string `json:"provider_refund_id"`
		SettledAt        *string `json:"settled_at"`
	} `json:"data"`
	header http.Header
	body   []byte
}

// told is what a message tells in short.
func (g got) told() string { return g.Data.OperationID + " " + g.Type }

// receiver is somebody's endpoint. What answer returns is the status; 0 hangs until the caller leaves.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	all    []got
	answer func(g got, nth int) int // nth: how often this message came before
}

func newReceiver(t *testing.T, answer func(g got, nth int) int) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	return r
}

func accepting(t *testing.T) *receiver { return newReceiver(t, func(got, int) int { return 204 }) }

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	g := got{ID: q.Header.Get("Webhook-Id"), header: q.Header, body: body}
	if err := json.Unmarshal(body, &g); err != nil {
		http.Error(w, "no JSON", http.StatusTeapot)
		return
	}
	r.mu.Lock()
	nth := 0
	for _, before := range r.all {
		if before.ID == g.ID {
			nth++
		}
	}
	r.all = append(r.all, g)
	r.mu.Unlock()
	status := r.answer(g, nth)
	if status == 0 {
		<-q.Context().Done()
		return
	}
	w.WriteHeader(status)
}

func (r *receiver) messages() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// told is what came, in short and in order.
func (r *receiver) told() []string {
	var all []string
	for _, g := range r.messages() {
		all = append(all, g.told())
	}
	return all
}

// await waits until as many messages came as were asked for, and returns them.
func (r *receiver) await(t *testing.T, n int) []got {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages", n), func() (bool, string) {
		told := r.told()
		return len(told) >= n, strings.Join(told, ", ")
	})
	return r.messages()
}

// eventually waits for a condition, on a machine as busy as it may be.
func eventually(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ok, seen := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s: %s", what, seen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func verifies(t *testing.T, secret webhooks.Secret, g got) error {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(secret.Text())
	if err != nil {
		t.Fatal(err)
	}
	return hook.Verify(g.body, g.header)
}
