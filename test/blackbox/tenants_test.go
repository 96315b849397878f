package blackbox

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

// secrets of tenant A that must never show in an answer to B.
var secrets = []string{"sesame", "S-1001", "hidden-case"}

// withSecrets makes tenant A with an executed refund K and an open approval L, all full of what B must not see.
func withSecrets(t *testing.T, a *harness.Tenant) harness.Receipt {
	t.Helper()
	c := a.Client()
	c.Put(harness.OrderPath("S-1001"),
		harness.Fields{"currency": "EUR", "captured_cents": 7777, "provider": "simulator",
			"provider_payment_ref": "sesame-ref-" + a.ID,
			"customer":             harness.Fields{"id": "sesame-id", "email": "sesame@example.com", "name": "Sesame"}})
	c.Put(harness.OrderPath("P"),
		harness.Fields{"currency": "EUR", "captured_cents": 7777,
			"customer": harness.Fields{"email": "sesame@example.com"}})
	for _, key := range []string{"K", "L"} {
		c.Put(harness.AuthorizationPath(key),
			harness.Fields{"case_id": "hidden-case", "order_id": "P", "amount_cents": 777, "approved_by": "sesame",
				"reason": "sesame"})
	}
	a1 := c.Post("/v1/refunds",
		harness.Fields{"operation_id": "K", "order_id": "P", "amount_cents": 777, "reason": "sesame",
			"metadata": harness.Fields{"m": "sesame"}})
	want(t, a1, "processed")
	return harness.Read[harness.Receipt](t, a1)
}

func hides(t *testing.T, what string, a harness.Answer, receipt harness.Receipt) {
	t.Helper()
	text := fmt.Sprint(a.Header, string(a.Body))
	for _, secret := range append(secrets, receipt.RefundID) {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows %q: %s", what, secret, text)
		}
	}
}

func TestA9_AnotherTenant_SeesAndChangesNothing(t *testing.T) {
	t.Parallel()
	service := harness.Shared(t)
	a, b := service.Tenant(t), service.Tenant(t)
	receipt := withSecrets(t, a)
	c := b.Client()
	unchanged(t, a, func() {
		for path, says := range map[string]string{
			"/v1/orders/P": "order_not_found", "/v1/authorizations/K": "authorization_not_found", "/v1/authorizations/L": "authorization_not_found",
			"/v1/refunds/K": "refund_not_found", "/v1/refunds/L": "refund_not_found", "/v1/refunds/K/events": "refund_not_found",
			"/v1/orders?customer_email=sesame@example.com": "200", "/v1/orders?customer_id=sesame-id": "200",
			"/v1/authorizations?case_id=hidden-case": "200", "/v1/refunds": "200", "/v1/refunds?order_id=P": "200", "/v1/refunds?state=succeeded": "200",
		} {
			answer := c.Get(path)
			want(t, answer, says)
			hides(t, path, answer, receipt)
		}
		for _, key := range []string{"K", "L"} {
			for _, answer := range []harness.Answer{c.Refund(key, "P", 777), c.Refund(key, "P", 1),
				c.Post(harness.AuthorizationPath(key)+"/revoke", harness.Fields{})} {
				if answer.Status != http.StatusNotFound {
					t.Errorf("%s: %d %s", key, answer.Status, answer.Body)
				}
				hides(t, key, answer, receipt)
			}
		}
	})
	// The same ids are B's own as well.
	b.Order("P", 500)
	b.Approve("K", "P", 33)
	own := c.Refund("K", "P", 33)
	want(t, own, "processed")
	hides(t, "B's own K", own, receipt)
	want(t, c.Refund("K", "P", 777), "operation_id_conflict")
	again := a.Client().Refund("K", "P", 777)
	want(t, again, "already_processed")
	if diff := cmp.Diff(receipt.Refund, harness.Read[harness.Receipt](t, again).Refund); diff != "" {
		t.Errorf("A's receipt changed: %s", diff)
	}
	wantMoved(t, a, "P", 777)
	wantMoved(t, b, "P", 33)
}

