package containers

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // for wait.ForSQL
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	owner         = "shopkeeper"         // any name will do
	ownerPassword = "o'%d@/#:?&=\\ $x\"" // what a password generator may bring forth
	database      = "refundd"
)

// startPostgresContainer runs a Postgres in memory, made for tests, until its test ends.
func startPostgresContainer(t testing.TB, options ...testcontainers.ContainerCustomizer) *postgres.PostgresContainer {
	t.Helper()
	const memory = "/memory"
	ready := wait.ForSQL("5432/tcp", "pgx", func(host string, port network.Port) string {
		return urlAt(host + ":" + port.Port())
	}).WithStartupTimeout(startWait)
	c, err := postgres.Run(t.Context(), postgresImage(t), append([]testcontainers.ContainerCustomizer{
		postgres.WithUsername(owner), postgres.WithPassword(ownerPassword), postgres.WithDatabase(database),
		testcontainers.WithTmpfs(map[string]string{memory: "rw,mode=1777"}),
		testcontainers.WithEnv(map[string]string{"PGDATA": memory + "/data"}),
		testcontainers.WithCmdArgs("-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c",
			"max_connections=300"),
		testcontainers.WithConfigModifier(func(c *container.Config) { c.StopSignal = "SIGINT" }), // fast shutdown
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) { h.ShmSize = 256 << 20 }),
		testcontainers.WithWaitStrategy(ready),
	}, options...)...)
	if c != nil {
		cleanUp(t, c)
	}
	if err != nil {
		t.Fatalf("run Postgres: %v", err)
	}
	return c
}

// urlAt is the owner's connection string to a server; the module's own takes no such password.
func urlAt(address string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(owner, ownerPassword), Host: address, Path: "/" +
			database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// urlOf is the owner's connection string, from this machine.
func urlOf(t testing.TB, c testcontainers.Container) string {
	t.Helper()
	address, err := c.PortEndpoint(t.Context(), "5432/tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	return urlAt(address)
}

func connect(t testing.TB, c testcontainers.Container) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), urlOf(t, c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// ask reads one value.
func ask[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", sql, err))
	}
	return v
}
