//go:build drill

package drill

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/nodes"
	"refundd/test/testdb"
)

// A81: the primary is fenced off and goes on running, its standby is promoted. With both in the URL the service is on
// the new one within seconds, and says meanwhile that it is not ready. A standby is never asked for the truth of now.
func TestA81_TheStandbyTakesOver(t *testing.T) {
	for _, attrs := range []string{"", "&target_session_attrs=read-write"} {
		t.Run("With"+attrs, func(t *testing.T) {
			primary := testdb.Start(t,
				embedpg.Options{Settings: map[string]string{"wal_level": "replica", "max_wal_senders": "4"}})
			service := &harness.Service{DB: testdb.NewIn(t, primary)}
			standby := nodes.Standby(t, primary.URL(), 0)
			one, two := service.DB.ServiceURL, nodes.AtPort(t, service.DB.ServiceURL, standby.Port())
			database := "/" + service.DB.Name
			both := strings.Replace(one, database, fmt.Sprintf(",127.0.0.1:%d%s", standby.Port(), database), 1) + attrs
			service.Servers = []*harness.Server{harness.Serve(t, both)}
			alone := harness.Serve(t, two) // on the standby, and on nothing else
			tenant := service.OpenTenant(t)
			tenant.Order("P", 10000)
			says(t, tenant.Client().Refund("K", "P", 100), "processed")
			caughtUp(t, nodes.AtPort(t, service.DB.URL, standby.Port()))

			says(t, tenant.ClientOf(alone).Get(harness.RefundPath("K")), "database_unavailable")
			says(t, tenant.ClientOf(alone).Get("/readyz"), "database_unavailable")

			nodes.Run(t, service.DB.URL, `ALTER SYSTEM SET default_transaction_read_only = on`)
			nodes.Run(t, service.DB.URL, `SELECT pg_reload_conf()`)
			await(t, tenant.Client(), http.StatusServiceUnavailable)
			says(t, tenant.Client().Refund("L", "P", 100), "database_unavailable")
			says(t, tenant.Client().Get(harness.RefundPath("K")), "database_unavailable")

			nodes.Run(t, nodes.AtPort(t, service.DB.URL, standby.Port()), `SELECT pg_promote()`)
			await(t, tenant.Client(), http.StatusOK)
			says(t, tenant.Client().Refund("K", "P", 100), "already_processed")
			says(t, tenant.Client().Refund("L", "P", 100), "processed")
			says(t, tenant.ClientOf(alone).Refund("L", "P", 100), "already_processed")
		})
	}
}

func says(t *testing.T, a harness.Answer, want string) {
	t.Helper()
	if got := a.Says(); got != want {
		t.Errorf("answer %s, want %s: %d %.300s", got, want, a.Status, a.Body)
	}
}

// await waits until /readyz answers status: within seconds.
func await(t *testing.T, c harness.Client, status int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if c.Get("/readyz").Status == status {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("readyz does not answer %d within 10 s", status)
		}
	}
}

// caughtUp waits until a standby knows the refund.
func caughtUp(t *testing.T, databaseURL string) {
	t.Helper()
	conn := nodes.Connect(t, databaseURL)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM refund_operations`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the standby does not catch up")
		}
	}
}
