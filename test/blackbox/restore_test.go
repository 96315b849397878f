package blackbox

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"refundd/test/harness"
)

// rewind is a service whose database goes back to an earlier point.
type rewind struct{ *paying }

// stop ends every server, and every connection to the database.
func (r rewind) stop() {
	r.t.Helper()
	for _, s := range r.Service.Servers {
		s.Kill()
	}
	r.Service.Servers = nil
	r.Service.DB.Owner.Reset()
	r.Service.DB.Pool.Reset()
}

// start starts a server on what the database is now.
func (r rewind) start() {
	r.t.Helper()
	r.Client = r.Tenant.ClientOf(r.Service.AddServer(r.t))
}

// cluster runs statements beside the database, of which {} is the name.
func (r rewind) cluster(statements ...string) {
	r.t.Helper()
	u, err := url.Parse(r.Service.DB.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	u.Path = "/postgres"
	ctx := context.WithoutCancel(r.t.Context())
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range statements {
		sql = strings.ReplaceAll(sql, "{}", r.Service.DB.Name)
		for began := time.Now(); ; time.Sleep(100 * time.Millisecond) { // a connection takes its time to end
			_, err := conn.Exec(ctx, sql)
			if err == nil {
				break
			}
			if time.Since(began) > 20*time.Second {
				r.t.Fatalf("%s: %v", sql, err)
			}
		}
	}
}

// afterRestore runs the command and wants each of says in what it prints.
func (r rewind) afterRestore(says ...string) {
	r.t.Helper()
	ran := harness.Command(r.t, r.Service.DB.ServiceURL, "after-restore")
	for _, s := range says {
		if ran.ExitCode != 0 || !strings.Contains(ran.Stdout, s) {
			r.t.Errorf("refundd after-restore exits %d and does not say %q:\n%s%s", ran.ExitCode, s, ran.Stdout,
				ran.Stderr)
		}
	}
}

// An old backup is restored, and the provider has forgotten its keys: what it executed in the history that was lost is
// not executed again, whatever the backup says of it.
func TestA67_AfterARestore_EachOperationIsExecutedOnce(t *testing.T) {
	t.Parallel()
	r := rewind{newPaying(t)}
	r.Approve("A", "P0", 4000)
	r.Approve("never", "P1", 4000)
	r.Approve("again", "P2", 4000)
	r.Order("ledger", 10000)
	r.Approve("nobody-knows", "ledger", 1)
	r.provider.Fault("error_before", harness.Times(1))
	r.refund("reserved", "P3", "pending")
	r.Exec(`UPDATE refund_operations SET not_sent = attempts
		WHERE operation_id = 'reserved'`) // as after a refused connection
	r.provider.Fault("decline", harness.Times(1))
	r.refund("declined", "P4", "refund_declined")
	r.stop()
	r.cluster(`CREATE DATABASE {}_backup TEMPLATE {}`)
	t.Cleanup(func() { r.cluster(`DROP DATABASE IF EXISTS {}_lost WITH (FORCE)`) })
	r.start()

	// The history that will be lost.
	lost := func() {
		r.Pay(harness.Payment{OrderID: "Q", Cents: 10000})
		r.Approve("B", "Q", 4000)
	}
	lost()
	for operation, order := range map[string]string{"A": "P0", "again": "P2", "B": "Q", "unapproved": "P5"} {
		r.refund(operation, order, "processed")
	}
	r.again("reserved", "P3", "processed")
	r.byHand("declined", "P4", 4000)
	r.provider.Forget()
	r.stop()
	r.cluster(`ALTER DATABASE {} RENAME TO {}_lost`, `ALTER DATABASE {}_backup RENAME TO {}`)

	r.afterRestore("3 open approvals at providers, 1 reservations; 1 other refunds are due",
		"1 open approvals are of orders without a provider")
	r.afterRestore("3 open approvals at providers") // again is as well
	r.shows("A", "approved, not executed, money moved: no\nWARNING: the provider's books say otherwise: succeeded\n")
	r.start()
	lost() // the callers register and approve anew what they are told is not there

	// No look, no request: as long as the provider's books can not be read, nothing is sent.
	r.provider.Fault("lookup_down")
	before := len(r.provider.Refunds())
	r.refund("A", "P0", "pending")
	for range 2 {
		r.again("A", "P0", "pending")
		r.again("reserved", "P3", "pending")
	}
	if r.provider.Heal(); len(r.provider.Refunds()) != before {
		t.Error("sent without a look")
	}
	for operation, order := range map[string]string{"A": "P0", "again": "P2", "B": "Q", "unapproved": "P5",
		"reserved": "P3", "never": "P1"} {
		r.again(operation, order, "processed")
		r.again(operation, order, "already_processed")
	}
	r.reconcile()
	r.stands("declined", "needs_attention", "paid_after_failure")
	r.reconcile()
	r.stands("declined", "succeeded", "")
	paid := map[string]int{}
	for _, x := range r.provider.Refunds() {
		paid[x.PaymentRef]++
	}
	for _, order := range []string{"P0", "P1", "P2", "P3", "P4", "P5", "Q"} {
		if paid[r.Ref(order)] != 1 {
			t.Errorf("the provider executed %d refunds of %s", paid[r.Ref(order)], order)
		}
		r.balance(order, 4000, 0)
	}
	r.Service.Audit(t)
}
