package blackbox

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"refundd/test/harness"
)

// The client looks for the canary in every answer; here also logs, metrics, events and commands are searched, while the
// service meets every fault that quotes what it connects with.
func TestA50_Secrets_NeverComeOut(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	databaseURL := service.CanaryURL(t)
	service.Servers = []*harness.Server{harness.Serve(t, databaseURL, "--request-timeout", "500ms")}
	server := service.Servers[0]
	tenant := service.Tenant(t)
	c := tenant.Client()
	c.Faulty = true
	tenant.Order("P", 10000)
	tenant.Approve("K", "P", 600)
	want(t, c.Refund("K", "P", 600), "processed")
	exercise := func() {
		acts := []func() harness.Answer{
			func() harness.Answer { return c.Refund("K", "P", 600) },
			func() harness.Answer { return c.Refund("L", "P", 600) },
			func() harness.Answer { return c.Get("/v1/refunds/K") },
			func() harness.Answer { return c.Get("/v1/refunds/K/events") },
			func() harness.Answer { return c.Get("/v1/orders/P") },
			func() harness.Answer { return c.Get("/readyz") },
			func() harness.Answer {
				return c.Post("/v1/refund-requests",
					harness.Fields{"case_id": "C", "order_id": "P", "amount_cents": 1, "reason_code": "late"})
			},
			func() harness.Answer {
				return c.Post("/v1/escalations", harness.Fields{"case_id": "C", "trigger": "other"})
			},
			func() harness.Answer { return c.Get("/v1/escalations") },
			func() harness.Answer { return c.Put(harness.OrderPath("P"), harness.Fields{"captured_cents": 10000}) },
			func() harness.Answer { return raw(c, http.MethodPost, "/v1/refunds", "{") },
			func() harness.Answer { return c.With("wrong").Get("/v1/refunds/K") },
		}
		together(len(acts), func(i int) { acts[i]() })
	}
	exercise()
	release := service.Hold(t, `LOCK TABLE orders, refund_operations, refund_authorizations IN ACCESS EXCLUSIVE MODE`)
	exercise()
	release()
	role := service.DB.Name + "_canary"
	for _, fault := range []struct{ begin, end string }{
		{`REVOKE ALL ON orders, refund_operations, refund_authorizations FROM refundd_service`,
			`GRANT SELECT, INSERT, UPDATE ON orders, refund_operations, refund_authorizations TO refundd_service`},
		{`ALTER ROLE ` + role + ` PASSWORD 'other'`, `ALTER ROLE ` + role + ` PASSWORD '` + harness.Canary +
			`-password'`},
		{`ALTER ROLE ` + role + ` NOLOGIN`, `ALTER ROLE ` + role + ` LOGIN`},
		{`ALTER ROLE ` + role + ` CONNECTION LIMIT 0`, `ALTER ROLE ` + role + ` CONNECTION LIMIT -1`},
	} {
		tenant.Exec(fault.begin)
		tenant.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, role)
		exercise()
		tenant.Exec(fault.end)
	}
	end := service.Outage(t)
	exercise()
	end()
	for began := time.Now(); c.Get("/v1/refunds/K").Status != http.StatusOK; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the service does not recover")
		}
	}
	for what, text := range map[string]string{"the log": server.Logs.Text(), "metrics": server.MetricsText(t),
		"rows": tenant.Rows()} {
		if leak := harness.LeakIn(text); leak != "" {
			t.Errorf("%s: a secret got out: %s", what, leak)
		}
	}
}

func TestA50_CommandsThatCanNotConnect_DoNotQuoteTheirURL(t *testing.T) {
	t.Parallel()
	secret := harness.Canary + "-password"
	for name, databaseURL := range map[string]string{
		"nobody listens":    "postgres://refundd:" + secret + "@127.0.0.1:1/refundd?application_name=" + harness.Canary,
		"wrong password":    withPassword(t, harness.Shared(t).DB.ServiceURL, secret),
		"no such host":      "postgres://refundd:" + secret + "@nowhere.invalid/refundd",
		"not a port":        "postgres://refundd:" + secret + "@127.0.0.1:port/refundd",
		"unescaped":         "postgres://refundd:" + secret + "%zz@127.0.0.1:1/refundd",
		"hash in password":  "postgres://refundd:" + secret + "#x@127.0.0.1:1/refundd",
		"keywords":          "host=127.0.0.1 port=1 user=refundd password=" + secret,
		"unbalanced":        "host=127.0.0.1 port=1 password='" + secret,
		"another scheme":    "mysql://refundd:" + secret + "@127.0.0.1/refundd",
		"bad setting":       "postgres://refundd:" + secret + "@127.0.0.1:1/refundd?sslmode=" + secret,
		"bad pool setting":  "postgres://refundd:" + secret + "@127.0.0.1:1/refundd?pool_max_conns=" + secret,
		"unknown parameter": withParameter(t, harness.Shared(t).DB.ServiceURL, secret),
	} {
		for _, args := range [][]string{{"serve", "--addr", "127.0.0.1:0"}, {"migrate", "version"}, {"tenants", "list"},
			{"audit"}} {
			r := harness.Command(t, databaseURL, args...)
			if r.ExitCode == 0 {
				t.Errorf("%s: %v exits 0: %s", name, args, r.Stdout)
			}
			if leak := harness.LeakIn(r.Stdout + r.Stderr); leak != "" {
				t.Errorf("%s: %v: a secret got out: %s", name, args, leak)
			}
		}
	}
}

func withPassword(t *testing.T, databaseURL, password string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}

func withParameter(t *testing.T, databaseURL, value string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("no_such_setting", value)
	u.RawQuery = q.Encode()
	return u.String()
}