func TestA9_AnotherTenantFirst_DoesNotStopTheOwner(t *testing.T) {
	t.Parallel()
	service := harness.Shared(t)
	a, b := service.Tenant(t), service.OpenTenant(t)
	a.Order("P", 10000)
	a.Approve("K", "P", 600)
	want(t, b.Client().Refund("K", "P", 600), "order_not_found")
	b.Order("P", 10000)
	want(t, b.Client().Refund("K", "P", 700), "processed")
	want(t, a.Client().Refund("K", "P", 600), "processed")
	// At once, many keys of both tenants.
	const n = 40
	for i := range n {
		a.Load(nil, 1, harness.Approved{OperationID: fmt.Sprint("R", i), OrderID: "P", Cents: 1})
	}
	answers := make([]harness.Answer, 2*n)
	together(2*n, func(i int) {
		answers[i] = []*harness.Tenant{a, b}[i%2].At(i/2).Refund(fmt.Sprint("R", i/2), "P", 1)
	})
	if diff := cmp.Diff(map[string]int{"processed": 2 * n}, tally(answers)); diff != "" {
		t.Error(diff)
	}
	wantMoved(t, a, "P", 600+n)
	wantMoved(t, b, "P", 700+n)
}

func TestA46_ARevokedKey_GetsNothingOnAnyServerWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	receipt := withSecrets(t, tenant)
	revoked := map[string]string{
		"revoked": tenant.NewKey(harness.AllScopes),
		"rotated": tenant.NewKey(harness.AllScopes),
		"expired": tenant.NewKey(harness.AllScopes),
	}
	for _, key := range revoked {
		for i := range 2 {
			want(t, tenant.At(i).With(key).Get("/v1/refunds/K"), "200")
		}
	}
	tenant.EndKey(revoked["revoked"], "revoke")
	successor := tenant.EndKey(revoked["rotated"], "rotate")
	tenant.Exec(`UPDATE api_keys SET expires_at = now() WHERE secret_hash = sha256($1::bytea)`,
		[]byte(revoked["expired"]))
	ended := time.Now()
	want(t, tenant.Client().With(successor).Get("/v1/refunds/K"), "200")
	revoked["unknown"], revoked["none"], revoked["cut"], revoked["longer"] = "no-such-key", "",
		tenant.Key[:len(tenant.Key)-1], tenant.Key+"x"
	for name, key := range revoked {
		for i := range 2 {
			c := tenant.At(i).With(key)
			for c.Get("/v1/refunds/K").Status == http.StatusOK {
				if time.Since(ended) > 5*time.Second {
					t.Fatalf("%s: still served after 5 s", name)
				}
				time.Sleep(50 * time.Millisecond)
			}
			unchanged(t, tenant, func() {
				for _, answer := range []harness.Answer{
					c.Get("/v1/refunds/K"), c.Get("/v1/refunds"), c.Get("/v1/orders/P"), c.Refund("K",
						"P", 777), c.Refund("L", "P", 777),
					c.Put(harness.OrderPath("N"), harness.Fields{"currency": "EUR", "captured_cents": 1}),
					c.Post(harness.AuthorizationPath("L")+"/revoke", harness.Fields{}),
				} {
					want(t, answer, "unauthenticated")
					hides(t, name, answer, receipt)
				}
			})
		}
	}
	want(t, tenant.Client().Refund("L", "P", 777), "processed")
}

func TestA46_KeysWithoutTheScope_BindNothing(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	receipt := withSecrets(t, tenant)
	acts := map[string]func(harness.Client) harness.Answer{
		"orders:write": func(c harness.Client) harness.Answer {
			return c.Put(harness.OrderPath("P"), harness.Fields{"captured_cents": 8888})
		},
		"authorizations:write": func(c harness.Client) harness.Answer {
			return c.Post(harness.AuthorizationPath("L")+"/revoke", harness.Fields{})
		},
		"refunds:write": func(c harness.Client) harness.Answer { return c.Refund("L", "P", 777) },
		"read":          func(c harness.Client) harness.Answer { return c.Get("/v1/refunds/K") },
	}
	for scope := range acts {
		key := tenant.NewKey(scope)
		unchanged(t, tenant, func() {
			for other, act := range acts {
				if other == scope {
					continue
				}
				answer := act(tenant.Client().With(key))
				want(t, answer, "forbidden")
				hides(t, scope, answer, receipt)
			}
		})
	}
	want(t, tenant.Client().With(tenant.NewKey("refunds:write")).Refund("L", "P", 777), "processed")
}

