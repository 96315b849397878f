package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"refundd/cmd/refundd/internal/dev"
	"refundd/test/testdb"
)

const stopLimit = 5 * time.Second // from the signal to the end of everything

// dataFolder is a folder that the account of Postgres may pass, which t.TempDir is not when root runs the tests.
func dataFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "refundd-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil { // #nosec G302 -- see above
		t.Fatal(err)
	}
	return filepath.Join(folder, "data")
}

// devRun is a refundd dev that serves.
type devRun struct {
	*program
	caller
	record dev.Record
}

func startDev(t *testing.T, folder string, env ...string) *program {
	t.Helper()
	return start(t, env, "dev", "--addr", "127.0.0.1:0", "--data", folder)
}

// awaitDev waits for dev.json, and checks that whoever looks sees none or all of it.
func awaitDev(t *testing.T, p *program, folder string) devRun {
	t.Helper()
	d := devRun{program: p}
	path := filepath.Join(folder, "dev.json")
	eventually(t, "dev.json", func() bool {
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			if p.ended() {
				t.Fatalf("dev ended: %s", p.stderr)
			}
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &d.record); err != nil {
			t.Fatalf("dev.json is read half-written: %v in %q", err, raw)
		}
		return true
	})
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("dev.json has mode %v (%v)", info.Mode(), err)
	}
	d.caller = caller{d.record.URL, d.record.APIKey}
	return d
}

// stop ends a dev with the signal and checks that it leaves nothing running and no dev.json behind.
func (d devRun) stop(t *testing.T, s syscall.Signal, folder string) {
	t.Helper()
	began := time.Now()
	d.signal(t, s)
	if code := d.wait(t, time.Minute); code != 0 {
		t.Errorf("exits %d", code)
	}
	if took := time.Since(began); took > stopLimit {
		t.Errorf("stopping takes %v", took)
	}
	if conn, err := pgx.Connect(t.Context(), d.record.DatabaseURL); err == nil {
		_ = conn.Close(t.Context())
		t.Error("its Postgres still answers")
	}
	if _, err := os.Stat(filepath.Join(folder, "dev.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dev.json is still there (%v)", err)
	}
}

func TestDev_SurvivesAKillAndResumes(t *testing.T) {
	t.Parallel()
	folder := dataFolder(t)
	first := awaitDev(t, startDev(t, folder), folder)
	if first.record.TenantID != "dev" || first.record.SimulatorURL == nil ||
		!strings.HasPrefix(first.record.DatabaseURL, "postgres://") {
		t.Errorf("dev.json tells %+v", first.record)
	}
	caller{url: first.record.AdminURL}.expect(t, 200, "GET", "/metrics", "")
	first.expect(t, 201, "POST", "/v1/refunds", `{"operation_id":"op-2001-a","order_id":"J-2001","amount_cents":5800}`)
	first.expect(t, 201, "POST", "/v1/refunds", `{"operation_id":"op-3001-a","order_id":"S-3001","amount_cents":7500}`)
	secondDevIsRefused(t, folder)
	ownerMayCreateDatabases(t, first.record.DatabaseURL)

	first.signal(t, syscall.SIGKILL)
	first.wait(t, 10*time.Second)
	second := awaitRestart(t, folder)
	if diff := cmp.Diff(first.record.APIKey, second.record.APIKey); diff != "" {
		t.Errorf("the key changes: %s", diff)
	}
	second.expect(t, 200, "POST", "/v1/refunds", `{"operation_id":"op-2001-a","order_id":"J-2001","amount_cents":5800}`)
	if a := second.expect(t, 200, "GET", "/v1/orders/J-2001", ""); !strings.Contains(a.body, `"refundable_cents":0`) {
		t.Errorf("the refund is gone after the kill: %s", a.body)
	}
	second.expect(t, 200, "POST", "/v1/refunds", `{"operation_id":"op-3001-a","order_id":"S-3001","amount_cents":7500}`)
	books := caller{url: *second.record.SimulatorURL}.expect(t, 200, "GET", "/_ledger", "").body
	if strings.Count(books, `"refund_id"`) != 1 || !strings.Contains(books, `"idempotency_key":"dev:op-3001-a"`) {
		t.Errorf("the simulator's books after the kill: %s", books)
	}
	succeed(t, second.record.DatabaseURL, "audit")
	second.stop(t, syscall.SIGTERM, folder)

	third := awaitDev(t, startDev(t, folder), folder)
	third.expect(t, 200, "GET", "/v1/refunds/op-2001-a", "")
	third.stop(t, syscall.SIGINT, folder)
	leftovers, _ := filepath.Glob(filepath.Join(folder, "*.tmp"))
	if len(leftovers) > 0 {
		t.Errorf("left behind: %v", leftovers)
	}
}

