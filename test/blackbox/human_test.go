package blackbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"refundd/test/harness"
)

// The breaker spares a provider; a person who overrides it looks all the same.
func TestA61_TheBreakerIsOpen_AHumanLooksAllTheSame(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--provider-breaker-failures", "1", "--provider-breaker-open", "1h")
	overdue(p, "K", "P0") // whose lost answer opened it
	p.provider.Heal()
	want(t, p.Refund("L", "P1", 1), "provider_unavailable")
	p.resolvable()
	for _, override := range []bool{true, false} {
		want(t, p.resolve("K", "failed", harness.Fields{"override": override}), "provider_disagrees")
		p.stands("K", "needs_attention", "outcome_overdue")
		p.resolvable()
	}
	want(t, p.resolve("K", "succeeded"), "200")
	paid := p.executed("K")[p.ProviderKey("K")]
	if r := p.stands("K", "succeeded", ""); deref(r.ProviderRefundID) != paid.RefundID {
		t.Errorf("it is %s, and %s at the provider", deref(r.ProviderRefundID), paid.RefundID)
	}
	p.Service.Audit(t)
}

// humanEvents are an operation's decisions.
func (p *paying) humanEvents(operation string) (found []happening) {
	p.t.Helper()
	for _, e := range p.timeline(operation) {
		if e.Event != nil && e.Event.Kind == "human" {
			found = append(found, e)
		}
	}
	return found
}

// A name that a person types is a claim. It is kept as evidence, proves nothing and is in nobody's way.
func TestA61_ATypedName_IsNoProof(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	other := &paying{Tenant: p.Service.OpenTenant(t), t: t, provider: p.provider}
	other.Client = other.Tenant.Client()
	other.Pay(harness.Payment{OrderID: "Q", Cents: 10000})
	p.refund("L", "P1", "processed")
	known := deref(p.read("L").ProviderRefundID)

	// Another tenant's refund is executed, and its answer lost: its name is the provider's alone.
	p.provider.Fault("drop_after", harness.Times(1))
	other.refund("T", "Q", "pending")
	theirs := ""
	for key, x := range p.provider.Ledger() {
		if key == other.ProviderKey("T") {
			theirs = x.RefundID
		}
	}
	for i, typed := range []string{known, theirs, "re_nowhere", "re \u202e \u0085 x"} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", 2+i)
		p.provider.Fault("error_before", harness.Times(1))
		p.provider.Fault("drop_after", harness.Times(0))
		overdue(p, operation, order)
		p.provider.Heal()
		p.resolvable()
		want(t, p.resolve(operation, "succeeded", harness.Fields{"provider_refund_id": typed}), "200")
		want(t, p.resolve(operation, "succeeded", harness.Fields{"provider_refund_id": typed}), "200")
		if r := p.stands(operation, "succeeded", ""); r.ProviderRefundID != nil {
			t.Errorf("%q is stored as %q", typed, *r.ProviderRefundID)
		}
		events := p.humanEvents(operation)
		if len(events) != 1 || events[0].Event.Detail["claimed_provider_refund_id"] != typed {
			t.Errorf("the claim %q is not in the history once: %+v", typed, events)
		}
	}
	if r := p.read("L"); deref(r.ProviderRefundID) != known {
		t.Errorf("L is %s, was %s", deref(r.ProviderRefundID), known)
	}
	other.lookUp("T")
	if r := other.stands("T", "succeeded", ""); deref(r.ProviderRefundID) != theirs {
		t.Errorf("T is %s, want %s", deref(r.ProviderRefundID), theirs)
	}
	p.Service.Audit(t)
	// What rests on these words alone is named, though it contradicts nothing.
	r := harness.Command(t, p.Service.DB.ServiceURL, "audit")
	words := strings.Count(r.Stdout, "unproven tenant="+p.ID+" ")
	if r.ExitCode != 0 || words != 4 ||
		!strings.Contains(r.Stdout, "\n4 refunds stand as paid on a person's word alone") {
		t.Errorf("audit exits %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	var report struct {
		Count    int64               `json:"unproven_count"`
		Unproven []map[string]string `json:"unproven"`
	}
	r = harness.Command(t, p.Service.DB.ServiceURL, "audit", "--json")
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil || report.Count != 4 || len(report.Unproven) != 4 ||
		report.Unproven[0]["tenant_id"] != p.ID || report.Unproven[0]["operation_id"] == "" {
		t.Errorf("%v: %s", err, r.Stdout)
	}
}

