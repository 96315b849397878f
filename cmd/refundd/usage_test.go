package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"refundd/migrations"
	"refundd/test/testdb"
)

const planted = "geheim4711" // in every URL: it must never be shown

// oneSentence checks what every bad configuration ends in.
func oneSentence(t *testing.T, r ran, code int, says string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exits %d, want %d", r.code, code)
	}
	if r.stdout != "" {
		t.Errorf("stdout carries %q", r.stdout)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "refundd: ") {
		t.Errorf("stderr is not one sentence: %q", r.stderr)
	}
	if !strings.Contains(r.stderr, says) {
		t.Errorf("%q does not say %q", r.stderr, says)
	}
	for _, leak := range []string{planted, "goroutine", ".go:"} {
		if strings.Contains(r.stderr, leak) {
			t.Errorf("%q shows %q", r.stderr, leak)
		}
	}
}

func TestRun_RefusesWrongUseInOneSentence(t *testing.T) {
	t.Parallel()
	nowhere := "DATABASE_URL=postgres://u:" + planted + "@127.0.0.1:1/db"
	for _, test := range []struct {
		name string
		env  []string
		args []string
		says string
	}{
		{"no command", nil, nil, "dev"},
		{"unknown command", nil, []string{"refund"}, "unexpected argument refund"},
		{"unknown flag", []string{nowhere}, []string{"serve", "--fast"}, "unknown flag --fast"},
		{"a key of no mode", []string{nowhere}, []string{"serve", "--stripe-api-key", planted},
			"--stripe-api-key is not a secret key"},
		{"a publishable key", []string{nowhere, "REFUNDD_STRIPE_API_KEY=pk_test_" + planted}, []string{"reconcile"},
			"--stripe-api-key is not a secret key"},
		{"another base", []string{nowhere, "REFUNDD_STRIPE_API_KEY=sk_test_" + planted},
			[]string{"serve", "--stripe-api-base", "api"}, "--stripe-api-base must be a URL"},
		{"a webhook secret alone", []string{nowhere}, []string{"serve", "--stripe-webhook-secret", planted},
			"--stripe-webhook-secret needs --stripe-api-key"},
		{"three webhook secrets", []string{nowhere, "REFUNDD_STRIPE_API_KEY=sk_test_" + planted},
			[]string{"serve", "--stripe-webhook-secret", "a,b," + planted}, "takes one secret, or two"},
		{"payments to be read without a key", []string{nowhere}, []string{"serve", "--verify-payments"},
			"--verify-payments needs --stripe-api-key"},
		{"stray argument", nil, []string{"serve", "postgres://u:" + planted + "@h/db"}, "unexpected argument"},
		{"no database", nil, []string{"serve"}, "DATABASE_URL is not set"},
		{"no database for audit", nil, []string{"audit"}, "DATABASE_URL is not set"},
		{"no database for migrate", nil, []string{"migrate", "up"}, "such as postgres://user:password@"},
		{"malformed database", []string{"DATABASE_URL=postgres://u:" + planted + "@h:port/db"}, []string{"serve"},
			"not a valid Postgres URL"},
		{"malformed database for migrate", []string{"DATABASE_URL=" + planted}, []string{"migrate", "up"},
			"not a valid Postgres URL"},
		{"bad duration", []string{nowhere}, []string{"serve", "--request-timeout", "soon"}, "--request-timeout"},
		{"zero duration", []string{nowhere}, []string{"serve", "--request-timeout", "0s"}, "--request-timeout must be"},
		{"bad number in the environment", []string{nowhere, "REFUNDD_MAX_QUEUE=many"}, []string{"serve"},
			"--max-queue"},
		{"queue of nothing", []string{nowhere}, []string{"serve", "--max-queue", "0"}, "--max-queue must be"},
		{"negative rate", []string{nowhere, "REFUNDD_RATE_LIMIT=-1"}, []string{"serve"}, "--rate-limit must not"},
		{"no time for a provider", []string{nowhere}, []string{"serve", "--provider-timeout", "0s"},
			"--provider-timeout must be positive"},
		{"a lease too short", []string{nowhere}, []string{"serve", "--provider-timeout", "20s", "--lease", "29s"},
			"--lease must be at least 30s, to leave time to look"},
		{"a lease with no time to look up", []string{nowhere}, []string{"serve", "--lease", "19999ms"},
			"--lease must be at least 20s"},
		{"a lease of less than nothing", []string{nowhere}, []string{"dev", "--lease=-1s"},
			"--lease must be at least 20s"},
		{"a lease that outlasts the key", []string{nowhere}, []string{"serve", "--simulator-url", "http://127.0.0.1:1",
			"--lease", "24h"}, "remembers a key for 24h0m0s, which leaves 23h58m50s for a lease"},
		{"a lease that outlasts any key", []string{nowhere}, []string{"serve", "--lease", "25h"},
			"remembers a key for 24h0m0s"},
		{"a timeout that outlasts the key", []string{nowhere},
			[]string{"reconcile", "--simulator-url", "http://127.0.0.1:1",
				"--provider-timeout", "12h"}, "--provider-timeout and --lease must be shorter"},
		{"a breaker that never closes", []string{nowhere}, []string{"serve", "--provider-breaker-failures", "0"},
			"--provider-breaker-failures must be at least 1"},
		{"a breaker that never rests", []string{nowhere}, []string{"serve", "--provider-breaker-open", "0s"},
			"--provider-breaker-open must be positive"},
		{"a lag of less than nothing", []string{nowhere}, []string{"serve", "--listing-lag=-1s"},
			"--listing-lag must not be negative"},
		{"back-offs that shrink", []string{nowhere}, []string{"serve", "--backoff-min", "2h"},
			"--backoff-max must not be less than --backoff-min"},
		{"a simulator that is nowhere", []string{nowhere},
			[]string{"serve", "--simulator-url", "https://u:" + planted + "@h"},
			"--simulator-url must be a URL such as"},
		{"a period too short", []string{nowhere}, []string{"serve", "--reconcile-every", "1ms"},
			"--reconcile-every must be 0 or at least 100ms"},
		{"reconciliation by nobody", []string{nowhere}, []string{"reconcile", "--concurrency", "0"},
			"--concurrency must be at least 1"},
		{"reconciliation too often", []string{nowhere}, []string{"reconcile", "--every", "1ms"},
			"--every must be at least 100ms"},
		{"a dry run for ever", []string{nowhere}, []string{"reconcile", "--dry-run", "--every", "1m"},
			"leave out --every"},
		{"a rate of nothing", []string{nowhere}, []string{"reconcile", "--rate", "NaN"},
			"--rate takes a number from 0"},
		{"a rate of nobody", []string{nowhere}, []string{"reconcile", "--rate", "paypal=3"},
			"--rate takes a number from 0"},
		{"two rates for all", []string{nowhere}, []string{"reconcile", "--rate", "3,4"},
			"--rate takes a number from 0"},
		{"reconciliation with a bad lease", []string{nowhere}, []string{"reconcile", "--lease", "1s"},
			"--lease must be at least 20s"},
		{"reconciliation of no database", nil, []string{"reconcile"}, "DATABASE_URL is not set"},
		{"negative pool", []string{nowhere}, []string{"serve", "--pool-size=-2"}, "--pool-size must not"},
		{"address without port", []string{nowhere}, []string{"serve", "--addr", "localhost"}, "--addr takes HOST:PORT"},
		{"port out of range", []string{nowhere},
			[]string{"serve", "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:70000"}, "--admin-addr"},
		{"no tenant", []string{nowhere}, []string{"keys", "create", "--scopes", "read"}, "--tenant"},
		{"no scopes", []string{nowhere}, []string{"keys", "create", "--tenant", "t"}, "--scopes"},
		{"help with what is not", nil, []string{"help", "refund"}, "unexpected argument refund"},
		{"no operation", []string{nowhere}, []string{"show"}, "operation-id"},
		{"health of nothing", nil, []string{"healthcheck", "--url", "here"}, "--url must be"},
		{"dev on no URL", []string{"DATABASE_URL=host=127.0.0.1 password=" + planted},
			[]string{"dev", "--addr", "127.0.0.1:0", "--data", t.TempDir()}, "dev needs DATABASE_URL as a URL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			oneSentence(t, command(t, test.env, test.args...), exitUsage, test.says)
		})
	}
}

