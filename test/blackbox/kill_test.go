package blackbox

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/internal/embedpg"
	"refundd/test/harness"
	"refundd/test/testdb"
)

// load is callers that refund until they are told to stop, and remember what they were told.
type load struct {
	t       *testing.T
	tenant  *harness.Tenant
	urls    func() []string // of the servers that may be asked
	stop    atomic.Bool
	callers sync.WaitGroup
	next    atomic.Int64

	mu           sync.Mutex
	acknowledged map[string]harness.Refund // by key
	unknown      map[string]rival          // keys whose last answer was none, or not the end
}

const cents = 7

// begin starts callers; each sends new keys, and now and then one again that another caller sends, too.
func begin(t *testing.T, tenant *harness.Tenant, callers int, urls func() []string) *load {
	l := &load{t: t, tenant: tenant, urls: urls, acknowledged: map[string]harness.Refund{}, unknown: map[string]rival{}}
	for i := range callers {
		l.callers.Go(func() {
			for !l.stop.Load() {
				l.call(i)
			}
		})
	}
	t.Cleanup(l.halt)
	return l
}

func (l *load) halt() {
	l.stop.Store(true)
	l.callers.Wait()
}

func (l *load) call(caller int) {
	n := l.next.Add(1)
	if n%5 == 0 {
		n-- // a key that somebody else is sending right now
	}
	key, order := fmt.Sprint("K", n), fmt.Sprint("P", n%4)
	urls := l.urls()
	if len(urls) == 0 || l.send(urls[caller%len(urls)], key, rival{order, cents}).Status >= 300 {
		time.Sleep(20 * time.Millisecond) // an outage is not for filling a book with failures
	}
}

// await waits until this many more refunds are acknowledged and this many in all have no answer, on a busy machine,
// too.
func (l *load) await(more, unanswered int) {
	l.t.Helper()
	count := func() (int, int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.acknowledged), len(l.unknown)
	}
	before, _ := count()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		acknowledged, unknown := count()
		if acknowledged >= before+more && unknown >= unanswered {
			return
		}
		if time.Since(began) > time.Minute {
			l.t.Fatalf("the test proves nothing: %d refunds acknowledged, %d without an answer", acknowledged, unknown)
		}
	}
}

// send refunds once and takes down the answer.
func (l *load) send(url, key string, r rival) harness.Answer {
	c := harness.Client{URL: url, Key: l.tenant.Key, T: l.t}
	a, err := c.Try(harness.Request{Method: http.MethodPost, Path: "/v1/refunds", Valid: true, Wait: 15 * time.Second,
		Body: harness.JSON(harness.Fields{"operation_id": key, "order_id": r.order, "amount_cents": r.cents})})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && a.Status < 300:
		receipt := harness.Read[harness.Receipt](l.t, a)
		if first, known := l.acknowledged[key]; known && !cmp.Equal(first, receipt.Refund) {
			l.t.Errorf("%s was acknowledged twice, differently: %s", key, cmp.Diff(first, receipt.Refund))
		}
		l.acknowledged[key] = receipt.Refund
		delete(l.unknown, key)
	case err == nil && a.Status < 500:
		l.t.Errorf("%s: %d %s", key, a.Status, a.Body)
	default:
		a.Status = max(a.Status, http.StatusInternalServerError)
		if err == nil && harness.Read[harness.Problem](l.t, a).MoneyMoved != "unknown" {
			l.t.Errorf("%s: an answer without an end speaks of money: %s", key, a.Body)
		}
		if _, known := l.acknowledged[key]; !known {
			l.unknown[key] = r
		}
	}
	return a
}

// end stops the callers and holds the service to what it said: every acknowledged refund is there, every other one gets
// a truthful answer when it is sent again, and money moved once for each.
func (l *load) end(url string) {
	l.t.Helper()
	l.halt()
	l.t.Logf("%d refunds acknowledged, %d without an answer", len(l.acknowledged), len(l.unknown))
	c := l.tenant.Client()
	c.URL = url
	_, before := l.tenant.Books("")
	for key, r := range l.unknown {
		says := l.send(url, key, r).Says()
		// What a dead server had asked of Postgres may still have been done after the books were read.
		if says != "already_processed" && (says != "processed" || before[key] > 0) {
			l.t.Errorf("%s, which had moved %d, is %s", key, before[key], says)
		}
	}
	if len(l.unknown) > 0 {
		l.t.Errorf("%d refunds still have no answer", len(l.unknown))
	}
	orders, moved := l.tenant.Books("")
	for key, receipt := range l.acknowledged {
		if moved[key] != cents {
			l.t.Errorf("%s was acknowledged, and moved %d", key, moved[key])
		}
		if diff := cmp.Diff(receipt, harness.Read[harness.Refund](l.t, c.Get(harness.RefundPath(key)))); diff != "" {
			l.t.Errorf("%s is not what was acknowledged: %s", key, diff)
		}
	}
	if len(moved) != len(l.acknowledged) {
		l.t.Errorf("%d keys moved money, %d were acknowledged", len(moved), len(l.acknowledged))
	}
	for order, balance := range orders {
		if balance.Refunded != balance.Debited {
			l.t.Errorf("order %s: %+v", order, balance)
		}
	}
}