// byHand has the provider execute a refund under another key, with an operation's name on it.
func (p *paying) byHand(operation, order string, cents int64) {
	p.t.Helper()
	p.provider.Refund("by-hand-"+operation,
		harness.Fields{"payment_ref": p.Ref(order), "amount_cents": cents, "currency": "EUR",
			"metadata": map[string]string{"tenant_id": p.ID, "operation_id": operation}})
}

// names fails the test where a text does not name every refund that the provider made of an order, with its amount.
func (p *paying) names(text, order string) {
	p.t.Helper()
	for _, x := range p.provider.Refunds() {
		if x.PaymentRef == p.Ref(order) &&
			!strings.Contains(text, fmt.Sprintf("%s %d %s", x.RefundID, x.AmountCents, x.Currency)) {
			p.t.Errorf("%s of %d %s is not named: %s", x.RefundID, x.AmountCents, x.Currency, text)
		}
	}
}

// Books that contradict themselves say neither that it succeeded nor that it failed.
func TestA61_ContradictoryBooks_NeedTheOverrideEitherWay(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for i, outcome := range []string{"succeeded", "failed"} {
		operation, order := fmt.Sprint("K", i), fmt.Sprint("P", i)
		overdue(p, operation, order)
		p.provider.Heal()
		p.byHand(operation, order, 4000)
		p.resolvable()
		want(t, p.resolve(operation, outcome), "provider_disagrees")
		p.stands(operation, "needs_attention", "outcome_overdue")
		p.resolvable()
		want(t, p.resolve(operation, outcome, harness.Fields{"override": true}), "200")
		p.stands(operation, outcome, map[string]string{"failed": "resolved_failed"}[outcome])
		event := p.humanEvents(operation)[0].Event
		if event.Detail["provider_shows"] != "contradictory" {
			t.Errorf("the decision tells %v", event.Detail)
		}
		p.names(event.Detail["refunds_shown"], order)
	}
	p.Service.Audit(t)
}

func TestA61_BlankEvidence_IsRefused(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	overdue(p, "K", "P0")
	p.provider.Heal()
	p.resolvable()
	for _, blank := range []string{" ", "\t\r\n", "\u00a0\u2003\u3000", "\u200b\u200d\ufeff", "\u2060\u00ad\u180e",
		"\u115f\u3164\uffa0",
		"\u2800", "\u034f\ufe0f", "\u202e\u2066", "\U000e0020"} {
		for _, member := range []string{"evidence", "resolved_by"} {
			a := p.resolve("K", "succeeded", harness.Fields{member: blank})
			want(t, a, "invalid_request")
			if faults := harness.Read[harness.Problem](t, a).Errors; len(faults) != 1 ||
				faults[0].Pointer != "/"+member {
				t.Errorf("%s %q: %s", member, blank, a.Body)
			}
		}
		a := p.Put(harness.AuthorizationPath("new"),
			harness.Fields{"case_id": "c", "order_id": "P1", "amount_cents": 1, "approved_by": blank})
		want(t, a, "invalid_request")
		want(t, p.Post(harness.AuthorizationPath("new")+"/revoke", harness.Fields{"revoked_by": blank}),
			"invalid_request")
	}
	p.stands("K", "needs_attention", "outcome_overdue")
	want(t, p.resolve("K", "succeeded", harness.Fields{"evidence": " \u200b票 "}), "200")
}

// Whoever is named, the API key acted.
func TestA61_TheKeyThatActed_StandsBesideTheName(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	overdue(p, "K", "P0")
	p.provider.Heal()
	p.resolvable()
	desk := p.With(p.NewKey("refunds:resolve,authorizations:write,read"))
	keyID := p.keyID(desk.Key)
	a := desk.Post(harness.RefundPath("K")+"/resolve",
		harness.Fields{"outcome": "succeeded", "evidence": "ticket 1", "resolved_by": "the CEO"})
	want(t, a, "200")
	if e := p.humanEvents("K")[0].Event; deref(e.Actor) != keyID || e.Detail["resolved_by"] != "the CEO" {
		t.Errorf("decided by %s: %v", deref(e.Actor), e.Detail)
	}
	p.shows("K", keyID, "the CEO")

	approval := harness.Fields{"case_id": "c", "order_id": "P1", "amount_cents": 1, "approved_by": "the CFO"}
	want(t, desk.Put(harness.AuthorizationPath("A"), approval), "201")
	want(t, p.Put(harness.AuthorizationPath("A"), approval), "200") // by another key: the first one approved it
	p.shows("A", keyID, "the CFO")
	want(t, desk.Post(harness.AuthorizationPath("A")+"/revoke",
		harness.Fields{"revoked_by": "the CTO", "reason": "a mistake"}), "200")
	p.shows("A", "actor="+keyID, "the CTO", "a mistake")
}

