package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/cmd/refundd/internal/show"
	"refundd/test/testdb"
)

func TestShow_TellsWhatTheProviderShows(t *testing.T) {
	t.Parallel()
	db, provider := testdb.New(t), simulated(t, 0)
	reserve(t, db, 1)
	env := []string{"DATABASE_URL=" + db.ServiceURL}
	at := append(slices.Clip(env), "REFUNDD_SIMULATOR_URL="+provider.url)
	shows := func(env []string, want ...string) {
		t.Helper()
		r := command(t, env, "show", "op-1")
		if r.code != exitClean {
			t.Fatalf("exits %d: %s", r.code, r.stderr)
		}
		for _, says := range want {
			if !strings.Contains(r.stdout, says) {
				t.Errorf("show does not say %q:\n%s", says, r.stdout)
			}
		}
		if strings.Contains(r.stdout, planted) {
			t.Error("show quotes the provider")
		}
	}
	shows(env, "money moved: unknown",
		"Provider, asked now\n  simulator  not asked: it is not known where it is (--simulator-url)\n")
	shows(at, "  simulator  not_found: it shows no refund of this operation\n")
	provider.expect(t, 200, "POST", "/_faults", `{"mode":"lookup_down","count":1,"message":"`+planted+`"}`)
	shows(at, "  simulator  unknown: it gave no answer")
	shows(append(slices.Clip(env), "REFUNDD_SIMULATOR_URL=http://127.0.0.1:1"),
		"  simulator  not_sent: it could not be reached")
	silent := append(slices.Clip(env), "REFUNDD_SIMULATOR_URL=http://"+silentServer(t))
	began := time.Now()
	shows(silent, "  simulator  unknown: it gave no answer")
	if took := time.Since(began); took > show.AskLimit+3*time.Second {
		t.Errorf("it takes %v to say so", took)
	}

	older(t, db, "op-1", `provider_key_expires_at = now()`)
	if ran := command(t, at, "reconcile", "--listing-lag", "0s"); ran.code != exitFound {
		t.Fatalf("reconcile exits %d: %s", ran.code, ran.stderr)
	}
	shows(at, "Operation op-1 of tenant acme: needs_attention, money moved: unknown\n", "Needs attention\n",
		"the provider shows no refund, and may have forgotten the key", "last lookup", "error_kind=not_found",
		"POST /v1/refunds/op-1/resolve", "to_state=needs_attention")

	payByHand(t, provider.url,
		`{"payment_ref":"pay-1","amount_cents":100,"currency":"EUR","metadata":{"tenant_id":"acme","operation_id":"op-1"}}`)
	shows(at, "  simulator  succeeded\n")
	var got struct {
		View map[string]any `json:"provider_view"`
	}
	if err := json.Unmarshal([]byte(command(t, at, "show", "op-1", "--json").stdout), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"provider": "simulator", "asked": true, "outcome": "succeeded", "decline_code": nil,
		"error_kind": nil, "refunds_shown": nil}
	if diff := cmp.Diff(want, got.View); diff != "" {
		t.Errorf("show --json (-want +got):\n%s", diff)
	}
	// The headline and the books disagree: of a refund that has an end, and of an approval that was never executed.
	older(t, db, "op-1", `state = 'failed', failure_code = 'resolved_failed', settled_at = now()`)
	shows(at, "failed, money moved: no\nWARNING: the provider's books say otherwise: succeeded\n")
	older(t, db, "op-1", `state = 'succeeded', failure_code = NULL, contradicted_at = '2026-01-02T03:04:05Z'`)
	shows(env, "succeeded, money moved: yes\nWARNING: the provider's books have said otherwise since 2026-01-02T03:04:05Z: see the timeline\n")
	if r := command(t, at, "show", "op-1"); strings.Contains(r.stdout, "WARNING") {
		t.Errorf("show warns of books that agree:\n%s", r.stdout)
	}
	older(t, db, "op-1", `amount_cents = 99`)
	shows(at, "WARNING: the provider's books say otherwise: contradictory: ", " 100 EUR succeeded\n")
	approve(t, db, "lost")
	payByHand(t, provider.url,
		`{"payment_ref":"pay-1","amount_cents":70,"currency":"EUR","metadata":{"tenant_id":"acme","operation_id":"lost"}}`)
	r := command(t, at, "show", "lost")
	if !strings.Contains(r.stdout,
		"approved, not executed, money moved: no\nWARNING: the provider's books say otherwise: succeeded\n") {
		t.Errorf("of a refund that only the provider knows:\n%s", r.stdout)
	}

	oneSentence(t, command(t, append(slices.Clip(env), "REFUNDD_SIMULATOR_URL=here"), "show", "op-1"), exitUsage,
		"--simulator-url must be a URL such as")
}

// approve loads an approval of 70 of the first order.
func approve(t *testing.T, db *testdb.DB, operation string) {
	t.Helper()
	_, err := db.Owner.Exec(t.Context(), `INSERT INTO refund_authorizations
		(tenant_id, operation_id, case_id, order_id, amount_cents, currency, approved_by)
		SELECT tenant_id, $1, 'case', order_id, 70, currency, 'ada' FROM orders WHERE provider_payment_ref = 'pay-1'`,
		operation)
	if err != nil {
		t.Fatal(err)
	}
}

// payByHand makes a refund at the provider past the service.
func payByHand(t *testing.T, url, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/refunds", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "by-hand-"+strconv.Itoa(len(body)))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("the provider answers %d", response.StatusCode)
	}
}