func TestA46_RateLimited_BindsNothing(t *testing.T) {
	t.Parallel()
	shared := harness.Shared(t)
	limited := &harness.Service{DB: shared.DB}
	limited.AddServer(t, "--rate-limit", "3")
	tenant := shared.Tenant(t)
	receipt := withSecrets(t, tenant)
	c := tenant.Client()
	c.URL = limited.Servers[0].URL
	answer := c.Get("/v1/refunds/K")
	for range 10 {
		if answer.Status != http.StatusOK {
			break
		}
		if answer.Header.Get("RateLimit") == "" || answer.Header.Get("RateLimit-Policy") != `"key";q=3;w=60` {
			t.Errorf("rate limit headers: %v", answer.Header)
		}
		answer = c.Get("/v1/refunds/K")
	}
	want(t, answer, "rate_limited")
	unchanged(t, tenant, func() {
		for _, answer := range []harness.Answer{c.Refund("L", "P", 777), c.Refund("K", "P", 777),
			c.Get("/v1/refunds/K")} {
			want(t, answer, "rate_limited")
			hides(t, "429", answer, receipt)
			if answer.Header.Get("RateLimit") == "" {
				t.Errorf("no RateLimit header: %v", answer.Header)
			}
		}
	})
	want(t, tenant.Client().Refund("L", "P", 777), "processed")
}

func TestA53_OnePayment_BelongsToOneOrder(t *testing.T) {
	t.Parallel()
	service := harness.Shared(t)
	a, b := service.Tenant(t), service.Tenant(t)
	register := func(c harness.Client, order, provider, ref string) harness.Answer {
		return c.Put(harness.OrderPath(order),
			harness.Fields{"currency": "EUR", "captured_cents": 100, "provider": provider, "provider_payment_ref": ref})
	}
	for _, provider := range []string{"simulator", "stripe"} {
		ref := "pi-" + a.ID
		order := "P-" + provider
		want(t, register(a.Client(), order, provider, ref), "201")
		want(t, register(a.Client(), order, provider, ref), "200")
		unchanged(t, a, func() {
			want(t, register(a.Client(), "Q-"+provider, provider, ref),
				"payment_already_registered")
		})
		unchanged(t, b, func() {
			for _, name := range []string{order, "Q-" + provider} {
				answer := register(b.Client(), name, provider, ref)
				want(t, answer, "payment_already_registered")
				if strings.Contains(string(answer.Body), a.ID) {
					t.Errorf("the answer names the other tenant: %s", answer.Body)
				}
			}
		})
		unchanged(t, a, func() { want(t, register(a.Client(), order, provider, ref+"-other"), "order_immutable") })
	}
	// At once: ten orders of two tenants, one payment.
	for i := range 20 {
		answers := make([]harness.Answer, 10)
		together(len(answers), func(j int) {
			answers[j] = register([]*harness.Tenant{a, b}[j%2].At(j/2), fmt.Sprintf("R-%d-%d", i, j), "stripe",
				fmt.Sprint("race-", a.ID, i))
		})
		if diff := cmp.Diff(map[string]int{"201": 1, "payment_already_registered": 9}, tally(answers)); diff != "" {
			t.Errorf("round %d: %s", i, diff)
		}
	}
	// Without a provider there is no payment to share.
	for name, body := range map[string]harness.Fields{
		"ledger with a payment": {"currency": "EUR", "captured_cents": 1, "provider": "ledger",
			"provider_payment_ref": "x"},
		"no provider, but a payment":  {"currency": "EUR", "captured_cents": 1, "provider_payment_ref": "x"},
		"simulator without a payment": {"currency": "EUR", "captured_cents": 1, "provider": "simulator"},
		"stripe without a payment":    {"currency": "EUR", "captured_cents": 1, "provider": "stripe"},
	} {
		unchanged(t, a, func() {
			answer := a.Client().Put(harness.OrderPath("S-"+strings.Fields(name)[0]), body)
			want(t, answer, "invalid_request")
		})
	}
}
