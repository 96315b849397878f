package console_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// shoot keeps a picture of the whole page, where somebody asked for pictures.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if pictures == "" {
		return
	}
	var png []byte
	b.do("take a picture", chromedp.ActionFunc(func(ctx context.Context) (err error) {
		return chromedp.FullScreenshot(&png, 100).Do(ctx)
	}))
	if err := os.WriteFile(filepath.Join(pictures, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// view keeps a picture of what is in the window.
func (b *tab) view(name string) {
	b.t.Helper()
	if pictures == "" {
		return
	}
	var png []byte
	b.do("take a picture", chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(pictures, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
		Value: name}})
}

// place is a page, and what it says once it is there.
type place struct{ name, hash, says string }

var scenes = []place{
	{"now", "#/", "Waits for a person"},
	{"operation", "#/operation/scene-waits", "Decide"},
	{"operation-paid", "#/operation/scene-paid", "Settled"},
	{"order", "#/order/scene-over", "Over-refunded"},
	{"search", "#/search/scene-paid@example.com", "1 match"},
	{"authorizations", "#/authorizations/case-scene-paid", "Second parcel missing"},
	{"escalations", "#/escalations", "Nobody has taken it"},
	{"reconciliation", "#/reconciliation", "still unknown"},
}

// set says that the scene is.
var set bool

// scene makes something to see on every page, once, and returns the pages.
func scene(t *testing.T) []place {
	t.Helper()
	if set {
		return scenes
	}
	waits(t, "scene-waits", 7500, false)
	paid(t, "scene-lost", 2500)
	faulty(t, func() { refund(t, "scene-lost", 2500, 202) }, `{"mode":"drop_after","count":1}`)
	paid(t, "scene-paid", 4000)
	refund(t, "scene-paid", 4000, 201)
	approve(t, "scene-open", "case-scene-paid", "scene-paid", 1000, object{"reason": "Second parcel missing"})
	do(t, "POST", w.URL+"/v1/refund-requests", key(t, "refunds:request"),
		`{"case_id":"case-scene-wish","order_id":"scene-paid","amount_cents":6000,"reason_code":"damaged"}`, 201)
	do(t, "POST", w.URL+"/v1/escalations", w.APIKey,
		`{"case_id":"case-scene-talk","trigger":"asked_for_human","summary":"Wants to talk about a refund of March, and does not want to say more to a machine."}`, 201, 200)
	over(t, "scene-over")
	history(t)
	set = true
	return scenes
}

// over makes an order of which the provider paid more than was captured: a refund that a person failed was paid after
// all.
func over(t *testing.T, id string) {
	t.Helper()
	waits(t, id, 7500, true)
	faulty(t, func() {
		do(t, "POST", w.URL+"/v1/refunds/"+id+"/resolve", w.APIKey,
			`{"outcome":"failed","evidence":"The dashboard showed nothing.","resolved_by":"Bo"}`, 200)
	}, `{"mode":"lookup_lag","delay_ms":600000}`)
	approve(t, id+"-again", "case-"+id, id, 7500, nil)
	do(t, "POST", w.URL+"/v1/refunds", w.APIKey,
		fmt.Sprintf(`{"operation_id":"%s-again","order_id":%q,"amount_cents":7500}`, id, id), 201)
	sql(t, `UPDATE refund_operations SET lease_until = '-infinity' WHERE operation_id = $1`, id)
	do(t, "POST", w.URL+"/v1/refunds/"+id+"/reconcile", w.APIKey, "", 200)
	if s := stateOf(t, id); s != "needs_attention" {
		t.Fatalf("%s is %s", id, s)
	}
}

// history is a day of refunds and runs.
func history(t *testing.T) {
	t.Helper()
	sql(t, `
		INSERT INTO orders (tenant_id, order_id, currency, captured_cents, refunded_cents)
			VALUES ($1, 'scene-day', 'EUR', 10000000, 390000) ON CONFLICT DO NOTHING`, w.TenantID)
	sql(t, `
		INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id, amount_cents,
			currency, state, created_at, settled_at)
		SELECT $1, 'scene-day-' || n, repeat('0', 64), gen_random_uuid(), 'scene-day', 1000, 'EUR', 'succeeded', at, at
		FROM generate_series(1, 390) AS n, LATERAL (SELECT now() - (n * n % 1380) * interval '1 minute' AS at) AS t
			ON CONFLICT DO NOTHING`, w.TenantID)
	sql(t, `
		INSERT INTO reconciliation_runs (run_id, started_at, finished_at, claimed, succeeded, failed, still_unknown,
			needs_attention, oldest_unknown_seconds, duration_ms)
		SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, now() - (61 - n) * interval '10 minutes',
			now() - (61 - n) * interval '10 minutes',
			n % 7 + 3, n % 5, n % 2, (n * 13) % 9, CASE WHEN n % 20 = 0 THEN 1 ELSE 0 END, n * 7 % 600, 40 + n
		FROM generate_series(1, 60) AS n ON CONFLICT DO NOTHING`)
	sql(t, `
		INSERT INTO audits (audit_id, started_at, finished_at, operations, transfers, orders, lies)
		SELECT gen_random_uuid(), now() - interval '3 hours 2 seconds', now() - interval '3 hours', 390, 401, 24, 0
			WHERE NOT EXISTS (SELECT FROM audits)`)
}

func TestPictures_OfEveryPageAtTwoWidths(t *testing.T) {
	b := open(t, w.APIKey, "")
	for _, at := range scene(t) {
		b.goTo(at.hash)
		b.says(at.says)
		for _, width := range []int64{3840, 375, 1440} {
			b.do("resize", size(width, 900))
			b.holds(`document.querySelectorAll('.busy').length === 0 && [...document.querySelectorAll('.chart')].every((c) => c.querySelector('canvas'))`)
			var overflow int
			b.do("measure", chromedp.Evaluate(`document.documentElement.scrollWidth - innerWidth`, &overflow))
			if overflow > 0 {
				b.t.Errorf("%s at %d px is %d px too wide", at.name, width, overflow)
			}
			if width < 3840 {
				b.shoot(fmt.Sprintf("%s-%d", at.name, width))
			}
		}
	}
	// Those of the README.
	b.do("resize", size(1100, 1000))
	b.goTo("#/")
	b.says("Waits for a person")
	b.holds(`document.querySelectorAll('.chart canvas').length === 2`)
	b.view("readme-now")
	b.goTo("#/operation/scene-waits")
	b.says("What happened, oldest first")
	b.holds(`document.querySelectorAll('.busy').length === 0`)
	b.view("readme-operation")
	b.do("the dark", scheme("dark"))
	b.goTo("#/")
	b.says("Audited", "scene-waits")
	b.holds(`document.querySelectorAll('.chart canvas').length === 2`)
	b.shoot("now-dark")
}
