//go:build ha

// Package ha loses machines under load: the database's primary, and each replica of the service in turn. make ha runs
// it.
package ha

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/nodes"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) {
	flag.Parse()
	testdb.Main(harness.Run(m))
}

// pair is a primary and its standby, both in the service's URL.
type pair struct {
	*harness.Service
	t       *testing.T
	ports   [2]int // of A and of B
	primary string // the owner's URL of who is it now
}

// newPair starts both, and a simulator.
func newPair(t *testing.T) (*pair, *embedpg.Server, *nodes.Node) {
	t.Helper()
	a := testdb.Start(t, embedpg.Options{Settings: map[string]string{"wal_level": "replica", "max_wal_senders": "4"}})
	p := &pair{Service: harness.NewPaying(t, "--backoff-min", "1s", "--backoff-max", "2s", "--listing-lag", "1ms"),
		t: t}
	p.DB = testdb.NewIn(t, a)
	p.primary = p.DB.URL
	b := nodes.Standby(t, a.URL(), 0)
	p.ports = [2]int{portOf(t, p.DB.URL), b.Port()}
	return p, a, b
}

func portOf(t *testing.T, databaseURL string) int {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(databaseURL[strings.LastIndex(databaseURL, "127.0.0.1:")+len("127.0.0.1:"):],
		"%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}

// url is the service's URL of both.
func (p *pair) url(databaseURL string) string {
	one := nodes.AtPort(p.t, databaseURL, p.ports[0])
	return strings.Replace(one, "/"+p.DB.Name, fmt.Sprintf(",127.0.0.1:%d/%s", p.ports[1], p.DB.Name), 1) +
		"&target_session_attrs=read-write"
}

// synchronous makes the primary wait for whatever standby there is, or for none.
func (p *pair) synchronous(on bool) {
	p.t.Helper()
	names := map[bool]string{true: "*", false: ""}[on]
	nodes.Run(p.t, p.primary, fmt.Sprintf(`ALTER SYSTEM SET synchronous_standby_names = '%s'`, names))
	nodes.Run(p.t, p.primary, `SELECT pg_reload_conf()`)
	for deadline := time.Now().Add(20 * time.Second); on; time.Sleep(50 * time.Millisecond) {
		var n int
		if err := nodes.Connect(p.t, p.primary).QueryRow(p.t.Context(), `SELECT count(*) FROM pg_stat_replication
			WHERE sync_state = 'sync'`).Scan(&n); err != nil {
			p.t.Fatal(err)
		}
		if n == 1 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatal("no standby is synchronous")
		}
	}
}

// turnTo makes the standby the primary, and all of the test look there.
func (p *pair) turnTo(n *nodes.Node) {
	p.t.Helper()
	n.Promote(p.t)
	p.primary = nodes.AtPort(p.t, p.DB.URL, n.Port())
	p.DB.URL, p.DB.ServiceURL, p.DB.OperatorURL = p.primary, nodes.AtPort(p.t, p.DB.ServiceURL, n.Port()),
		nodes.AtPort(p.t, p.DB.OperatorURL, n.Port())
	p.DB.Owner = testdb.Pool(p.t, p.primary)
}

// refunded is where and when a refund was acknowledged.
type refunded struct {
	order    string
	provider bool
	at       time.Time
}

// callers ask for refunds, one after another each, and ask again under the same operation id until they have an answer
// that ends it.
type callers struct {
	t      *testing.T
	client func(i int) harness.Client
	paid   harness.History // of refunds at the provider
	ledger harness.History // of those without one
	stop   atomic.Bool
	group  sync.WaitGroup
	mu     sync.Mutex
	done   map[string]refunded // by operation
	failed atomic.Int64        // exchanges without an answer, or with a 5xx
}

const orders = 8

// call starts n of them. Every fourth refund is at the provider.
func call(t *testing.T, n int, client func(i int) harness.Client) *callers {
	c := &callers{t: t, client: client, done: map[string]refunded{}}
	for i := range n {
		c.group.Go(func() {
			for j := 0; !c.stop.Load(); j++ {
				order := fmt.Sprintf("L%d", (i+j)%orders)
				if j%4 == 0 {
					order = fmt.Sprintf("PAY%d", (i+j)%orders)
				}
				c.refund(order, fmt.Sprintf("K-%d-%d", i, j))
			}
		})
	}
	return c
}

// refund ends with an answer that is final, for at most a minute, or when the callers are to stop.
func (c *callers) refund(order, operation string) {
	provider := strings.HasPrefix(order, "PAY")
	history := &c.ledger
	if provider {
		history = &c.paid
	}
	for i, deadline := 0, time.Now().Add(time.Minute); ; i++ {
		said, heard := history.Ask(c.t, c.client(i), operation, order, 1, 15*time.Second)
		switch {
		case heard && (said.Says == "processed" || said.Says == "already_processed"):
			c.mu.Lock()
			defer c.mu.Unlock()
			c.done[operation] = refunded{order, provider, said.Ended}
			return
		case !heard, said.Says == "database_unavailable", said.Says == "overloaded":
			c.failed.Add(1)
		case said.Says != "pending" && said.Says != "operation_in_progress" && said.Says != "provider_unavailable":
			c.t.Errorf("%s is answered %s", operation, said.Says)
			return
		}
		if c.stop.Load() {
			return
		}
		if time.Now().After(deadline) {
			c.t.Errorf("%s has no end within a minute: %+v", operation, said)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *callers) end() {
	c.stop.Store(true)
	c.group.Wait()
}

// acknowledged is how many refunds were, and the first one after a moment.
func (c *callers) acknowledged(after time.Time) (n int, first time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.done {
		if r.at.After(after) && (first.IsZero() || r.at.Before(first)) {
			first = r.at
		}
	}
	return len(c.done), first
}

// await waits until n more refunds were acknowledged.
func (c *callers) await(n int) {
	c.t.Helper()
	began, _ := c.acknowledged(time.Now())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if now, _ := c.acknowledged(time.Now()); now >= began+n {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("no %d refunds within a minute", n)
		}
	}
}

// open makes the tenant with its orders, half of them at the provider.
func (p *pair) open() *harness.Tenant {
	tenant := p.OpenTenant(p.t)
	for i := range orders {
		tenant.Load([]string{fmt.Sprintf("L%d", i)}, 1_000_000)
		tenant.Pay(harness.Payment{OrderID: fmt.Sprintf("PAY%d", i), Cents: 1_000_000})
	}
	return tenant
}

// missing are operations that were acknowledged and have no row that says so.
func (p *pair) missing(tenant *harness.Tenant, c *callers) []string {
	p.t.Helper()
	rows, err := p.DB.Owner.Query(p.t.Context(), `SELECT operation_id FROM refund_operations WHERE tenant_id = $1
		AND state = 'succeeded'`, tenant.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			p.t.Fatal(err)
		}
		found[id] = true
	}
	if err := rows.Err(); err != nil {
		p.t.Fatal(err)
	}
	var lost []string
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.done {
		if !found[id] {
			lost = append(lost, id)
		}
	}
	return lost
}

// lostNothing: every refund that was acknowledged is in the books that are left, and these are settled.
func (p *pair) lostNothing(tenant *harness.Tenant, c *callers) {
	p.t.Helper()
	n, _ := c.acknowledged(time.Now())
	if lost := p.missing(tenant, c); len(lost) > 0 {
		p.t.Errorf("%d of %d acknowledged refunds are lost: %v", len(lost), n, lost[:min(5, len(lost))])
	}
	p.t.Logf("%d refunds acknowledged, none lost; %d exchanges failed meanwhile", n, c.failed.Load())
	p.settled(tenant, c)
}

// settled lets what is open find its end, and holds the books, the provider's and the answers against each other.
func (p *pair) settled(tenant *harness.Tenant, c *callers) {
	p.t.Helper()
	for range 3 {
		p.Due(p.t)
		p.Reconcile(p.t)
	}
	books := p.Simulator.Ledger() // in which no key is twice
	if len(books) < 10 {
		p.t.Errorf("only %d refunds at the provider", len(books))
	}
	c.paid.Hold(p.t, books, tenant.ProviderKey, harness.Patience{})
	for _, said := range c.ledger.All() {
		if said.Moved == "no" {
			p.t.Errorf("%s, which was in order, was told that nothing moved: %s", said.Operation, said.Says)
		}
	}
	p.Audit(p.t)
}

// TestPrimaryKilledTwice_UnderLoad: with a synchronous standby, nothing that was acknowledged is lost, whichever
// machine goes.
func TestPrimaryKilledTwice_UnderLoad(t *testing.T) {
	p, a, b := newPair(t)
	tenant := p.open()
	p.synchronous(true)
	p.Servers = []*harness.Server{harness.Serve(t, p.url(p.DB.ServiceURL), p.Flags...),
		harness.Serve(t, p.url(p.DB.ServiceURL), p.Flags...)}
	c := call(t, 8, func(i int) harness.Client { return tenant.At(i) })
	c.await(150)

	lose := func(name string, kill func(), heir *nodes.Node) {
		t.Helper()
		killed := time.Now()
		kill()
		p.turnTo(heir)
		promoted := time.Now()
		// there is no other yet; who acknowledges now, does so on one machine, as its operator decides
		p.synchronous(false)
		c.await(150)
		_, first := c.acknowledged(promoted)
		t.Logf("%s killed: refunds again %v after the kill, %v after the promotion", name,
			first.Sub(killed).Round(time.Millisecond), first.Sub(promoted).Round(time.Millisecond))
		if first.Sub(killed) > 30*time.Second {
			t.Errorf("it takes %v", first.Sub(killed))
		}
	}
	lose("A", func() { _ = a.Kill() }, b)
	// A comes back as B's standby
	again := nodes.Standby(t, strings.Replace(b.URL, "/"+p.DB.Name, "/postgres", 1), p.ports[0])
	p.synchronous(true)
	c.await(100)
	lose("B", b.Kill, again)
	c.end()
	p.lostNothing(tenant, c)
}

// TestPrimaryPartitioned_UnderLoad: the primary is alive, and nobody reaches it any more: connections to it are taken
// and stay silent. It is fenced off (killed) before its network is back, as any cluster manager does.
func TestPrimaryPartitioned_UnderLoad(t *testing.T) {
	p, a, b := newPair(t)
	tenant := p.open()
	p.synchronous(true)
	p.Servers = []*harness.Server{harness.Serve(t, p.url(p.DB.ServiceURL), p.Flags...),
		harness.Serve(t, p.url(p.DB.ServiceURL), p.Flags...)}
	c := call(t, 8, func(i int) harness.Client { return tenant.At(i) })
	c.await(100)
	cut := time.Now()
	nodes.Freeze(a.PID())
	p.turnTo(b)
	promoted := time.Now()
	p.synchronous(false)
	c.await(100)
	_, first := c.acknowledged(promoted)
	t.Logf("A cut off: refunds again %v later, %v after the promotion", first.Sub(cut).Round(time.Millisecond),
		first.Sub(promoted).Round(time.Millisecond))
	if first.Sub(promoted) > 30*time.Second {
		t.Errorf("it takes %v", first.Sub(promoted))
	}
	if err := a.Kill(); err != nil {
		t.Error(err)
	}
	c.end()
	p.lostNothing(tenant, c)
}

// TestAsynchronousStandby_LosesCommits_AfterRestoreMends: what the standby never had is gone; what the provider
// executed of it is found there, and not executed again, though the provider has forgotten its keys.
func TestAsynchronousStandby_LosesCommits_AfterRestoreMends(t *testing.T) {
	p, a, b := newPair(t)
	tenant := p.open()
	p.Servers = []*harness.Server{harness.Serve(t, p.url(p.DB.ServiceURL), p.Flags...)}
	c := call(t, 4, func(int) harness.Client { return tenant.At(0) })
	c.await(60)
	b.Cut(t) // the stream stands still, as behind a network that is gone
	c.await(60)
	_ = a.Kill()
	c.end()
	p.Servers[0].Kill()
	p.Simulator.Forget()
	p.turnTo(b)

	n, _ := c.acknowledged(time.Now())
	lost := p.missing(tenant, c)
	atProvider := 0
	for _, id := range lost {
		if c.done[id].provider {
			atProvider++
		}
	}
	t.Logf("%d of %d acknowledged refunds are lost, %d of them at the provider", len(lost), n, atProvider)
	if atProvider == 0 || atProvider == len(lost) {
		t.Fatal("nothing was lost of one kind: nothing to mend")
	}
	r := harness.Command(t, p.DB.ServiceURL, "after-restore")
	if r.ExitCode != 0 {
		t.Fatalf("after-restore exits %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	t.Logf("after-restore: %s", strings.TrimSpace(r.Stdout))
	p.Servers = []*harness.Server{harness.Serve(t, p.url(p.DB.ServiceURL), p.Flags...)}
	again := &callers{t: t, client: func(int) harness.Client { return tenant.At(0) }, done: map[string]refunded{}}
	for id, r := range c.done {
		again.refund(r.order, id)
	}
	if lost := p.missing(tenant, c); len(lost) > 0 {
		t.Errorf("asked for again, %d are still missing: %v", len(lost), lost[:min(5, len(lost))])
	}
	p.settled(tenant, again)
}

// TestReplicas_RestartedOneByOne_NoRequestFails: three replicas behind a plain TCP proxy that asks /readyz.
func TestReplicas_RestartedOneByOne_NoRequestFails(t *testing.T) {
	s := harness.NewPaying(t)
	p := &pair{Service: s, t: t}
	tenant := p.open()
	proxy := newProxy(t)
	start := func() *harness.Server {
		server := harness.Serve(t, s.DB.ServiceURL, append(s.Flags, "--drain-delay", "1s")...)
		proxy.add(server)
		return server
	}
	replicas := []*harness.Server{start(), start(), start()}
	c := call(t, 12, func(int) harness.Client { return harness.Client{URL: proxy.url, Key: tenant.Key, T: t} })
	c.await(100)
	for i := range replicas {
		old := replicas[i]
		replicas[i] = start()
		if code := old.Terminate(t); code != 0 {
			t.Errorf("replica %d ends with %d", i, code)
		}
		proxy.remove(old)
		c.await(50)
	}
	c.end()
	n, _ := c.acknowledged(time.Now())
	t.Logf("%d refunds while each of three replicas was replaced, %d exchanges failed", n, c.failed.Load())
	if c.failed.Load() > 0 {
		t.Errorf("%d exchanges failed", c.failed.Load())
	}
	if lost := p.missing(tenant, c); len(lost) > 0 {
		t.Errorf("%d acknowledged refunds are lost", len(lost))
	}
	p.settled(tenant, c)
}
