package blackbox

import (
	"net/http"
	"strings"
	"testing"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestA44_FiveReplicasMigrateAnEmptyDatabase_AllComeUp(t *testing.T) {
	t.Parallel()
	service := &harness.Service{DB: testdb.Empty(t)}
	refusal := harness.Command(t, service.DB.URL, "serve", "--addr", "127.0.0.1:0")
	if refusal.ExitCode == 0 || !strings.Contains(refusal.Stderr, "refundd migrate up") {
		t.Errorf("serve without a schema exits %d: %s", refusal.ExitCode, refusal.Stderr)
	}
	results := make([]harness.Result, 5)
	together(len(results), func(i int) { results[i] = harness.Command(t, service.DB.URL, "migrate", "up") })
	for _, r := range results {
		if r.ExitCode != 0 {
			t.Errorf("migrate up exits %d: %s", r.ExitCode, r.Stderr)
		}
	}
	var rows, dirty int
	if err := service.DB.Owner.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE dirty)
		FROM schema_migrations`).Scan(&rows, &dirty); err != nil || rows != 1 || dirty != 0 {
		t.Errorf("%d versions recorded, %d dirty, %v", rows, dirty, err)
	}
	servers := make([]*harness.Server, 5)
	together(len(servers), func(i int) { servers[i] = harness.Serve(t, service.DB.ServiceURL) })
	service.Servers = servers
	tenant := service.Tenant(t)
	tenant.Order("P", 10000)
	tenant.Approve("K", "P", 600)
	for i := range servers {
		a := tenant.At(i).Refund("K", "P", 600)
		want(t, a, map[bool]string{true: "processed", false: "already_processed"}[i == 0])
		if ready := tenant.At(i).Get("/readyz"); ready.Status != http.StatusOK {
			t.Errorf("server %d is not ready: %d %s", i, ready.Status, ready.Body)
		}
	}
	again := harness.Command(t, service.DB.URL, "migrate", "up")
	if again.ExitCode != 0 {
		t.Errorf("migrate up again exits %d: %s", again.ExitCode, again.Stderr)
	}
	wantMoved(t, tenant, "P", 600)
	service.Audit(t)
}
