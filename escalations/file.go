package escalations

import (
	"bytes"
	"cmp"
	_ "embed" // the schema
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Schema is the JSON schema (2020-12) of a policy file.
//
//go:embed policy.schema.json
var Schema string

// maxPolicy bounds a policy file, in bytes.
const maxPolicy = 1 << 20

// policyFile is a policy as people write it.
type policyFile struct {
	Version      string               `yaml:"version"`
	Queues       map[string]queueFile `yaml:"queues"`
	HumanQueue   string               `yaml:"human_queue"`
	DefaultQueue string               `yaml:"default_queue"`
	Categories   map[Category]string  `yaml:"categories"`
	Rules        []ruleFile           `yaml:"rules"`
}

type queueFile struct {
	LookWithin string `yaml:"look_within"`
}

type ruleFile struct {
	ID             string   `yaml:"id"`
	Description    string   `yaml:"description"`
	ReasonCodes    []string `yaml:"reason_codes"`
	Currencies     []string `yaml:"currencies"`
	MaxAmountCents int64    `yaml:"max_amount_cents"`
	MaxCaseCents   int64    `yaml:"max_case_cents"`
	MaxOrderCents  int64    `yaml:"max_order_cents"`
	Within         string   `yaml:"within"`
	BeyondQueue    string   `yaml:"beyond_queue"`
}

// ReadPolicy reads a policy file, or returns every fault of it, each in a sentence.
func ReadPolicy(r io.Reader) (*Policy, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if len(text) > maxPolicy {
		return nil, fmt.Errorf("read policy: it is larger than %d bytes", maxPolicy)
	}
	var f policyFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("read policy: the file is empty")
		}
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("read policy: the file holds more than one document")
	}
	p, faults := f.policy()
	if err := errors.Join(append(faults, p.faults()...)...); err != nil {
		return nil, err
	}
	return p, nil
}

// policy takes the file apart; durations that are none are its only faults here.
func (f policyFile) policy() (*Policy, []error) {
	var faults []error
	duration := func(text, where string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %q is no duration such as 8h or 30m", where, text))
		}
		return d
	}
	p := &Policy{
		Version: f.Version, HumanQueue: f.HumanQueue, DefaultQueue: f.DefaultQueue, Categories: f.Categories,
		Queues: make(map[string]time.Duration, len(f.Queues)),
	}
	for _, name := range slices.Sorted(maps.Keys(f.Queues)) {
		p.Queues[name] = duration(f.Queues[name].LookWithin, "queue "+name+": look_within")
	}
	for _, r := range f.Rules {
		rule := Rule{
			ID: r.ID, ReasonCodes: r.ReasonCodes, Currencies: r.Currencies, MaxAmount: r.MaxAmountCents,
			MaxCase: cmp.Or(r.MaxCaseCents, r.MaxAmountCents), MaxOrder: cmp.Or(r.MaxOrderCents, r.MaxAmountCents),
			BeyondQueue: r.BeyondQueue, Description: r.Description,
		}
		if r.Within != "" {
			rule.Within = duration(r.Within, "rule "+r.ID+": within")
		}
		p.Rules = append(p.Rules, rule)
	}
	return p, faults
}

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)
	versionForm  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)
)

const maxAmount = 9007199254740991 // of the contract: 2^53 - 1