// keyID is the id of a key's secret.
func (p *paying) keyID(secret string) (id string) {
	p.t.Helper()
	err := p.Service.DB.Owner.QueryRow(p.t.Context(), `SELECT key_id FROM api_keys
		WHERE secret_hash = sha256($1::bytea)`, []byte(secret)).Scan(&id)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// shows fails the test where `refundd show` does not say so.
func (p *paying) shows(operation string, says ...string) {
	p.t.Helper()
	r := harness.Command(p.t, p.Service.DB.ServiceURL, "show", operation, "--tenant", p.ID, "--simulator-url",
		p.provider.URL)
	for _, s := range says {
		if r.ExitCode != 0 || !strings.Contains(r.Stdout, s) {
			p.t.Errorf("refundd show %s exits %d and does not say %q:\n%s%s", operation, r.ExitCode, s, r.Stdout,
				r.Stderr)
		}
	}
}

// What a person decided without anybody being able to check it is checked once the provider's listing must show it.
func TestA61_WhatNobodyCouldCheck_IsLookedAtAgainAfterTheLag(t *testing.T) {
	t.Parallel()
	p := newPaying(t, "--listing-lag", "1h") // so that no machine is slow enough to let it pass
	overdue(p, "K", "P0")
	want(t, p.resolve("K", "failed", harness.Fields{"override": true}), "200") // lookup_down
	p.stands("K", "failed", "resolved_failed")
	p.provider.Heal()
	if s := p.Service.Reconcile(t); s.Claimed != 0 {
		t.Errorf("looked at before the listing can show it: %+v", s)
	}
	p.Exec(`UPDATE refund_operations SET next_check_at = next_check_at - interval '1 hour 1 second'
		WHERE operation_id = 'K'`)
	if s := p.Service.Reconcile(t); s.NeedsAttention != 1 {
		t.Errorf("the run answers %+v", s)
	}
	p.stands("K", "needs_attention", "paid_after_failure")
	p.executed("K")
	p.Service.Audit(t)
}

// A settled refund of which the provider shows two, or another amount, keeps its state; a person hears of it.
func TestA62_ASettledRefundThatTheBooksContradict_IsTold(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"twice", "another amount"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaying(t)
			p.refund("K", "P0", "processed")
			if name == "twice" {
				p.byHand("K", "P0", 4000)
			} else {
				p.Exec(`UPDATE refund_operations SET amount_cents = 3999`)
			}
			for range 2 { // as long as it is so
				p.Service.Due(t)
				r := harness.Command(t, p.Service.DB.ServiceURL, append([]string{"reconcile"}, p.Service.Flags...)...)
				if r.ExitCode != 3 || !strings.Contains(r.Stderr, `"level":"WARN"`) {
					t.Errorf("the run exits %d: %s", r.ExitCode, r.Stderr)
				}
				p.names(r.Stderr, "P0")
				p.stands("K", "succeeded", "")
			}
			told := ""
			for _, e := range p.timeline("K") {
				if e.Event != nil && e.Event.Kind == "lookup" && deref(e.Event.ErrorKind) == "contradictory" {
					told = e.Event.Detail["refunds_shown"]
				}
			}
			p.names(told, "P0")
			p.shows("K", "WARNING: the provider's books say otherwise: contradictory")
			p.contradicted(1)
			p.lookUp("K") // over HTTP it is the refund as it stands
			p.stands("K", "succeeded", "")
			if name != "twice" {
				p.Exec(`UPDATE refund_operations SET amount_cents = 4000`)
				if s := p.reconcile(); s.ExitCode != 0 {
					t.Errorf("books that agree: %+v", s)
				}
				p.contradicted(0)
			}
			p.Service.Audit(t)
		})
	}
}

// contradicted waits for the metric of settled refunds that the books contradict.
func (p *paying) contradicted(n float64) {
	p.t.Helper()
	eventually(p.t, fmt.Sprint("the metric tells of ", n, " refunds"), func() bool {
		for _, s := range p.Service.Servers[0].Metrics(p.t) {
			if s.Name == "refundd_operations_contradicted" {
				return s.Value == n
			}
		}
		return false
	})
}