// awaitRestart starts dev on a folder whose last owner was killed, and waits until its own dev.json is there.
func awaitRestart(t *testing.T, folder string) devRun {
	t.Helper()
	p := startDev(t, folder)
	p.logged(t, "serving")
	eventually(t, "the tour", func() bool { return strings.Contains(p.stdout.String(), "curl") })
	return awaitDev(t, p, folder)
}

func secondDevIsRefused(t *testing.T, folder string) {
	t.Helper()
	oneSentence(t, command(t, nil, "dev", "--addr", "127.0.0.1:0", "--data", folder), exitFailed,
		"another refundd dev is running on "+folder)
	if _, err := os.Stat(filepath.Join(folder, "dev.json")); err != nil {
		t.Errorf("the second start removed dev.json: %v", err)
	}
}

func ownerMayCreateDatabases(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var may bool
	if err := conn.QueryRow(t.Context(), `SELECT rolcreatedb FROM pg_roles
		WHERE rolname = current_user`).Scan(&may); err != nil || !may {
		t.Errorf("CREATEDB: %v (%v)", may, err)
	}
	var logins int
	if err := conn.QueryRow(t.Context(), `SELECT count(DISTINCT usename) FROM pg_stat_activity
		WHERE usename LIKE 'refundd_dev_%'
			AND pg_has_role(usename, 'refundd_service', 'USAGE')`).Scan(&logins); err != nil || logins != 1 {
		t.Errorf("the service's sessions are of %d restricted logins (%v)", logins, err)
	}
}

var tourComment = regexp.MustCompile(`(?m)^# \d+\. .*: (\d{3})(?: \(again: (\d{3})\))?\.\n(curl .*)$`)

// printedTour is the tour as dev printed it: status at the first time, at later ones, command.
func (d devRun) printedTour(t *testing.T) [][]string {
	t.Helper()
	tour := dev.Tour(d.record)
	want := len(tourComment.FindAllString(tour, -1))
	var steps [][]string
	eventually(t, "the tour", func() bool {
		steps = tourComment.FindAllStringSubmatch(d.stdout.String(), -1)
		return len(steps) == want
	})
	if !strings.Contains(tour, "/_faults") {
		t.Fatal("the tour leaves the simulator out")
	}
	return steps
}

// paste runs each command as a newcomer does and checks the status that its comment promises.
func paste(t *testing.T, steps [][]string, again bool) {
	t.Helper()
	for _, step := range steps {
		status := step[1]
		if again && step[2] != "" {
			status = step[2]
		}
		// #nosec G204 -- our own tour
		out, err := exec.CommandContext(t.Context(), "bash", "-c", step[3]).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "HTTP/1.1 "+status+" ") {
			t.Errorf("%s\nprints (%v), instead of %s:\n%s", step[3], err, status, out)
		}
	}
}

// TestDev_PrintsATourThatWorksAsPrinted pastes it, pastes it again, and after a restart the old one and the new one.
func TestDev_PrintsATourThatWorksAsPrinted(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	folder := dataFolder(t)
	first := awaitDev(t, startDev(t, folder, "DATABASE_URL="+db.URL), folder)
	old := first.printedTour(t)
	paste(t, old, false)
	paste(t, old, true)
	if armed := (caller{url: *first.record.SimulatorURL}).expect(t, 200, "GET",
		"/_faults", ""); !strings.Contains(armed.body, `"faults":[]`) {
		t.Errorf("the tour leaves a fault armed: %s", armed.body)
	}
	first.signal(t, syscall.SIGTERM)
	first.wait(t, time.Minute)
	d := awaitDev(t, startDev(t, folder, "DATABASE_URL="+db.URL), folder)
	// ports of tests are free ones
	moved := strings.NewReplacer(first.record.URL, d.record.URL, *first.record.SimulatorURL, *d.record.SimulatorURL)
	for i := range old {
		old[i][3] = moved.Replace(old[i][3])
	}
	paste(t, old, true)
	paste(t, d.printedTour(t), false)
	succeed(t, db.URL, "audit")

	left := make(chan struct{})
	d.expect(t, 201, "PUT", "/v1/authorizations/op-stuck",
		`{"case_id":"c","order_id":"A-1003","amount_cents":100,"approved_by":"ann"}`)
	lockOrder(t, db, "A-1003")
	go func() {
		defer close(left)
		_, _ = d.try(context.WithoutCancel(t.Context()), "POST", "/v1/refunds", // cut off or answered: both are an end
			`{"operation_id":"op-stuck","order_id":"A-1003","amount_cents":100}`)
	}()
	awaitLockWait(t, db)
	began := time.Now()
	d.signal(t, syscall.SIGTERM)
	d.wait(t, time.Minute)
	if took := time.Since(began); took > stopLimit {
		t.Errorf("stopping takes %v while a refund waits for a lock", took)
	}
	<-left
}

