package escalations

import (
	"cmp"
	"slices"
	"time"
)

// Policy is what may be approved without a person, and who looks at everything else. It is read from a file
// (ReadPolicy) and never changed: another version of it is another Policy.
type Policy struct {
	Version      string
	Queues       map[string]time.Duration // by name: how soon somebody looks
	HumanQueue   string                   // of an explicit wish for a person
	DefaultQueue string                   // of all that has no queue of its own
	Categories   map[Category]string      // the queue of each
	Rules        []Rule
}

// Rule is an authority to approve: what it covers, and how far it goes. Amounts are minor units of the request's
// currency.
type Rule struct {
	ID          string
	ReasonCodes []string
	Currencies  []string      // ISO 4217
	MaxAmount   int64         // of one request
	MaxCase     int64         // of all that was approved in the case, this request included
	MaxOrder    int64         // of all that was approved for the order, this request included
	Within      time.Duration // of the order's registration; 0 sets no limit
	BeyondQueue string        // of what it covers and does not allow; empty means the default queue
	Description string        // for people
}

// covers reports whether the rule speaks of the request at all.
func (r Rule) covers(f Facts) bool {
	return slices.Contains(r.ReasonCodes, f.ReasonCode) && slices.Contains(r.Currencies, f.Currency)
}

// Category is a subject that always goes to a queue of its own.
type Category string

// The categories, the gravest first: of several, the first one's queue is taken.
const (
	CategoryViolenceThreat    Category = "violence_threat"
	CategorySelfHarm          Category = "self_harm"
	CategoryFraudAllegation   Category = "fraud_allegation"
	CategoryLegalOrRegulatory Category = "legal_or_regulatory"
	CategoryHarassment        Category = "harassment"
)

// Categories returns all categories, the gravest first.
func Categories() []Category {
	return []Category{
		CategoryViolenceThreat, CategorySelfHarm, CategoryFraudAllegation, CategoryLegalOrRegulatory, CategoryHarassment,
	}
}

// Facts are all that a decision is made of. What a customer wrote, how it sounds, and how sure a model is are not among
// them.
type Facts struct {
	AskedForHuman  bool
	Categories     []Category
	ReasonCode     string
	Currency       string // ISO 4217
	AmountCents    int64  // minor units
	CaseCents      int64  // approved in this case before, in this currency
	CaseMixed      bool   // the case has approvals in another currency: they cannot be summed
	OrderCents     int64  // approved for this order before
	OrderAge       time.Duration
	Refundable     int64 // what the order can still give back
	OpenOperations int   // of the order: reserved, pending, or in front of a human
	Repeated       bool  // the case asked for a refund of this order before
}

// Trigger is why a case goes to a person. A category is a trigger of its own.
type Trigger string

// The triggers.
const (
	TriggerAskedForHuman Trigger = "asked_for_human"
	TriggerRepeated      Trigger = "repeated_request"  // another refund of this order in this case
	TriggerSilent        Trigger = "policy_silent"     // no rule covers it
	TriggerAmbiguous     Trigger = "policy_ambiguous"  // several do
	TriggerLimit         Trigger = "beyond_limit"      // more than the rule's authority
	TriggerWindow        Trigger = "beyond_window"     // later than the rule allows
	TriggerRemainder     Trigger = "beyond_refundable" // more than the order can give back
	TriggerOpen          Trigger = "operation_open"    // a refund of the order has no end yet
	TriggerAttention     Trigger = "needs_attention"   // an operation waits for a human
	TriggerToolFailure   Trigger = "tool_failure"      // an agent's tool could not do its work
	TriggerUnknown       Trigger = "outcome_unknown"   // an agent could not learn what became of a refund
	TriggerOther         Trigger = "other"
)

// Decision is what the policy says of a request.
type Decision struct {
	Approved      bool
	Rule          string  // that decided; empty where none did
	Trigger       Trigger // empty where approved
	Queue         string  // empty where approved
	PolicyVersion string
}

// Decide applies the policy to the facts. The same facts always give the same decision. The order: an explicit wish for
// a person, a category, coverage, the authority and what stands in its way; only what passes all of them is approved.
func (p *Policy) Decide(f Facts) Decision {
	d := Decision{PolicyVersion: p.Version}
	if f.AskedForHuman {
		return d.escalate("asked_for_human", TriggerAskedForHuman, p.HumanQueue)
	}
	if c, found := gravest(f.Categories); found {
		return d.escalate("category", Trigger(c), p.Categories[c])
	}
	covering := p.covering(f)
	switch len(covering) {
	case 0:
		return d.escalate("", TriggerSilent, p.DefaultQueue)
	case 1:
	default:
		return d.escalate("", TriggerAmbiguous, p.DefaultQueue)
	}
	rule := covering[0]
	if t := rule.refuses(f); t != "" {
		return d.escalate(rule.ID, t, cmp.Or(rule.BeyondQueue, p.DefaultQueue))
	}
	d.Approved, d.Rule = true, rule.ID
	return d
}

func (d Decision) escalate(rule string, t Trigger, queue string) Decision {
	d.Rule, d.Trigger, d.Queue = rule, t, queue
	return d
}

func (p *Policy) covering(f Facts) []Rule {
	var covering []Rule
	for _, r := range p.Rules {
		if r.covers(f) {
			covering = append(covering, r)
		}
	}
	return covering
}

// refuses returns what stands in the way of an approval; empty where nothing does. Sums are compared by what is left,
// so that none wraps.
func (r Rule) refuses(f Facts) Trigger {
	switch {
	case f.Repeated:
		return TriggerRepeated
	case f.AmountCents > r.MaxAmount, f.AmountCents > r.MaxCase-f.CaseCents, f.CaseMixed,
		f.AmountCents > r.MaxOrder-f.OrderCents:
		return TriggerLimit
	case r.Within > 0 && f.OrderAge > r.Within:
		return TriggerWindow
	case f.OpenOperations > 0:
		return TriggerOpen
	case f.AmountCents > f.Refundable:
		return TriggerRemainder
	default:
		return ""
	}
}

// gravest returns the first of the categories that are named.
func gravest(named []Category) (Category, bool) {
	for _, c := range Categories() {
		if slices.Contains(named, c) {
			return c, true
		}
	}
	return "", false
}

// queueOf returns the queue of a case that is handed over for a trigger.
func (p *Policy) queueOf(t Trigger) string {
	if t == TriggerAskedForHuman {
		return p.HumanQueue
	}
	return cmp.Or(p.Categories[Category(t)], p.DefaultQueue)
}

// within returns how soon somebody looks at a queue.
func (p *Policy) within(queue string) time.Duration { return p.Queues[queue] }

// NoPolicy approves nothing: without a policy file, every request goes to a person.
func NoPolicy() *Policy {
	p := &Policy{
		Version: "none", HumanQueue: "people", DefaultQueue: "refunds", Categories: make(map[Category]string),
		Queues: map[string]time.Duration{"people": time.Hour, "refunds": 8 * time.Hour},
	}
	for _, c := range Categories() {
		p.Queues[string(c)], p.Categories[c] = time.Hour, string(c)
	}
	return p
}
