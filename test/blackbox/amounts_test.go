package blackbox

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

const largest = 9007199254740991 // 2^53 - 1

// raw sends a body as it is.
func raw(c harness.Client, method, path, body string) harness.Answer {
	return c.Do(harness.Request{Method: method, Path: path, Body: []byte(body)})
}

// fieldErrors are a problem's field errors as "pointer code".
func fieldErrors(t *testing.T, a harness.Answer) string {
	t.Helper()
	var list []string
	for _, e := range harness.Read[harness.Problem](t, a).Errors {
		list = append(list, e.Pointer+" "+e.Code)
	}
	return strings.Join(list, ", ")
}

// refused sends an amount as JSON text to every route that takes one; each must refuse it and change nothing, and the
// corrected body must then work under the same key.
func refused(t *testing.T, tenant *harness.Tenant, name, amount, code, field string) {
	t.Helper()
	member := `,"amount_cents":` + amount
	if amount == "" {
		member = ""
	}
	key := "K-" + strings.NewReplacer(" ", "-", "^", "_", "+", ".").Replace(name)
	for _, r := range []struct{ method, path, body, pointer string }{
		{http.MethodPost, "/v1/refunds", `{"operation_id":"` + key + `","order_id":"P"` + member + `}`,
			"/amount_cents"},
		{http.MethodPut, "/v1/authorizations/" + key, `{"case_id":"c","order_id":"P","approved_by":"ada"` + member +
			`}`, "/amount_cents"},
		{http.MethodPut, "/v1/orders/" + key, `{"currency":"EUR"` + strings.Replace(member, "amount", "captured", 1) +
			`}`, "/captured_cents"},
	} {
		unchanged(t, tenant, func() {
			a := raw(tenant.Client(), r.method, r.path, r.body)
			want(t, a, code)
			if got := fieldErrors(t, a); code == "invalid_request" && got != r.pointer+" "+field {
				t.Errorf("%s %s: errors %q, want %s %s", r.method, r.body, got, r.pointer, field)
			}
		})
	}
	want(t, tenant.Client().Refund(key, "P", 1), "processed")
	if n := tenant.Movements(key); n != 1 {
		t.Errorf("%s: the corrected refund moved money %d times", name, n)
	}
}

func TestA6_AmountsBelowOne_AreRefusedAndBindNothing(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	for name, amount := range map[string]string{
		"minus one": "-1", "zero": "0", "minus zero": "-0", "minus many": "-9007199254740991", "least": fmt.Sprint(math.MinInt64),
		"below the least": "-9223372036854775809",
	} {
		refused(t, tenant, name, amount, "invalid_request", "out_of_range")
	}
}

func TestA7_NoAmount_IsNeverTheFullAmount(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	refused(t, tenant, "absent", "", "invalid_request", "required")
	refused(t, tenant, "null", "null", "invalid_request", "required")
	refused(t, tenant, "zero", "0", "invalid_request", "out_of_range")
	for name, amount := range map[string]string{"empty text": `""`, "false": "false", "empty list": "[]",
		"empty object": "{}"} {
		refused(t, tenant, name, amount, "malformed_request", "")
	}
}

func TestA14_Numbers_AreExactOrRefused(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	for name, amount := range map[string]string{
		"fraction": "10.5", "another fraction": "51.9", "zero fraction": "10.0", "exponent": "1e2", "upper exponent": "1E2",
		"negative exponent": "100e-1", "text": `"4999"`, "padded": "007", "plus": "+7", "hex": "0x10", "underscore": "1_000", "NaN": "NaN",
		"infinity": "Infinity", "minus": "-", "list": "[1]", "object": `{"value":1}`, "true": "true", "dot": "1.", "leading dot": ".5",
		"almost one": "0.9999999999999999999999", "full width": "１",
	} {
		refused(t, tenant, name, amount, "malformed_request", "")
	}
	for name, amount := range map[string]string{"2^53": "9007199254740992", "2^53+1": "9007199254740993",
		"thirty digits": strings.Repeat("9", 30)} {
		refused(t, tenant, name, amount, "invalid_request", "out_of_range")
	}
}

