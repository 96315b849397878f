package reconcile

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"refundd/operations"
)

// lag is a listing lag that passes within a test.
func lag(d time.Duration) func(*operations.Config) {
	return func(c *operations.Config) { c.ListingLag = d }
}

// Each is a row of the table of what Lookup says and what happens.
func TestRun_LookupBringsAnOutcome_IsRecorded(t *testing.T) {
	t.Parallel()

	t.Run("Succeeded", func(t *testing.T) {
		b := newBench(t, 0)
		b.faults(`"mode":"drop_after","count":1`)
		b.submit("K")
		b.expect("K", "reserved", "hold", 1)
		b.run(Summary{Claimed: 1, Succeeded: 1})
		b.expect("K", "succeeded", "hold settle", 1)
	})

	t.Run("Pending", func(t *testing.T) {
		b := newBench(t, 0)
		b.faults(`"mode":"drop_after","count":1`, `"mode":"pending","count":1,"delay_ms":700`)
		b.submit("K")
		b.run(Summary{Claimed: 1, Pending: 1})
		b.expect("K", "pending", "hold", 1)
		b.run(Summary{Claimed: 1, Pending: 1})
		time.Sleep(800 * time.Millisecond) // the provider's own time
		b.run(Summary{Claimed: 1, Succeeded: 1})
		b.expect("K", "succeeded", "hold settle", 1)
	})

	t.Run("Declined", func(t *testing.T) {
		b := newBench(t, 0)
		b.faults(`"mode":"drop_after","count":1`, `"mode":"fail_later","count":1`)
		b.submit("K")
		b.run(Summary{Claimed: 1, Failed: 1})
		b.expect("K", "failed expired_or_canceled_card", "hold release", 1)
		b.run(Summary{}) // it has an end, and is not looked at any more
	})
}

func TestRun_LookupIsContradictory(t *testing.T) {
	t.Parallel()

	t.Run("Unsettled_NeedsAttention", func(t *testing.T) {
		for name, again := range map[string]int{"TwoOfOurs": 100, "AnotherAmount": 99} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t, 0)
				b.faults(map[bool]string{true: `"mode":"drop_after","count":1`,
					false: `"mode":"drop_before","count":1`}[again == 100])
				b.submit("K")
				b.executeByHand("K", again)
				b.run(Summary{Claimed: 1, NeedsAttention: 1})
				b.expect("K", "needs_attention provider_contradictory", "hold", b.executed("K"))
				b.run(Summary{Claimed: 1, StillUnknown: 1}) // it is looked at again, and is no news
				if seen := b.lastEvent("K", "lookup"); !strings.HasPrefix(seen, "contradictory ") {
					t.Errorf("the evidence is %q", seen)
				}
			})
		}
	})

	t.Run("Settled_KeepsItsState", func(t *testing.T) {
		b := newBench(t, 0)
		b.submit("K")
		b.executeByHand("K", 100)
		b.run(Summary{Claimed: 1, Contradicted: 1})
		b.expect("K", "succeeded", "hold settle", 2)
		if seen := b.lastEvent("K", "lookup"); !strings.HasPrefix(seen, "contradictory ") {
			t.Errorf("the timeline shows %q", seen)
		}
	})
}

