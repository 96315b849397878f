package blackbox

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"refundd/test/harness"
)

func TestA47_WhatWasNotApproved_IsRefusedSeenAndChangesNothing(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	tenant := service.Tenant(t)
	c := tenant.Client()
	for _, order := range []string{"P", "Q"} {
		tenant.Order(order, 10000)
	}
	approve := func(key string, more harness.Fields) {
		body := harness.Fields{"case_id": "c", "order_id": "P", "amount_cents": 600, "approved_by": "ada"}
		for name, v := range more {
			body[name] = v
		}
		if a := c.Put(harness.AuthorizationPath(key), body); a.Status != http.StatusCreated {
			t.Errorf("approve %s: %d %s", key, a.Status, a.Body)
		}
	}
	approve("open", nil)
	approve("expired", harness.Fields{"expires_at": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)})
	approve("just-expired", harness.Fields{"expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	tenant.Exec(`UPDATE refund_authorizations SET expires_at = clock_timestamp() WHERE operation_id = 'just-expired'`)
	approve("revoked", nil)
	want(t, c.Post(harness.AuthorizationPath("revoked")+"/revoke",
		harness.Fields{"reason": "mistake", "revoked_by": "ada"}), "200")
	approve("revoked-without-body", nil)
	want(t, c.Do(harness.Request{Method: http.MethodPost, Path: harness.AuthorizationPath("revoked-without-body") +
		"/revoke", Valid: true}), "200")
	for name, refusal := range map[string]struct {
		key, order string
		cents      int64
		currency   string
		says       string
	}{
		"not approved":            {"nobody", "P", 600, "", "authorization_not_found"},
		"expired":                 {"expired", "P", 600, "", "authorization_expired"},
		"expired right now":       {"just-expired", "P", 600, "", "authorization_expired"},
		"revoked":                 {"revoked", "P", 600, "", "authorization_revoked"},
		"revoked, no body":        {"revoked-without-body", "P", 600, "", "authorization_revoked"},
		"revoked, other amount":   {"revoked", "P", 601, "", "authorization_revoked"},
		"revoked, other order":    {"revoked", "Q", 600, "", "authorization_revoked"},
		"a cent more":             {"open", "P", 601, "", "authorization_mismatch"},
		"a cent less":             {"open", "P", 599, "", "authorization_mismatch"},
		"all of it":               {"open", "P", 10000, "", "authorization_mismatch"},
		"another order":           {"open", "Q", 600, "", "authorization_mismatch"},
		"an order that is none":   {"open", "R", 600, "", "order_not_found"},
		"another currency":        {"open", "P", 600, "USD", "currency_mismatch"},
		"almost the same key":     {"Open", "P", 600, "", "authorization_not_found"},
		"beyond the capture, too": {"open", "P", 10001, "", "authorization_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			body := harness.Fields{"operation_id": refusal.key, "order_id": refusal.order,
				"amount_cents": refusal.cents}
			if refusal.currency != "" {
				body["currency"] = refusal.currency
			}
			before := counted(t, service.Servers[0], refusal.says)
			unchanged(t, tenant.For(t), func() {
				for range 2 {
					a := c.Post("/v1/refunds", body)
					want(t, a, refusal.says)
					ref := harness.Read[harness.Problem](t, a).DiagnosticRef
					if _, err := service.Servers[0].Logs.Await(5*time.Second, nil, ref, refusal.says); err != nil {
						t.Errorf("no log line: %v", err)
					}
				}
			})
			if after := counted(t, service.Servers[0], refusal.says); after != before+2 {
				t.Errorf("counted %v refusals before and %v after, want two more", before, after)
			}
		})
	}
	want(t, c.Refund("open", "P", 600), "processed")
	service.Audit(t)
}

// counted is how many calls to refund were refused with a code.
func counted(t *testing.T, s *harness.Server, code string) float64 {
	t.Helper()
	sum := 0.0
	for _, sample := range s.Metrics(t) {
		if strings.HasPrefix(sample.Name, "refundd_refunds_total") && sample.Labels["code"] == code {
			sum += sample.Value
		}
	}
	return sum
}

// An authorization that exists binds, also where the tenant requires none.
func TestA47_AnAuthorizationBinds_WhereNoneIsRequired(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	tenant.Order("P", 10000)
	tenant.Approve("K", "P", 600)
	c := tenant.Client()
	unchanged(t, tenant, func() {
		want(t, c.Refund("K", "P", 601), "authorization_mismatch")
		want(t, c.Put(harness.AuthorizationPath("K"),
			harness.Fields{"case_id": "case-7", "order_id": "P", "amount_cents": 601, "approved_by": "ada"}),
			"operation_id_conflict")
	})
	tenant.Exec(`UPDATE refund_authorizations SET expires_at = now() - interval '1 hour'
		WHERE tenant_id = $1`, tenant.ID)
	unchanged(t, tenant, func() { want(t, c.Refund("K", "P", 600), "authorization_expired") })
	want(t, c.Post(harness.AuthorizationPath("K")+"/revoke", harness.Fields{}), "200")
	unchanged(t, tenant, func() {
		want(t, c.Refund("K", "P", 600), "authorization_revoked")
		want(t, c.Post(harness.AuthorizationPath("K")+"/revoke", harness.Fields{"reason": "again"}), "200")
		want(t, c.Put(harness.AuthorizationPath("K"),
			harness.Fields{"case_id": "case-7", "order_id": "P", "amount_cents": 600, "approved_by": "ada"}),
			"authorization_revoked")
		want(t, c.Get(harness.RefundPath("K")), "refund_not_found")
	})
	if page := harness.Read[harness.List[harness.Refund]](t, c.Get("/v1/refunds")); len(page.Data) != 0 {
		t.Errorf("a withdrawn key is listed as a refund: %+v", page.Data)
	}
	want(t, c.Refund("L", "P", 600), "processed")
	wantMoved(t, tenant, "P", 600)
}

// Revocation and execution race at one constraint: exactly one wins.
func TestA47_RevocationAgainstExecution_HasOneWinner(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	orders := names("P", 100)
	var approved []harness.Approved
	for i, order := range orders {
		approved = append(approved, harness.Approved{OperationID: names("K", 100)[i], OrderID: order, Cents: 600})
	}
	tenant.Load(orders, 10000, approved...)
	for _, a := range approved {
		var refund, revocation harness.Answer
		together(2, func(i int) {
			if i == 0 {
				refund = tenant.At(0).Refund(a.OperationID, a.OrderID, a.Cents)
			} else {
				revocation = tenant.At(1).Post(harness.AuthorizationPath(a.OperationID)+"/revoke", harness.Fields{})
			}
		})
		switch refund.Says() + " " + revocation.Says() {
		case "processed already_executed":
			wantMoved(t, tenant, a.OrderID, 600)
		case "authorization_revoked 200":
			wantMoved(t, tenant, a.OrderID, 0)
		default:
			t.Errorf("refund %s, revocation %s", refund.Says(), revocation.Says())
		}
	}
}
