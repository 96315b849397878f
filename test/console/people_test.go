package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
)

// TestAxe_FindsNothing holds every page against axe-core's rules, in the light and in the dark, wide and narrow.
func TestAxe_FindsNothing(t *testing.T) {
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: .ci/console installs it", err)
	}
	b := open(t, w.APIKey, "")
	passes := 0
	for _, at := range scene(t) {
		for _, light := range []string{"light", "dark"} {
			for _, width := range []int64{375, 1280} {
				b.do("look", scheme(light), size(width, 900))
				b.goTo(at.hash)
				b.says(at.says)
				b.holds(`document.querySelectorAll('.busy').length === 0`)
				passes += b.axe(string(axe), fmt.Sprint(at.name, " ", light, " ", width))
			}
		}
	}
	signedOut := open(t, "", "")
	signedOut.says("API key")
	passes += signedOut.axe(string(axe), "the first page")
	t.Logf("axe-core: %d rules held, on %d looks", passes, 1+8*4)
	if passes < 300 {
		t.Errorf("only %d rules were held: that is no look at the pages", passes)
	}
}

func (b *tab) axe(source, where string) (passes int) {
	b.t.Helper()
	var raw string
	b.do("run axe", chromedp.Evaluate(`if (!window.axe) { (0, eval)(`+quote(source)+`) }; 0`, nil))
	b.do("read axe", chromedp.Evaluate(`axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}).then((r) => JSON.stringify(
		{passes: r.passes.length, found: r.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.html.slice(0, 160) + ' ' + n.failureSummary))}))`, &raw,
		awaited))
	var report struct {
		Passes int
		Found  []string
	}
	if err := json.Unmarshal([]byte(raw), &report); err != nil {
		b.t.Fatal(err)
	}
	for _, found := range report.Found {
		b.t.Errorf("%s: %s", where, found)
	}
	return report.Passes
}

// TestFirstPaint_IsLight counts what comes over the wire until somebody sees the page.
func TestFirstPaint_IsLight(t *testing.T) {
	b := open(t, "", "")
	total := 0.0
	measure := func() float64 {
		var bytes float64
		b.do("measure", chromedp.Evaluate(`[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
			.filter((e) => !e.name.includes('/v1/')).reduce((n, e) => n + e.transferSize, 0)`, &bytes))
		return bytes
	}
	b.do("load anew", chromedp.ActionFunc(func(ctx context.Context) error { return network.ClearBrowserCache().Do(ctx) }), chromedp.Reload(), chromedp.WaitVisible(`input[name=key]`))
	total = measure()
	var paint float64
	b.do("read the paint", chromedp.Poll(`performance.getEntriesByName('first-contentful-paint')[0]?.startTime`, &paint,
		chromedp.WithPollingInterval(50*time.Millisecond)))
	t.Logf("first paint: %.0f bytes, after %.0f ms", total, paint)
	if total > 100_000 || total < 5_000 {
		t.Errorf("the first paint takes %.0f bytes", total)
	}
	b.signIn(w.APIKey)
	b.says("Not finished")
	b.holds(`document.querySelectorAll('.busy').length === 0`)
	t.Logf("with the page Now and its charts: %.0f bytes", measure())
}

