package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// Policy approves up to 50.00 of what is damaged.
const Policy = `
version: "test"
queues: {people: {look_within: 1h}, refunds: {look_within: 8h}, safety: {look_within: 1h}, care: {look_within: 1h},
  fraud: {look_within: 1h}, legal: {look_within: 1h}, conduct: {look_within: 1h}}
human_queue: people
default_queue: refunds
categories: {violence_threat: safety, self_harm: care, fraud_allegation: fraud, legal_or_regulatory: legal,
  harassment: conduct}
rules:
  - {id: damaged, reason_codes: [damaged], currencies: [EUR], max_amount_cents: 5000, max_case_cents: 20000,
    max_order_cents: 9000}
`

// PolicyFile writes the policy where a server reads it.
func PolicyFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(Policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