func TestRun_LookupFindsNothing(t *testing.T) {
	t.Parallel()

	t.Run("KeyAlive_IsSentAgainWhateverTheLag", func(t *testing.T) {
		b := newBench(t, 0, lag(time.Hour))
		b.faults(`"mode":"error_before","count":1`)
		b.submit("K")
		b.run(Summary{Claimed: 1, Succeeded: 1, Resent: 1})
		b.expect("K", "succeeded", "hold settle", 1)
		if key := b.text(`SELECT provider_key FROM refund_operations`); !strings.Contains(b.call(http.MethodGet,
			"/_ledger", ""), `"`+key+`"`) {
			t.Errorf("executed under another key than %s", key)
		}
	})

	t.Run("HiddenByTheLag_IsSentAgainAndExecutedOnce", func(t *testing.T) {
		b := newBench(t, 0)
		b.faults(`"mode":"drop_after","count":1`, `"mode":"lookup_lag","count":1,"delay_ms":3600000`)
		b.submit("K")
		b.run(Summary{Claimed: 1, Succeeded: 1, Resent: 1})
		b.expect("K", "succeeded", "hold settle", 1)
	})

	t.Run("NeverSent_IsSentWithoutALook", func(t *testing.T) {
		b := newBench(t, 0)
		b.submitAway("K")
		b.exec(`UPDATE refund_operations
			SET provider_key_expires_at = '-infinity'`) // a key that the provider can not know is new
		b.run(Summary{Claimed: 1, Succeeded: 1, Resent: 1})
		b.expect("K", "succeeded", "hold settle", 1)
		if n := b.requests.lookups.Load(); n != 0 {
			t.Errorf("%d lookups", n)
		}
	})

	t.Run("Doubted_WithinTheLag_WaitsAndIsNotSent", func(t *testing.T) {
		b := newBench(t, 0, lag(time.Hour))
		b.doubt("K")
		b.run(Summary{Claimed: 1, StillUnknown: 1})
		b.expect("K", "reserved", "hold", 0)
		if n := b.requests.refunds.Load(); n != 2 {
			t.Errorf("%d requests, want the 2 before it was doubted", n)
		}
	})

	t.Run("Doubted_AfterTheLag_Fails", func(t *testing.T) {
		b := newBench(t, 0, lag(100*time.Millisecond))
		b.doubt("K")
		time.Sleep(150 * time.Millisecond)
		b.run(Summary{Claimed: 1, Failed: 1})
		b.expect("K", "failed declined", "hold release", 0)
	})

	t.Run("KeyExpired_WithinTheLag_Waits", func(t *testing.T) {
		b := newBench(t, 0, lag(time.Hour))
		b.faults(`"mode":"error_before","count":1`)
		b.submit("K")
		b.forget("K")
		b.run(Summary{Claimed: 1, StillUnknown: 1})
		b.expect("K", "reserved", "hold", 0)
	})

	t.Run("KeyExpired_AfterTheLag_NeedsAttentionAndIsNeverSent", func(t *testing.T) {
		b := newBench(t, 0, lag(100*time.Millisecond))
		b.faults(`"mode":"error_before","count":1`)
		b.submit("K")
		b.forget("K")
		time.Sleep(150 * time.Millisecond)
		b.run(Summary{Claimed: 1, NeedsAttention: 1})
		b.expect("K", "needs_attention provider_key_expired", "hold", 0)
		b.run(Summary{Claimed: 1, StillUnknown: 1})
		if n := b.requests.refunds.Load(); n != 1 {
			t.Errorf("%d requests, want the first alone", n)
		}
		b.executeByHand("K", 100) // proof settles it still
		b.run(Summary{Claimed: 1, Succeeded: 1})
		b.expect("K", "succeeded", "hold settle", 1)
	})

	t.Run("AnyOtherState_DoesNotChange", func(t *testing.T) {
		b := newBench(t, 0)
		b.submit("S")
		b.faults(`"mode":"pending","count":1,"delay_ms":3600000`)
		b.submit("P")
		b.faults(`"mode":"lookup_lag","delay_ms":3600000`)
		b.run(Summary{Claimed: 2, StillUnknown: 1})
		b.expect("S", "succeeded", "hold settle", 1)
		b.expect("P", "pending", "hold", 1)
	})
}

// doubt makes a reservation whose second request was declined.
func (b *bench) doubt(id string) {
	b.t.Helper()
	b.faults(`"mode":"error_before","count":1`)
	b.submit(id)
	b.faults(`"mode":"decline","count":1`)
	b.run(Summary{Claimed: 1, Resent: 1, StillUnknown: 1})
}

// forget lets the provider's key retention pass.
func (b *bench) forget(id string) {
	b.t.Helper()
	b.call(http.MethodPost, "/_keys/expire", "")
	b.exec(`UPDATE refund_operations SET provider_key_expires_at = now() WHERE operation_id = $1`, id)
}

func TestRun_LookupFails_ChangesNothing(t *testing.T) {
	t.Parallel()
	for kind, status := range map[string]string{"unknown": "503", "not_sent": "429"} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, 0)
			b.faults(`"mode":"drop_after","count":1`)
			b.submit("K")
			b.faults(`"mode":"pending","count":1,"delay_ms":3600000`)
			b.submit("P")
			b.submit("S")
			b.faults(`"mode":"lookup_down","status":` + status)
			b.exec(`UPDATE refund_operations SET created_at = now() - interval '71 hours'`)
			b.run(Summary{Claimed: 3, StillUnknown: 2})
			b.expect("K", "reserved", "hold", 1)
			b.expect("P", "pending", "hold", 1)
			b.expect("S", "succeeded", "hold settle", 1)
			if later := b.text(`SELECT count(*) FROM refund_operations
				WHERE next_check_at BETWEEN now() + interval '30 s' AND now() + interval '25 hours'`); later != "3" {
				t.Errorf("%s of 3 are looked at again later", later)
			}
			b.runs(b.job, Summary{}) // they back off
		})
	}
}

