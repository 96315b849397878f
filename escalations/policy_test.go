package escalations

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// sample is a policy of two rules that do not overlap.
const sample = `
version: "2026-12-01"
queues:
  people: {look_within: 1h}
  refunds: {look_within: 8h}
  safety: {look_within: 10m}
  care: {look_within: 10m}
  fraud: {look_within: 30m}
  legal: {look_within: 24h}
  conduct: {look_within: 24h}
  seniors: {look_within: 4h}
human_queue: people
default_queue: refunds
categories:
  violence_threat: safety
  self_harm: care
  fraud_allegation: fraud
  legal_or_regulatory: legal
  harassment: conduct
rules:
  - id: damaged
    reason_codes: [damaged, not_received]
    currencies: [EUR, USD]
    max_amount_cents: 5000
    max_case_cents: 6000
    max_order_cents: 8000
    within: 720h
    beyond_queue: seniors
  - id: late
    description: A parcel that came late.
    reason_codes: [late]
    currencies: [EUR]
    max_amount_cents: 1000
`

func readSample(t *testing.T) *Policy {
	t.Helper()
	p, err := ReadPolicy(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// good are facts that the rule "damaged" approves.
var good = Facts{ReasonCode: "damaged", Currency: "EUR", AmountCents: 4000, OrderAge: time.Hour, Refundable: 10000}

func escalated(rule string, t Trigger, queue string) Decision {
	return Decision{Rule: rule, Trigger: t, Queue: queue, PolicyVersion: "2026-12-01"}
}

func TestDecide_EachRule(t *testing.T) {
	t.Parallel()
	approved := Decision{Approved: true, Rule: "damaged", PolicyVersion: "2026-12-01"}
	for name, c := range map[string]struct {
		change func(*Facts)
		want   Decision
	}{
		"approved":              {func(*Facts) {}, approved},
		"exactly the amount":    {func(f *Facts) { f.AmountCents = 5000 }, approved},
		"exactly the case":      {func(f *Facts) { f.CaseCents = 2000 }, approved},
		"exactly the order":     {func(f *Facts) { f.OrderCents = 4000 }, approved},
		"exactly the window":    {func(f *Facts) { f.OrderAge = 720 * time.Hour }, approved},
		"exactly the remainder": {func(f *Facts) { f.Refundable = 4000 }, approved},
		"another rule": {func(f *Facts) { f.ReasonCode, f.AmountCents = "late", 1000 },
			Decision{Approved: true, Rule: "late", PolicyVersion: "2026-12-01"}},
		"asked for a person": {func(f *Facts) { f.AskedForHuman = true },
			escalated("asked_for_human", TriggerAskedForHuman, "people")},
		"no rule for the reason": {func(f *Facts) { f.ReasonCode = "bored" }, escalated("", TriggerSilent, "refunds")},
		"no rule for the currency": {func(f *Facts) { f.ReasonCode, f.Currency = "late", "USD" },
			escalated("", TriggerSilent, "refunds")},
		"beyond the amount": {func(f *Facts) { f.AmountCents = 5001 },
			escalated("damaged", TriggerLimit, "seniors")},
		"beyond the case": {func(f *Facts) { f.CaseCents = 2001 },
			escalated("damaged", TriggerLimit, "seniors")},
		"beyond the order": {func(f *Facts) { f.OrderCents = 4001 },
			escalated("damaged", TriggerLimit, "seniors")},
		"beyond any sum": {func(f *Facts) { f.AmountCents = 1<<63 - 1; f.CaseCents = 1 << 62 },
			escalated("damaged", TriggerLimit, "seniors")},
		"a case in two currencies": {func(f *Facts) { f.CaseMixed = true },
			escalated("damaged", TriggerLimit, "seniors")},
		"beyond the default of a rule": {func(f *Facts) { f.ReasonCode, f.AmountCents, f.CaseCents = "late", 1000, 1 },
			escalated("late", TriggerLimit, "refunds")},
		"beyond the window": {func(f *Facts) { f.OrderAge = 720*time.Hour + 1 },
			escalated("damaged", TriggerWindow, "seniors")},
		"an open operation": {func(f *Facts) { f.OpenOperations = 1 },
			escalated("damaged", TriggerOpen, "seniors")},
		"beyond the remainder": {func(f *Facts) { f.Refundable = 3999 },
			escalated("damaged", TriggerRemainder, "seniors")},
		"asked before": {func(f *Facts) { f.Repeated = true },
			escalated("damaged", TriggerRepeated, "seniors")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := good
			c.change(&f)
			if diff := cmp.Diff(c.want, readSample(t).Decide(f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Each fact, laid upon all that come after it, decides.
func TestDecide_TheOrderOfRules(t *testing.T) {
	t.Parallel()
	p := readSample(t)
	layers := []struct {
		trigger Trigger
		lay     func(*Facts)
	}{
		{TriggerRemainder, func(f *Facts) { f.Refundable = 0 }},
		{TriggerOpen, func(f *Facts) { f.OpenOperations = 3 }},
		{TriggerWindow, func(f *Facts) { f.OrderAge = 10_000 * time.Hour }},
		{TriggerLimit, func(f *Facts) { f.CaseCents = 1 << 40 }},
		{TriggerRepeated, func(f *Facts) { f.Repeated = true }},
		{TriggerSilent, func(f *Facts) { f.ReasonCode = "bored" }},
		{Trigger(CategoryHarassment), func(f *Facts) { f.Categories = append(f.Categories, CategoryHarassment) }},
		{Trigger(CategoryLegalOrRegulatory),
			func(f *Facts) { f.Categories = append(f.Categories, CategoryLegalOrRegulatory) }},
		{Trigger(CategoryFraudAllegation),
			func(f *Facts) { f.Categories = append(f.Categories, CategoryFraudAllegation) }},
		{Trigger(CategorySelfHarm), func(f *Facts) { f.Categories = append(f.Categories, CategorySelfHarm) }},
		{Trigger(CategoryViolenceThreat),
			func(f *Facts) { f.Categories = append(f.Categories, CategoryViolenceThreat) }},
		{TriggerAskedForHuman, func(f *Facts) { f.AskedForHuman = true }},
	}
	f := good
	for _, l := range layers {
		l.lay(&f)
		if d := p.Decide(f); d.Trigger != l.trigger || d.Approved {
			t.Errorf("%+v: %+v, want %s", f, d, l.trigger)
		}
	}
}

func TestDecide_Properties(t *testing.T) {
	t.Parallel()
	p := readSample(t)
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			AskedForHuman:  rapid.Bool().Draw(t, "asked"),
			Categories:     rapid.SliceOfN(rapid.SampledFrom(Categories()), 0, 3).Draw(t, "categories"),
			ReasonCode:     rapid.SampledFrom([]string{"damaged", "late", "DAMAGED", "bored", ""}).Draw(t, "reason"),
			Currency:       rapid.SampledFrom([]string{"EUR", "USD", "JPY"}).Draw(t, "currency"),
			AmountCents:    rapid.Int64Range(1, maxAmount).Draw(t, "amount"),
			CaseCents:      rapid.Int64Range(0, 10000).Draw(t, "case"),
			OrderCents:     rapid.Int64Range(0, 10000).Draw(t, "order"),
			OrderAge:       time.Duration(rapid.Int64Range(0, int64(2000*time.Hour)).Draw(t, "age")),
			Refundable:     rapid.Int64Range(0, 10000).Draw(t, "refundable"),
			OpenOperations: rapid.IntRange(0, 2).Draw(t, "open"),
			Repeated:       rapid.Bool().Draw(t, "repeated"),
			CaseMixed:      rapid.Bool().Draw(t, "mixed"),
		}
		d := p.Decide(f)
		if again := p.Decide(f); again != d {
			t.Fatalf("%+v and %+v of the same facts", d, again)
		}
		switch {
		case d.Approved == (d.Trigger != ""), d.Approved == (d.Queue != ""), d.PolicyVersion == "":
			t.Fatalf("half a decision: %+v", d)
		case f.AskedForHuman && d.Trigger != TriggerAskedForHuman:
			t.Fatalf("an explicit wish for a person came second: %+v", d)
		case !f.AskedForHuman && len(f.Categories) > 0 && p.Categories[Category(d.Trigger)] != d.Queue:
			t.Fatalf("a category is not in its own queue: %+v", d)
		case d.Approved && (f.AmountCents > 5000 || f.AmountCents+f.CaseCents > 6000 ||
			f.AmountCents+f.OrderCents > 8000 ||
			f.AmountCents > f.Refundable || f.OpenOperations > 0 || f.Repeated || f.CaseMixed):
			t.Fatalf("approved beyond the authority: %+v", d)
		}
		if _, found := p.Queues[d.Queue]; !d.Approved && !found {
			t.Fatalf("queue %q does not exist", d.Queue)
		}
	})
}

func TestNoPolicy_ApprovesNothingAndHasNoFault(t *testing.T) {
	t.Parallel()
	p := NoPolicy()
	if faults := p.faults(); len(faults) > 0 {
		t.Error(faults)
	}
	if d := p.Decide(good); d.Approved || d.Queue != "refunds" || d.PolicyVersion != "none" {
		t.Errorf("%+v", d)
	}
}