func TestDev_StopsInTimeWhileItsProviderHangs(t *testing.T) {
	t.Parallel()
	db := testdb.Empty(t)
	folder := dataFolder(t)
	d := awaitDev(t, startDev(t, folder, "DATABASE_URL="+db.URL), folder)
	caller{url: *d.record.SimulatorURL}.expect(t, 200, "POST", "/_faults", `{"mode":"hang","delay_ms":60000}`)
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = d.try(context.WithoutCancel(t.Context()), "POST", "/v1/refunds", // cut off or answered: both are an end
			`{"operation_id":"op-3001-a","order_id":"S-3001","amount_cents":7500}`)
	}()
	eventually(t, "the reservation", func() bool { return stateOf(t, db, "op-3001-a") == "reserved" })
	began := time.Now()
	d.signal(t, syscall.SIGTERM)
	if code := d.wait(t, time.Minute); code != 0 {
		t.Errorf("exits %d", code)
	}
	if took := time.Since(began); took > stopLimit {
		t.Errorf("stopping takes %v while the provider hangs", took)
	}
	<-left
	var freed bool
	err := db.Owner.QueryRow(t.Context(),
		`SELECT lease_until <= clock_timestamp() FROM refund_operations WHERE state = 'reserved'`).Scan(&freed)
	if err != nil || !freed {
		t.Errorf("the lost answer is not recorded (%v)", err)
	}
}

// stateOf is an operation's state, "" where nothing claimed its key.
func stateOf(t *testing.T, db *testdb.DB, operation string) string {
	t.Helper()
	var state string
	err := db.Owner.QueryRow(t.Context(),
		`SELECT coalesce((SELECT state FROM refund_operations WHERE operation_id = $1), '')`, operation).Scan(&state)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestDev_WithoutASimulator_RefusesItsOrders(t *testing.T) {
	t.Parallel()
	folder := dataFolder(t)
	p := start(t, []string{"DATABASE_URL=" + testdb.Empty(t).URL}, "dev", "--addr", "127.0.0.1:0", "--data", folder,
		"--simulator=false")
	d := awaitDev(t, p, folder)
	if d.record.SimulatorURL != nil {
		t.Errorf("dev.json tells of a simulator at %s", *d.record.SimulatorURL)
	}
	a := d.expect(t, 503, "POST", "/v1/refunds", `{"operation_id":"op-3001-a","order_id":"S-3001","amount_cents":7500}`)
	if !strings.Contains(a.body, `"provider_unavailable"`) {
		t.Errorf("answers %s", a.body)
	}
	d.expect(t, 404, "GET", "/v1/refunds/op-3001-a", "")
}

func TestDev_IsInterruptedWhileItStarts(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{50 * time.Millisecond, 400 * time.Millisecond, 1200 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			folder := dataFolder(t)
			p := startDev(t, folder)
			p.logged(t, "starting postgres")
			time.Sleep(after) // wherever it is by then
			began := time.Now()
			p.signal(t, syscall.SIGINT)
			if code := p.wait(t, time.Minute); code != 0 {
				t.Errorf("exits %d: %s", code, p.stderr)
			}
			if took := time.Since(began); took > stopLimit {
				t.Errorf("stopping takes %v", took)
			}
			awaitDev(t, startDev(t, folder), folder).stop(t, syscall.SIGTERM, folder)
		})
	}
}

func TestDev_EndsWhenItsPostgresDies(t *testing.T) {
	t.Parallel()
	folder := dataFolder(t)
	d := awaitDev(t, startDev(t, folder), folder)
	if err := syscall.Kill(postmaster(t, d.record.DatabaseURL), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := d.wait(t, 20*time.Second); code != exitFailed {
		t.Errorf("exits %d", code)
	}
	if !strings.Contains(d.stderr.String(), "\nrefundd: the Postgres of dev's own has died") {
		t.Errorf("it does not say why: %s", d.stderr)
	}
	awaitDev(t, startDev(t, folder), folder).stop(t, syscall.SIGTERM, folder)
}

func TestDev_MakesANewKeyForAnotherDatabase(t *testing.T) {
	t.Parallel()
	folder := dataFolder(t)
	var keys []string
	for range 2 {
		db := testdb.Empty(t)
		d := awaitDev(t, startDev(t, folder, "DATABASE_URL="+db.URL), folder)
		d.expect(t, 200, "GET", "/v1/orders/A-1001", "")
		keys = append(keys, d.record.APIKey)
		d.signal(t, syscall.SIGTERM)
		d.wait(t, time.Minute)
	}
	if keys[0] == keys[1] {
		t.Error("two databases share a key")
	}
}

func TestDev_RefusesAPortInUse(t *testing.T) {
	t.Parallel()
	taken := listenLocally(t)
	defer func() { _ = taken.Close() }()
	r := command(t, nil, "dev", "--addr", taken.Addr().String(), "--data", dataFolder(t))
	oneSentence(t, r, exitFailed, "the port is in use")
}

func TestDev_RefusesAFolderItCannotMake(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	oneSentence(t, command(t, nil, "dev", "--data", filepath.Join(file, "data")), exitFailed,
		"cannot be made: not a directory")
}