func TestRun_SaysWhyPostgresCannotBeUsed(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	empty := testdb.Empty(t)
	silent := silentServer(t)
	for _, test := range []struct{ name, url, says string }{
		{"refused", "postgres://u:" + planted + "@127.0.0.1:1/db", "refused"},
		{"silent", "postgres://u:" + planted + "@" + silent + "/db?sslmode=disable", "did not answer in time"},
		{"unknown host", "postgres://u:" + planted + "@nowhere.invalid/db", "does not resolve"},
		{"no socket", "postgres://u:" + planted + "@/db?host=/nonexistent", "no such socket"},
		{"unknown database", edit(t, db.URL, func(u *url.URL) { u.Path = "/" + planted }), "does not exist"},
		{"unknown login", edit(t, db.URL, func(u *url.URL) { u.User = url.UserPassword(planted, planted) }),
			"refuses the login"},
		{"no schema", empty.URL, "run: refundd migrate up"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			oneSentence(t, command(t, []string{"DATABASE_URL=" + test.url}, "serve", "--addr", "127.0.0.1:0"),
				exitFailed,
				test.says)
			if took := time.Since(began); took > 12*time.Second {
				t.Errorf("it took %v to say so", took)
			}
		})
	}
}

// silentServer accepts connections and says nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	listener := listenLocally(t)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func listenLocally(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func edit(t *testing.T, raw string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

