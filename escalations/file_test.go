package escalations

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// bad are policies with a fault each: what is replaced in the sample, by what, and a word of the sentence that says so.
// Where schema is set, the JSON schema refuses it as well; what relates members is beyond a schema.
var bad = map[string]struct {
	old, new, says string
	schema         bool
}{
	"an unknown member":    {"human_queue:", "mood_queue: people\nhuman_queue:", "mood_queue", true},
	"a member of a rule's": {"    within: 720h", "    sentiment: bad\n    within: 720h", "sentiment", true},
	"a duplicate member": {"human_queue: people", "human_queue: people\nhuman_queue: people", "human_queue",
		false},
	"no version":                 {`version: "2026-12-01"`, `version: ""`, "version", true},
	"a version of two words":     {`version: "2026-12-01"`, `version: "a b"`, "version", true},
	"a queue that is not there":  {"default_queue: refunds", "default_queue: refund", `no queue "refund"`, false},
	"a category without a queue": {"  harassment: conduct\n", "", "category harassment", true},
	"a category that is none": {"harassment: conduct", "harassment: conduct\n  rudeness: conduct",
		"rudeness", true},
	"two categories in one queue": {"self_harm: care", "self_harm: safety", "each category has its own", false},
	"an amount with a fraction":   {"max_amount_cents: 5000", "max_amount_cents: 50.5", "50.5", true},
	"an amount of nothing":        {"max_amount_cents: 1000", "max_amount_cents: 0", "max_amount_cents", true},
	"an amount as text":           {"max_amount_cents: 1000", "max_amount_cents: a lot", "a lot", true},
	"an amount beyond the limit": {"max_amount_cents: 1000", "max_amount_cents: 9007199254740992", "max_amount_cents",
		true},
	"no duration":                 {"within: 720h", "within: a month", "duration", true},
	"a negative duration":         {"look_within: 8h", "look_within: -8h", "duration", true},
	"an id twice":                 {"- id: late", "- id: damaged", "taken", false},
	"no reason":                   {"reason_codes: [late]", "reason_codes: []", "reason_codes", true},
	"a currency in small letters": {"currencies: [EUR]", "currencies: [eur]", "ISO 4217", true},
	"an overlap": {"reason_codes: [late]", "reason_codes: [late, damaged]",
		"rules damaged and late overlap: both cover damaged in EUR", false},
	"two documents": {"    max_amount_cents: 1000\n", "    max_amount_cents: 1000\n---\nversion: b\n",
		"more than one", false},
}

func TestReadPolicy_ClearErrors(t *testing.T) {
	t.Parallel()
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(sample, c.old, c.new, 1)
			if text == sample {
				t.Fatal("the sample has nothing to replace")
			}
			_, err := ReadPolicy(strings.NewReader(text))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("says %v, want something of %q", err, c.says)
			}
		})
	}
	for name, text := range map[string]string{"empty": "", "a list": "[]", "binary": "\x00\x01",
		"not UTF-8": "version: \xff", "endless": strings.Repeat("#\n", maxPolicy)} {
		if _, err := ReadPolicy(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The schema takes what ReadPolicy takes, and refuses what it can.
func TestSchema_IsThatOfTheFile(t *testing.T) {
	t.Parallel()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("policy.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		var document any
		if err := yaml.NewDecoder(bytes.NewReader([]byte(text))).Decode(&document); err != nil {
			return err
		}
		return schema.Validate(document)
	}
	if err := check(sample); err != nil {
		t.Errorf("the sample: %v", err)
	}
	for name, c := range bad {
		if err := check(strings.Replace(sample, c.old, c.new, 1)); c.schema && err == nil {
			t.Errorf("%s: the schema takes it", name)
		}
	}
}

func TestGaps_AreExplained(t *testing.T) {
	t.Parallel()
	want := []string{"no rule covers late in USD: queue refunds"}
	if diff := cmp.Diff(want, readSample(t).Gaps()); diff != "" {
		t.Error(diff)
	}
}

// With an overlap a request is nobody's to approve, whichever rule comes first.
func TestDecide_AmbiguousIsEscalated(t *testing.T) {
	t.Parallel()
	p := readSample(t)
	p.Rules[1].ReasonCodes = append(p.Rules[1].ReasonCodes, "damaged")
	if d := p.Decide(good); d.Approved || d.Trigger != TriggerAmbiguous {
		t.Errorf("%+v", d)
	}
}