func urlsOf(servers []*harness.Server) []string {
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	return urls
}

func TestKill_ServerUnderLoad_LosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	tenant := service.OpenTenant(t)
	tenant.Load(names("P", 4), 1<<40)
	var mu sync.Mutex
	l := begin(t, tenant, 16, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return urlsOf(service.Servers)
	})
	for range 3 {
		l.await(20, 0)
		service.Servers[0].Kill()
		l.await(0, 1)
		next := harness.Serve(t, service.DB.ServiceURL)
		mu.Lock()
		service.Servers = []*harness.Server{next}
		mu.Unlock()
	}
	l.end(service.Servers[0].URL)
	service.Audit(t)
}

// One of two servers is suspended under load, and another one dies: the survivor answers for both, and the suspended
// one does no harm when it wakes up.
func TestKill_ServerSuspendedUnderLoad_DoesNoHarmWhenItWakes(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	sleeper, survivor := service.Servers[0], service.AddServer(t)
	tenant := service.OpenTenant(t)
	tenant.Load(names("P", 4), 1<<40)
	l := begin(t, tenant, 8, func() []string { return []string{sleeper.URL, survivor.URL} })
	l.await(20, 0)
	sleeper.Pause(t)
	l.await(20, 0) // from the survivor
	sleeper.Resume(t)
	l.await(20, 0)
	sleeper.Kill()
	l.await(20, 1)
	l.end(survivor.URL)
	service.Audit(t)
}

func TestTerminate_UnderLoad_LosesNothing(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	going, staying := service.Servers[0], service.AddServer(t)
	tenant := service.OpenTenant(t)
	tenant.Load(names("P", 4), 1<<40)
	l := begin(t, tenant, 8, func() []string { return []string{going.URL, staying.URL} })
	l.await(20, 0)
	if code := going.Terminate(t); code != 0 {
		t.Errorf("refundd serve exits %d after SIGTERM: %s", code, going.Logs.Text())
	}
	l.await(20, 1)
	l.end(staying.URL)
	service.Audit(t)
}

// A server that is told to stop answers what it was asked before, also what waits for a lock and for its turn.
func TestTerminate_AnswersWhatIsInFlight(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	going := service.Servers[0]
	tenant := service.OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	release := service.Hold(t, `SELECT FROM orders FOR UPDATE`)
	const n = 20
	together(n+1, func(i int) {
		if i < n {
			want(t, tenant.Client().Refund(fmt.Sprint("K", i), "P", cents), "processed")
			return
		}
		time.Sleep(500 * time.Millisecond)
		time.AfterFunc(500*time.Millisecond, release)
		if code := going.Terminate(t); code != 0 {
			t.Errorf("refundd serve exits %d after SIGTERM: %s", code, going.Logs.Text())
		}
	})
	wantMoved(t, tenant, "P", n*cents)
	service.Audit(t)
}

func TestKill_PostgresUnderLoad_LosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	cluster := testdb.Start(t, embedpg.Options{Durable: true})
	service := &harness.Service{DB: testdb.NewIn(t, cluster)}
	service.AddServer(t, "--request-timeout", "5s")
	service.AddServer(t, "--request-timeout", "5s")
	tenant := service.OpenTenant(t)
	tenant.Load(names("P", 4), 1<<40)
	l := begin(t, tenant, 16, func() []string { return urlsOf(service.Servers) })
	for range 3 {
		l.await(20, 0)
		if err := cluster.Kill(); err != nil {
			t.Fatal(err)
		}
		l.await(0, 1)
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.await(20, 0)
	service.DB.Owner.Reset()
	for _, url := range urlsOf(service.Servers) {
		c := tenant.Client()
		c.URL = url
		for began := time.Now(); c.Get("/readyz").Status != http.StatusOK; time.Sleep(50 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatal("the service does not recover")
			}
		}
	}
	l.end(service.Servers[0].URL)
	service.Audit(t)
}