func TestServe_RefusesAPortInUse(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	taken := listenLocally(t)
	defer func() { _ = taken.Close() }()
	for _, flag := range []string{"--addr", "--admin-addr"} {
		env := []string{"DATABASE_URL=" + db.ServiceURL, "REFUNDD_ADDR=127.0.0.1:0"}
		oneSentence(t, command(t, env, "serve", flag, taken.Addr().String()), exitFailed,
			flag+" "+taken.Addr().String()+": the port is in use")
	}
}

func TestServe_AcceptsANewerSchema(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	if _, err := db.Owner.Exec(t.Context(), `UPDATE schema_migrations SET version = $1`,
		migrations.Latest()+7); err != nil {
		t.Fatal(err)
	}
	succeed(t, db.ServiceURL, "audit")
}

func TestRun_HelpsOnStdout(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--help"}, {"serve", "--help"}, {"keys", "create", "--help"}, {"help"}, {"help", "serve"},
		{"help", "keys", "create"}, {"help", "help"},
	} {
		r := command(t, nil, args...)
		usage := strings.TrimSpace("Usage: refundd " + strings.Trim(strings.Join(args, " "), "-help "))
		if r.code != 0 || !strings.HasPrefix(r.stdout, usage) || r.stderr != "" {
			t.Errorf("%v: exits %d, stdout %q, stderr %q", args, r.code, r.stdout, r.stderr)
		}
	}
}

func TestVersion_NamesTheProgram(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"version", "--version"} {
		r := command(t, nil, args)
		if r.code != 0 || !regexp.MustCompile(`^refundd \S+ \(revision \S+\) go1\S+\n$`).MatchString(r.stdout) ||
			r.stderr != "" {
			t.Errorf("%s exits %d: %q, %q", args, r.code, r.stdout, r.stderr)
		}
	}
}

func TestA71_HealthcheckAsksTheAddressThatServeWasGiven(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ listen, addr string }{
		{"127.0.0.1:0", "127.0.0.1:%s"}, {":0", ":%s"}, {"0.0.0.0:0", "0.0.0.0:%s"}, {"[::1]:0", "[::1]:%s"},
		{"[::]:0", "[::]:%s"},
		{"127.0.0.1:0", "localhost:%s"},
	} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		listener, err := net.Listen("tcp", c.listen)
		if err != nil {
			t.Fatal(err)
		}
		_ = server.Listener.Close()
		server.Listener = listener
		server.Start()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		addr := fmt.Sprintf(c.addr, port)
		if r := command(t, []string{"REFUNDD_ADDR=" + addr}, "healthcheck"); r.code != 0 || r.stdout+r.stderr != "" {
			t.Errorf("by the environment, %s: %+v", addr, r)
		}
		if r := command(t, nil, "healthcheck", "--addr", addr); r.code != 0 {
			t.Errorf("by the flag, %s: %+v", addr, r)
		}
		server.Close()
		oneSentence(t, command(t, nil, "healthcheck", "--addr", addr), exitFailed, "no answer")
	}
	oneSentence(t, command(t, nil, "healthcheck", "--addr", "here"), exitUsage, "--addr takes HOST:PORT")
}

func TestHealthcheck_TellsTheLivingFromTheDead(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			w.WriteHeader(status)
		}
	}))
	defer server.Close()
	if r := command(t, []string{"REFUNDD_URL=" + server.URL}, "healthcheck"); r.code != 0 || r.stdout+r.stderr != "" {
		t.Errorf("of the living: %+v", r)
	}
	status = http.StatusServiceUnavailable
	oneSentence(t, command(t, nil, "healthcheck", "--url", server.URL), exitFailed, "503")
	server.Close()
	oneSentence(t, command(t, nil, "healthcheck", "--url", server.URL), exitFailed, "no answer")
}

func TestRun_EndsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr strings.Builder
	code := run(ctx, []string{"audit", "--database-url", testdb.New(t).URL}, func(string) string { return "" }, &stdout,
		&stderr)
	oneSentence(t, ran{code, stdout.String(), stderr.String()}, exitFailed, "interrupted")
}