func TestRun_OldEnough_NeedsAttention(t *testing.T) {
	b := newBench(t, 0)
	b.faults(`"mode":"drop_after","count":1`)
	b.submit("K")
	b.faults(`"mode":"pending","count":1,"delay_ms":3600000`)
	b.submit("P")
	b.faults(`"mode":"lookup_down"`)
	b.exec(`UPDATE refund_operations SET created_at = now() - interval '73 hours'`)
	b.run(Summary{Claimed: 2, NeedsAttention: 1, StillUnknown: 1})
	b.expect("K", "needs_attention outcome_overdue", "hold", 1)
	b.expect("P", "pending", "hold", 1)
	b.faults()
	b.exec(`UPDATE refund_operations SET created_at = now() - interval '15 days'`)
	b.run(Summary{Claimed: 2, NeedsAttention: 1, Succeeded: 1})
	b.expect("K", "succeeded", "hold settle", 1)
	b.expect("P", "needs_attention outcome_overdue", "hold", 1)
}

func TestRun_Rechecks(t *testing.T) {
	t.Parallel()

	t.Run("ALateFailure_IsReversed", func(t *testing.T) {
		b := newBench(t, 0)
		b.faults(`"mode":"fail_later","count":1,"delay_ms":3000`)
		b.submit("K")
		b.expect("K", "succeeded", "hold settle", 1)
		b.run(Summary{Claimed: 1})
		time.Sleep(3100 * time.Millisecond)
		b.run(Summary{Claimed: 1, Failed: 1})
		b.expect("K", "failed late_failure", "hold settle reversal", 1)
		b.run(Summary{})
		b.again("K")
		b.expect("K", "failed late_failure", "hold settle reversal", 1)
	})

	t.Run("AHumansFailure_ThatWasPaid_IsHeldAgain", func(t *testing.T) {
		b := newBench(t, 0, lag(time.Millisecond))
		b.faults(`"mode":"error_before","count":1`)
		b.submit("K")
		b.forget("K")
		b.run(Summary{Claimed: 1, NeedsAttention: 1})
		_, err := b.engine.Resolve(t.Context(),
			operations.Decision{TenantID: "acme", OperationID: "K", Evidence: "the dashboard", Actor: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		b.expect("K", "failed resolved_failed", "hold release", 0)
		b.executeByHand("K", 100)
		b.run(Summary{Claimed: 1, NeedsAttention: 1})
		b.expect("K", "needs_attention paid_after_failure", "hold release hold", 1)
		b.run(Summary{Claimed: 1, Succeeded: 1})
		b.expect("K", "succeeded", "hold release hold settle", 1)
	})

	t.Run("AHumansFailure_ThatWasPaidBeyondTheCapture_IsNamedByTheAudit", func(t *testing.T) {
		b := newBench(t, 0, lag(time.Millisecond))
		b.faults(`"mode":"error_before","count":1`)
		b.submit("K")
		b.forget("K")
		b.run(Summary{Claimed: 1, NeedsAttention: 1})
		_, err := b.engine.Resolve(t.Context(),
			operations.Decision{TenantID: "acme", OperationID: "K", Evidence: "the dashboard", Actor: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		b.executeByHand("K", 100)
		b.exec(`UPDATE orders SET captured_cents = 50`)
		b.run(Summary{Claimed: 1, NeedsAttention: 1})
		b.expect("K", "needs_attention over_refund", "hold release hold", 1)
		if lies := audit(t, b.db).Lies; len(lies) != 2 || lies[0].Rule != RuleOverRefund ||
			lies[0].OperationID != "K" ||
			lies[1].Rule != RuleOverRefund || lies[1].OrderID != "order-K" {
			t.Errorf("the audit names %+v", lies)
		}
		b.run(Summary{Claimed: 1, StillUnknown: 1})
		b.exec(`UPDATE orders SET captured_cents = 1000`)
		b.run(Summary{Claimed: 1, Succeeded: 1})
		b.expect("K", "succeeded", "hold release hold settle", 1)
	})

	t.Run("TheirWindowEnds", func(t *testing.T) {
		b := newBench(t, 0, func(c *operations.Config) { c.RecheckFor = time.Millisecond })
		b.submit("K")
		time.Sleep(5 * time.Millisecond)
		b.run(Summary{Claimed: 1})
		if at := b.text(`SELECT next_check_at FROM refund_operations`); at != "infinity" {
			t.Errorf("looked at again at %s", at)
		}
	})
}