// faults are what makes a policy undecided or wrong. Overlaps are faults: two rules that cover one request decide
// nothing.
func (p *Policy) faults() []error {
	var faults []error
	say := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	say(!versionForm.MatchString(p.Version), "version: %q is not 1 to 63 of A-Z a-z 0-9 . _ -", p.Version)
	for _, name := range slices.Sorted(maps.Keys(p.Queues)) {
		say(!nameForm.MatchString(name), "queue %q: its name is not 1 to 63 of a-z 0-9 _ -", name)
	}
	p.needsQueue(say, "human_queue", p.HumanQueue)
	p.needsQueue(say, "default_queue", p.DefaultQueue)
	taken := make(map[string]Category)
	for _, c := range Categories() {
		queue := p.Categories[c]
		p.needsQueue(say, "category "+string(c), queue)
		if other, twice := taken[queue]; twice && queue != "" {
			say(true, "category %s: queue %q is that of %s already; each category has its own", c, queue, other)
		}
		taken[queue] = c
	}
	for _, c := range slices.Sorted(maps.Keys(p.Categories)) {
		say(!slices.Contains(Categories(), c), "category %q: there is none of that name", c)
	}
	seen := make(map[string]bool)
	for i, r := range p.Rules {
		say(seen[r.ID], "rule %s: its id is taken", r.ID)
		seen[r.ID] = true
		p.ruleFaults(say, i, r)
	}
	for _, o := range p.Overlaps() {
		say(true, "%s", o)
	}
	return faults
}

func (p *Policy) needsQueue(say func(bool, string, ...any), where, queue string) {
	_, found := p.Queues[queue]
	say(queue == "", "%s: it names no queue", where)
	say(queue != "" && !found, "%s: there is no queue %q", where, queue)
}

func (p *Policy) ruleFaults(say func(bool, string, ...any), i int, r Rule) {
	name := "rule " + cmp.Or(r.ID, fmt.Sprintf("number %d", i+1))
	say(!nameForm.MatchString(r.ID), "%s: its id is not 1 to 63 of a-z 0-9 _ -", name)
	say(len(r.ReasonCodes) == 0, "%s: it names no reason_codes", name)
	say(len(r.Currencies) == 0, "%s: it names no currencies", name)
	for _, c := range r.ReasonCodes {
		say(!nameForm.MatchString(c), "%s: reason code %q is not 1 to 63 of a-z 0-9 _ -", name, c)
	}
	for _, c := range r.Currencies {
		say(!currencyForm.MatchString(c), "%s: %q is no currency code of ISO 4217", name, c)
	}
	for what, cents := range map[string]int64{"max_amount_cents": r.MaxAmount, "max_case_cents": r.MaxCase,
		"max_order_cents": r.MaxOrder} {
		say(cents < 1 || cents > maxAmount, "%s: %s is not 1 to %d", name, what, int64(maxAmount))
	}
	if r.BeyondQueue != "" {
		p.needsQueue(say, name+": beyond_queue", r.BeyondQueue)
	}
}

// Overlaps are the requests that several rules cover, each in a sentence: such a request is not approved by any of
// them.
func (p *Policy) Overlaps() []string {
	var overlaps []string
	for i, a := range p.Rules {
		for _, b := range p.Rules[i+1:] {
			reasons, currencies := both(a.ReasonCodes, b.ReasonCodes), both(a.Currencies, b.Currencies)
			if len(reasons) > 0 && len(currencies) > 0 {
				overlaps = append(overlaps, fmt.Sprintf("rules %s and %s overlap: both cover %s in %s",
					a.ID, b.ID, strings.Join(reasons, ", "), strings.Join(currencies, ", ")))
			}
		}
	}
	return overlaps
}

// Gaps are the combinations of reason code and currency, of those that the rules name, that no rule covers, each in a
// sentence: such requests go to a person.
func (p *Policy) Gaps() []string {
	var reasons, currencies []string
	for _, r := range p.Rules {
		reasons, currencies = append(reasons, r.ReasonCodes...), append(currencies, r.Currencies...)
	}
	slices.Sort(reasons)
	slices.Sort(currencies)
	var gaps []string
	for _, reason := range slices.Compact(reasons) {
		for _, currency := range slices.Compact(slices.Clone(currencies)) {
			if len(p.covering(Facts{ReasonCode: reason, Currency: currency})) == 0 {
				gaps = append(gaps, fmt.Sprintf("no rule covers %s in %s: queue %s", reason, currency, p.DefaultQueue))
			}
		}
	}
	return gaps
}

// both are the members of a that b has too.
func both(a, b []string) []string {
	var shared []string
	for _, s := range a {
		if slices.Contains(b, s) {
			shared = append(shared, s)
		}
	}
	return shared
}
