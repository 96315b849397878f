//go:build drill

// Package drill takes from Postgres what it needs, for real: the disk. It mounts small file systems of its own, for
// which it must be run as root.
package drill

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

// A86: the disk fills up under load, with the write-ahead log on it (Postgres panics) or with the tables alone on it
// (it refuses each statement that needs a page). Nobody is told anything but 503 with Retry-After, no batch is run one
// by one, nothing that was acknowledged is lost, and it goes on once there is room again.
func TestA86_TheDiskIsFull(t *testing.T) {
	for name, tablesAlone := range map[string]bool{"WithTheLog": false, "TablesAlone": true} {
		t.Run(name, func(t *testing.T) {
			disk := smallDisk(t, 200<<20)
			options := embedpg.Options{Durable: true, Settings: map[string]string{
				"max_wal_size": "32MB", "min_wal_size": "32MB", "checkpoint_timeout": "30s", "autovacuum": "off"}}
			if !tablesAlone {
				options.Dir = filepath.Join(disk, "postgres")
			}
			server := testdb.Start(t, options)
			service := &harness.Service{DB: testdb.NewIn(t, server)}
			if tablesAlone {
				moveTables(t, service, disk)
			}
			service.AddServer(t, "--request-timeout", "5s")
			tenant := service.OpenTenant(t)
			orders := make([]string, 64)
			for i := range orders {
				orders[i] = fmt.Sprint("P-", i)
			}
			tenant.Load(orders, 1_000_000)

			load := startLoad(tenant, orders)
			load.until(t, "refunds succeed", 20*time.Second, func() bool { return load.processed.Load() > 50 })
			room := fill(t, disk)
			load.until(t, "refunds are refused", 60*time.Second, func() bool { return load.refused.Load() > 100 })
			if err := os.Remove(room); err != nil {
				t.Fatal(err)
			}
			revive(t, server)
			before := load.processed.Load()
			load.until(t, "refunds succeed again",
				60*time.Second, func() bool { return load.processed.Load() > before+50 })
			load.stop()
			full := 0.0
			for _, s := range service.Servers[0].Metrics(t) {
				if s.Name == "refundd_batches_split_total" && s.Value != 0 {
					t.Errorf("%v batches were run one by one", s.Value)
				}
				if s.Name == "refundd_database_refusals_total" && s.Labels["why"] == "disk_full" {
					full = s.Value
				}
			}
			if tablesAlone && full == 0 { // without room for its WAL, Postgres ends, and says nothing
				t.Error("no metric tells that the disk is full")
			}
			load.judge(t, tenant)
			service.Audit(t)
		})
	}
}

// smallDisk is a file system of so many bytes, in memory.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "refundd-disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755),
		syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0777", bytes))); err != nil {
		t.Fatalf("mount a small file system (this needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Errorf("unmount the small file system: %v", err)
		}
	})
	return dir
}

// fill writes a file until nothing more fits beside it.
func fill(t *testing.T, disk string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "room"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := io.Copy(f, endless{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	return f.Name()
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// moveTables puts the tables that grow onto the disk.
func moveTables(t *testing.T, service *harness.Service, disk string) {
	t.Helper()
	var data string
	if err := service.DB.Owner.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	space := filepath.Join(disk, "space")
	if err := errors.Join(os.Mkdir(space, 0o700), os.Chown(space, int(owner.Uid), int(owner.Gid))); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`CREATE TABLESPACE small LOCATION '` + space + `'`,
		`ALTER TABLE refund_operations SET TABLESPACE small`, `ALTER TABLE ledger_transfers SET TABLESPACE small`,
	} {
		if _, err := service.DB.Owner.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// revive starts a Postgres again that gave up, as whatever supervises it would.
func revive(t *testing.T, server *embedpg.Server) {
	t.Helper()
	select {
	case <-server.Done():
		if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
			t.Fatalf("start Postgres again: %v", err)
		}
	case <-time.After(2 * time.Second):
	}
}

// load is callers who refund without end, each operation until it is known to be processed.
type load struct {
	processed, refused atomic.Int64
	ended              atomic.Bool
	callers            sync.WaitGroup
	mu                 sync.Mutex
	acknowledged       []string
}

func startLoad(tenant *harness.Tenant, orders []string) *load {
	l := &load{}
	for caller := range 16 {
		l.callers.Go(func() {
			for n := 0; !l.ended.Load(); n++ {
				l.refund(tenant, fmt.Sprintf("K-%d-%d", caller, n), orders[(caller*7+n)%len(orders)])
			}
		})
	}
	return l
}

// refund tries until the operation is known to be processed; any other answer than the wanted ones fails the test.
func (l *load) refund(tenant *harness.Tenant, operation, order string) {
	for !l.ended.Load() {
		a := tenant.Client().Refund(operation, order, 1)
		switch {
		case a.Status == http.StatusCreated, a.Status == http.StatusOK:
			l.processed.Add(1)
			l.mu.Lock()
			l.acknowledged = append(l.acknowledged, operation)
			l.mu.Unlock()
			return
		case (a.Says() == "database_unavailable" || a.Says() == "overloaded") && a.Header.Get("Retry-After") != "",
			a.Says() == "deadline_exceeded":
			l.refused.Add(1)
			time.Sleep(20 * time.Millisecond)
		default:
			tenant.Client().T.Errorf("refund %s: %d %.300s", operation, a.Status, a.Body)
			return
		}
	}
}

func (l *load) stop() { l.ended.Store(true); l.callers.Wait() }

func (l *load) until(t *testing.T, what string, limit time.Duration, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > limit || t.Failed() {
			l.stop()
			t.Fatalf("%s: not within %v; %d processed, %d refused", what, limit, l.processed.Load(), l.refused.Load())
		}
	}
}

// judge holds the rows against what was acknowledged.
func (l *load) judge(t *testing.T, tenant *harness.Tenant) {
	t.Helper()
	var missing, twice int
	if err := tenant.Service.DB.Owner.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE n = 0), count(*) FILTER (WHERE n > 1) FROM (
			SELECT k, (SELECT count(*) FROM ledger_transfers l WHERE l.tenant_id = $1 AND l.operation_id = k) AS n
			FROM unnest($2::text[]) AS k) x`, tenant.ID, l.acknowledged).Scan(&missing, &twice); err != nil {
		t.Fatal(err)
	}
	if missing != 0 || twice != 0 || len(l.acknowledged) == 0 {
		t.Errorf("of %d acknowledged refunds %d are lost and %d moved money twice", len(l.acknowledged), missing, twice)
	}
}