func TestA14_TheLargestAmounts_AreExact(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	c := tenant.Client()
	for i, cents := range []int64{largest, largest - 1, 4503599627370497} {
		order, key := fmt.Sprint("P", i), fmt.Sprint("K", i)
		tenant.Order(order, cents)
		tenant.Approve(key, order, cents)
		for _, a := range []harness.Answer{c.Get(harness.OrderPath(order)), c.Get(harness.AuthorizationPath(key)),
			c.Refund(key, order, cents), c.Get(harness.RefundPath(key)), c.Get(harness.RefundPath(key) + "/events"),
			c.Get("/v1/refunds?order_id=" + order)} {
			if !strings.Contains(string(a.Body), fmt.Sprint("_cents\":", cents)) {
				t.Errorf("%d does not come back exactly: %s", cents, a.Body)
			}
		}
		wantMoved(t, tenant, order, cents)
	}
}

func TestA15_AmountsBeyondTheirType_AreRefused(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 10000)
	for name, amount := range map[string]string{
		"2^63-1": "9223372036854775807", "2^63": "9223372036854775808", "2^64": "18446744073709551616", "2^64+1": "18446744073709551617",
		"2^32+1 times 2^32": "18446744078004518912",
	} {
		refused(t, tenant, name, amount, "invalid_request", "out_of_range")
	}
}

func TestA15_SumsThatWouldWrap_AreRefused(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	for name, c := range map[string]struct {
		captured, before int64 // before: how many of the largest amount are refunded already
		fit              int
	}{
		"two beyond 2^53":       {largest, 0, 1},
		"many beyond 2^63":      {math.MaxInt64, 1020, 4},
		"one below the brim":    {math.MaxInt64, 1023, 1},
		"nothing left but 1023": {math.MaxInt64, 1024, 0},
	} {
		order := strings.NewReplacer(" ", "-", "^", "_").Replace(name)
		tenant.Load([]string{order}, c.captured)
		for _, sql := range loadedRefunds(tenant, order+"-loaded-", order, c.before, largest) {
			tenant.Exec(sql)
		}
		answers := make([]harness.Answer, 12)
		together(len(answers), func(i int) {
			answers[i] = tenant.At(i).Refund(fmt.Sprint(order, "-", i),
				order, largest)
		})
		wanted := map[string]int{"processed": c.fit, "amount_exceeds_refundable": len(answers) - c.fit}
		if c.fit == 0 {
			delete(wanted, "processed")
		}
		if diff := cmp.Diff(wanted, tally(answers)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		got := harness.Read[harness.Order](t, tenant.Client().Get(harness.OrderPath(order)))
		if refunded := (c.before + int64(c.fit)) * largest; got.RefundedCents != refunded ||
			got.RefundableCents != c.captured-refunded {
			t.Errorf("%s: refunded %d, refundable %d, want %d refunded", name, got.RefundedCents, got.RefundableCents,
				refunded)
		}
	}
}

func TestA16_AnotherCurrencyThanTheOrders_IsRefused(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	c := tenant.Client()
	for currency, cents := range map[string]int64{"JPY": 5800, "KWD": 1234, "EUR": 4999, "HRK": 700, "CLF": 12345,
		"ISK": 99} {
		order := "P-" + currency
		if a := c.Put(harness.OrderPath(order),
			harness.Fields{"currency": currency, "captured_cents": 2 * cents}); a.Status != http.StatusCreated {
			t.Errorf("order in %s: %d %s", currency, a.Status, a.Body)
			continue
		}
		refund := harness.Fields{"operation_id": "K-" + currency, "order_id": order, "amount_cents": cents}
		approval := harness.Fields{"case_id": "c", "order_id": order, "amount_cents": cents, "approved_by": "ada"}
		unchanged(t, tenant, func() {
			for _, other := range []string{"USD", "BHD", "KRW"} {
				refund["currency"], approval["currency"] = other, other
				want(t, c.Post("/v1/refunds", refund), "currency_mismatch")
				want(t, c.Put(harness.AuthorizationPath("K-"+currency), approval), "currency_mismatch")
			}
			for _, odd := range []string{strings.ToLower(currency), "XXQ", "EURO", "", " EUR", "E\u00dcR"} {
				refund["currency"] = odd
				want(t, c.Do(harness.Request{Method: http.MethodPost, Path: "/v1/refunds", Body: harness.JSON(refund)}),
					"invalid_request")
			}
		})
		refund["currency"] = currency
		a := c.Post("/v1/refunds", refund)
		want(t, a, "processed")
		if got := harness.Read[harness.Receipt](t, a); got.AmountCents != cents || got.Currency != currency {
			t.Errorf("%d %s came back as %d %s", cents, currency, got.AmountCents, got.Currency)
		}
		wantMoved(t, tenant, order, cents)
	}
}
