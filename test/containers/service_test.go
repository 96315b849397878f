package containers

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"refundd/test/harness"
)

const (
	servicePassword  = "s'%s@/#:?&=\\ $y\""
	operatorPassword = "t'%%@/#:?&=\\ $z\""
	serviceDatabase  = "postgres://refundd@postgres:5432/refundd?sslmode=disable"
	toolsDatabase    = "postgres://refundd_tools@postgres:5432/refundd?sslmode=disable"
	ownersDatabase   = "postgres://" + owner + "@postgres:5432/refundd?sslmode=disable"
)

// world is a Postgres and what runs beside it, on a network of their own.
type world struct {
	t        *testing.T
	network  *testcontainers.DockerNetwork
	postgres testcontainers.Container
}

// newWorld has a Postgres with the schema and the logins, made by the image itself.
func newWorld(t *testing.T) world {
	t.Helper()
	nw, err := network.New(t.Context())
	testcontainers.CleanupNetwork(t, nw)
	if err != nil {
		t.Fatal(err)
	}
	w := world{t: t, network: nw}
	w.postgres = startPostgresContainer(t, network.WithNetwork([]string{"postgres"}, nw))
	asOwner := map[string]string{"DATABASE_URL": ownersDatabase, "PGPASSWORD": ownerPassword}
	w.tool(asOwner, "migrate", "up")
	asOwner["REFUNDD_LOGIN_PASSWORD"] = servicePassword
	w.tool(asOwner, "login", "create", "--name", "refundd", "--role", "service")
	asOwner["REFUNDD_LOGIN_PASSWORD"] = operatorPassword
	w.tool(asOwner, "login", "create", "--name", "refundd_tools", "--role", "operator")
	return w
}

// hardened takes away what an orchestrator can take.
var hardened = testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
	h.ReadonlyRootfs = true
	h.CapDrop = []string{"ALL"}
	h.SecurityOpt = []string{"no-new-privileges"}
})

// tool runs one of refundd's commands and returns what it wrote.
func (w world) tool(env map[string]string, command ...string) string {
	w.t.Helper()
	code, said := runToEnd(w.t, refunddImage(w.t), testcontainers.WithCmd(command...), testcontainers.WithEnv(env),
		network.WithNetwork(nil, w.network), hardened)
	if code != 0 {
		w.t.Fatalf("refundd %s exits %d: %s", strings.Join(command, " "), code, said)
	}
	return said
}

func (w world) operate(command ...string) string {
	w.t.Helper()
	return w.tool(map[string]string{"DATABASE_URL": toolsDatabase, "PGPASSWORD": operatorPassword}, command...)
}

// serve runs the image as it is until its own health check is content.
func (w world) serve() testcontainers.Container {
	w.t.Helper()
	return start(w.t, refunddImage(w.t), hardened, network.WithNetwork(nil, w.network),
		testcontainers.WithEnv(map[string]string{"DATABASE_URL": serviceDatabase, "PGPASSWORD": servicePassword}),
		testcontainers.WithExposedPorts("8080/tcp", "9090/tcp"),
		testcontainers.WithWaitStrategyAndDeadline(startWait, wait.ForHealthCheck()))
}

// client is one of a tenant that it makes.
func (w world) client(c testcontainers.Container) harness.Client {
	w.t.Helper()
	w.operate("tenants", "create", "--tenant", "shop")
	said := w.operate("keys", "create", "--tenant", "shop", "--scopes", harness.AllScopes)
	key := keyIn(w.t, said)
	return harness.Client{URL: endpoint(w.t, c, "8080/tcp"), Key: key, T: w.t}
}

// keyIn is the secret among what `keys create` writes to its two outputs.
func keyIn(t testing.TB, said string) string {
	t.Helper()
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, " ") {
			return line
		}
	}
	t.Fatalf("keys create prints no secret: %q", said)
	return ""
}

func endpoint(t testing.TB, c testcontainers.Container, port string) string {
	t.Helper()
	url, err := c.PortEndpoint(t.Context(), port, "http")
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// register brings an order and its approved refund there.
func register(t testing.TB, c harness.Client, order, operation string) {
	t.Helper()
	want(t, c.Put(harness.OrderPath(order), harness.Fields{"currency": "EUR", "captured_cents": 9998}),
		http.StatusCreated)
	want(t, c.Put(harness.AuthorizationPath(operation), harness.Fields{
		"case_id": "c-1", "order_id": order, "amount_cents": 4999, "approved_by": "ada",
	}), http.StatusCreated)
}

func want(t testing.TB, a harness.Answer, status int) {
	t.Helper()
	if a.Status != status {
		t.Errorf("answer %d, want %d: %s", a.Status, status, a.Body)
	}
}

// healthy asks what the image's health check asks.
func healthy(t testing.TB, c testcontainers.Container) bool {
	t.Helper()
	code, _, err := c.Exec(t.Context(), []string{"/usr/local/bin/refundd", "healthcheck"})
	if err != nil {
		t.Fatal(err)
	}
	return code == 0
}

// The way of a deployment: the owner migrates, the service serves with no right it does without, SIGTERM ends it
// cleanly.
func TestService_MigratesServesRefundsOnce_AndStopsCleanly(t *testing.T) {
	w := newWorld(t)
	service := w.serve()
	client := w.client(service)
	register(t, client, "A-1", "op-1")
	want(t, client.Refund("op-1", "A-1", 4999), http.StatusCreated)
	want(t, client.Refund("op-1", "A-1", 4999), http.StatusOK)
	if !healthy(t, service) {
		t.Error("it serves, and its health check says that it does not")
	}
	if metrics := get(t, endpoint(t, service, "9090/tcp")+"/metrics"); !strings.Contains(metrics, "\nrefundd_") {
		t.Errorf("no metrics of refundd: %.500s", metrics)
	}

	// A refund that waits for its order's lock as SIGTERM comes is executed and answered.
	register(t, client, "A-2", "op-2")
	conn := connect(t, w.postgres)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM orders WHERE order_id = 'A-2' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan harness.Answer, 1)
	go func() { answered <- client.Refund("op-2", "A-2", 4999) }()
	awaitLockWait(t, connect(t, w.postgres))
	stopped := make(chan error, 1)
	go func() { stopped <- stop(t, service) }()
	time.Sleep(300 * time.Millisecond) // the signal is there by now, or comes a little later: both must do
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, <-answered, http.StatusCreated)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(t, service); code != 0 {
		t.Errorf("refundd serve exits %d after SIGTERM:\n%s", code, logs(service))
	}
	w.operate("audit")
	if moved := ask[int64](t, conn, `SELECT sum(amount_cents)::bigint FROM ledger_transfers`); moved != 2*4999 {
		t.Errorf("moved %d, want %d", moved, 2*4999)
	}
}

// stop sends SIGTERM and allows for the time that the Dockerfile names.
func stop(t *testing.T, c testcontainers.Container) error {
	grace := 30 * time.Second
	return c.Stop(t.Context(), &grace)
}

func get(t testing.TB, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s answers %d: %v", url, answer.StatusCode, err)
	}
	return string(text)
}

// awaitLockWait returns once a session of the service's waits for a lock.
func awaitLockWait(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ask[bool](t, conn, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'refundd'
			AND wait_event_type = 'Lock')`) {
			return
		}
	}
	t.Fatal("the refund does not wait for its order")
}