// TestTenThousandRows_ArePagedSmoothly turns pages of an order that has ten thousand refunds.
func TestTenThousandRows_ArePagedSmoothly(t *testing.T) {
	sql(t, `INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents)
		VALUES ($1, 'big', 'EUR', 10000000, 10000)`, w.TenantID)
	sql(t, `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state, created_at, settled_at)
		SELECT $1, 'big-' || lpad(n::text, 5, '0'), repeat('0', 64), gen_random_uuid(), 'big', 1, 'EUR', 'succeeded',
			at, at
		FROM generate_series(1, 10000) AS n,
			LATERAL (SELECT now() - interval '9 days' + n * interval '1 second' AS at) AS t`, w.TenantID)
	b := open(t, w.APIKey, "#/order/big")
	b.says("big-10000")
	var rows, pages int
	began, slowest := time.Now(), time.Duration(0)
	for pages = 1; pages <= 40; pages++ {
		turn := time.Now()
		b.holds(fmt.Sprintf(`document.querySelector('.pager span')?.textContent === 'Page %d' && document.querySelector('a[href="#/operation/big-%05d"]') !== null`, pages, 10000-(pages-1)*50))
		slowest = max(slowest, time.Since(turn))
		b.do("count", chromedp.Evaluate(`document.querySelectorAll('tbody tr').length`, &rows))
		if rows != 50 {
			t.Fatalf("page %d has %d rows", pages, rows)
		}
		b.do("turn", chromedp.Evaluate(`document.querySelector('.pager button:last-child').click()`, nil))
	}
	t.Logf("40 pages in %s, the slowest %s", time.Since(began).Round(time.Millisecond), slowest.Round(time.Millisecond))
	if slowest > 3*time.Second {
		t.Errorf("a page takes %s", slowest)
	}
}

// TestWithoutTheDatabase_NothingIsShownAsIfItWereNow takes the service's database away while somebody decides.
func TestWithoutTheDatabase_NothingIsShownAsIfItWereNow(t *testing.T) {
	waits(t, "outage", 7500, false)
	b := open(t, w.APIKey, "#/operation/outage")
	b.click("#choose-failed")
	b.write("#evidence", "written before the outage")
	now := open(t, w.APIKey, "")
	now.says("Not finished", "outage")
	restore := outage(t)
	for _, page := range []*tab{b, now} {
		page.says("refundd does not answer as it should", "Not current.", "Amounts may have changed.")
		page.holds(`[...document.querySelectorAll('.old span.money')].length > 0 && [...document.querySelectorAll('.old span.money')].every((m) => m.textContent.startsWith('was'))`)
	}
	var current int
	now.do("count", chromedp.Evaluate(`[...document.querySelectorAll('main span.money')].filter((m) => !m.classList.contains('was')).length`, &current))
	if current != 0 {
		t.Errorf("%d amounts are shown as if they were now", current)
	}
	b.holds(`document.querySelector('#decide-now').disabled`)
	b.shoot("outage")
	restore()
	b.holds(`document.querySelector('.down') === null && document.querySelector('.old') === null`)
	if v := b.value("#evidence"); v != "written before the outage" {
		t.Errorf("the evidence is gone: %q", v)
	}
	b.click("#decide-now")
	b.says("did not go to the customer.")
	now.holds(`document.querySelector('.was') === null`)
}

func TestTimes_AreInUTCAndInTheReadersZone(t *testing.T) {
	paid(t, "zones", 100)
	refund(t, "zones", 100, 201)
	sql(t, `UPDATE refund_operations SET created_at = '2026-01-31T23:30:00Z' WHERE operation_id = 'zones'`)
	b := open(t, "", "")
	b.do("live in Tokyo", emulation.SetTimezoneOverride("Asia/Tokyo"), chromedp.Reload())
	b.signIn(w.APIKey)
	b.goTo("#/operation/zones")
	b.says("2026-01-31 23:30:00 UTC", "Feb 1, 2026, 8:30:00")
	b.holds(`document.body.innerText.includes('Asia/Tokyo')`)
}

// outage lets nobody but the owner into the database until restore.
func outage(t *testing.T) (restore func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	var role string
	err = conn.QueryRow(t.Context(), `SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database()
		AND usename <> current_user`).Scan(&role)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(ctx context.Context, statement string) {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Error(err)
		}
	}
	name := pgx.Identifier{role}.Sanitize()
	exec(t.Context(), `ALTER ROLE `+name+` NOLOGIN`)
	exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '`+strings.ReplaceAll(role, "'", "''")+`'`)
	restored := false
	restore = func() {
		if !restored {
			restored = true
			exec(context.Background(), `ALTER ROLE `+name+` LOGIN`)
			_ = conn.Close(context.Background())
		}
	}
	t.Cleanup(restore)
	return restore
}

// awaited waits for a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
