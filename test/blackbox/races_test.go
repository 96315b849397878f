package blackbox

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

const rounds = 200

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return list
}

// tally counts answers by what they say.
func tally(answers []harness.Answer) map[string]int {
	counts := map[string]int{}
	for _, a := range answers {
		counts[a.Says()]++
	}
	return counts
}

func TestA1_TwoKeysOnOneOrder_NeverExceedItsCapture(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	orders := names("P", rounds)
	var approved []harness.Approved
	for i, order := range orders {
		approved = append(approved,
			harness.Approved{OperationID: fmt.Sprintf("K%d-0", i), OrderID: order, Cents: 6000},
			harness.Approved{OperationID: fmt.Sprintf("K%d-1", i), OrderID: order, Cents: 6000})
	}
	tenant.Load(orders, 10000, approved...)
	for i, order := range orders {
		var answers [2]harness.Answer
		together(2, func(j int) {
			answers[j] = tenant.At(j).Refund(fmt.Sprintf("K%d-%d", i, j), order, 6000)
		})
		if diff := cmp.Diff(map[string]int{"processed": 1, "amount_exceeds_refundable": 1},
			tally(answers[:])); diff != "" {
			t.Fatalf("round %d: %s", i, diff)
		}
		wantMoved(t, tenant, order, 6000)
	}
}

// Twelve keys of several sizes at once: whoever comes first, what was given back is exact and within the capture, and
// whoever was refused would really not have fitted.
func TestA1_ManyKeysOfManySizes_FillTheCaptureExactly(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).OpenTenant(t)
	sizes := []int64{1, 999, 1000, 2500, 2500, 3333, 4000, 4001, 5000, 9999, 10000, 10001}
	orders := names("P", 20)
	tenant.Load(orders, 10000)
	for i, order := range orders {
		answers := make([]harness.Answer, len(sizes))
		together(len(sizes), func(j int) {
			answers[j] = tenant.At(j).Refund(fmt.Sprintf("K%d-%d", i, j), order, sizes[j])
		})
		var moved int64
		for j, a := range answers {
			if a.Status == http.StatusCreated {
				moved += sizes[j]
			}
		}
		wantMoved(t, tenant, order, moved)
		for j, a := range answers {
			if a.Status != http.StatusCreated {
				want(t, a, "amount_exceeds_refundable")
				if sizes[j] <= 10000-moved {
					t.Errorf("%s: %d refused, though %d are left", order, sizes[j], 10000-moved)
				}
			}
		}
	}
}

func TestA2_IdenticalRequestsAtOnce_MoveMoneyOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		rounds, width int
		keyInHeader   bool
	}{
		{"fifty", 8, 50, false},
		{"fifty, keys in the header", 4, 50, true},
		{"six, many rounds", rounds, 6, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tenant := harness.Shared(t).Tenant(t)
			orders := names("P", c.rounds)
			var approved []harness.Approved
			for i, order := range orders {
				approved = append(approved,
					harness.Approved{OperationID: fmt.Sprint("K", i), OrderID: order, Cents: 4999})
			}
			tenant.Load(orders, 10000, approved...)
			for i, order := range orders {
				answers := make([]harness.Answer, c.width)
				together(c.width, func(j int) {
					answers[j] = identical(tenant.At(j), approved[i], c.keyInHeader)
				})
				if diff := cmp.Diff(map[string]int{"processed": 1, "already_processed": c.width - 1},
					tally(answers)); diff != "" {
					t.Fatalf("round %d: %s", i, diff)
				}
				sameReceipts(t, answers)
				wantMoved(t, tenant, order, 4999)
			}
		})
	}
}

func identical(c harness.Client, a harness.Approved, keyInHeader bool) harness.Answer {
	if !keyInHeader {
		return c.Refund(a.OperationID, a.OrderID, a.Cents)
	}
	return c.Do(harness.Request{
		Method: http.MethodPost, Path: "/v1/refunds", Valid: true,
		Header: http.Header{"Idempotency-Key": {`"` + a.OperationID + `"`}},
		Body:   fmt.Appendf(nil, `{"order_id":%q,"amount_cents":%d}`, a.OrderID, a.Cents),
	})
}

// sameReceipts fails the test where receipts differ in more than what each call did.
func sameReceipts(t *testing.T, answers []harness.Answer) {
	t.Helper()
	first := harness.Read[harness.Receipt](t, answers[0]).Refund
	for _, a := range answers[1:] {
		if diff := cmp.Diff(first, harness.Read[harness.Receipt](t, a).Refund); diff != "" {
			t.Errorf("receipts differ: %s", diff)
		}
	}
}

// rival is one of two refunds that claim one key.
type rival struct {
	order string
	cents int64
}

func TestA11_OneKeyForTwoRefunds_ExecutesOneAndRefusesTheOther(t *testing.T) {
	t.Parallel()
	for name, rivals := range map[string]func(i int) [2]rival{
		"other amount": func(i int) [2]rival {
			return [2]rival{{fmt.Sprint("P", i), 6000},
				{fmt.Sprint("P", i), 7000}}
		},
		"other order": func(i int) [2]rival {
			return [2]rival{{fmt.Sprint("P", i), 6000},
				{fmt.Sprint("Q", i), 6000}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant := harness.Shared(t).OpenTenant(t)
			tenant.Load(append(names("P", rounds), names("Q", rounds)...), 20000)
			for i := range rounds {
				race(t, tenant, fmt.Sprint("K", i), rivals(i), i%10 == 0)
			}
		})
	}
}

// race sends both rivals at once, and, where asked, once again: one is executed, the other refused for good and told
// nothing of the winner.
func race(t *testing.T, tenant *harness.Tenant, key string, rivals [2]rival, again bool) {
	t.Helper()
	var answers [2]harness.Answer
	together(2, func(j int) { answers[j] = tenant.At(j).Refund(key, rivals[j].order, rivals[j].cents) })
	winner := slices.IndexFunc(answers[:], func(a harness.Answer) bool { return a.Status == http.StatusCreated })
	if winner < 0 {
		t.Fatalf("%s: nobody won: %s, %s", key, answers[0].Body, answers[1].Body)
	}
	loser := 1 - winner
	want(t, answers[loser], "operation_id_conflict")
	receipt := harness.Read[harness.Receipt](t, answers[winner])
	if strings.Contains(string(answers[loser].Body), receipt.RefundID) {
		t.Errorf("%s: the loser is shown the winner's receipt", key)
	}
	if n := tenant.Movements(key); n != 1 {
		t.Errorf("%s moved money %d times", key, n)
	}
	if !again {
		return
	}
	want(t, tenant.At(winner).Refund(key, rivals[loser].order, rivals[loser].cents), "operation_id_conflict")
	want(t, tenant.At(loser).Refund(key, rivals[winner].order, rivals[winner].cents), "already_processed")
}

func TestA11_WithAnAuthorization_NeverExecutesAnotherAmount(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	orders := names("P", rounds/2)
	var approved []harness.Approved
	for i, order := range orders {
		approved = append(approved, harness.Approved{OperationID: fmt.Sprint("K", i), OrderID: order, Cents: 6000})
	}
	tenant.Load(orders, 20000, approved...)
	for _, a := range approved {
		var answers [2]harness.Answer
		together(2, func(j int) { answers[j] = tenant.At(j).Refund(a.OperationID, a.OrderID, a.Cents+int64(j)*1000) })
		want(t, answers[0], "processed")
		if says := answers[1].Says(); says != "authorization_mismatch" && says != "operation_id_conflict" {
			t.Errorf("%s: 7000 against an approval of 6000: %s", a.OperationID, says)
		}
		wantMoved(t, tenant, a.OrderID, 6000)
	}
}

// All at one key: identical requests, other amounts, other orders and revocations. One wins; the others get a replay or
// a refusal, never an aborted transaction or a missing row.
func TestA40_LosersOfAKeyRace_GetAReplayOrARefusal(t *testing.T) {
	t.Parallel()
	tenant := harness.Shared(t).Tenant(t)
	const fields = 60
	said := map[string]int{}
	tenant.Load(append(names("P", fields), names("Q", fields)...), 20000)
	for i := range fields {
		key, p, q := fmt.Sprint("K", i), fmt.Sprint("P", i), fmt.Sprint("Q", i)
		tenant.Load(nil, 1, harness.Approved{OperationID: key, OrderID: p, Cents: 500})
		acts := []func(harness.Client) harness.Answer{
			func(c harness.Client) harness.Answer { return c.Refund(key, p, 500) },
			func(c harness.Client) harness.Answer { return c.Refund(key, p, 501) },
			func(c harness.Client) harness.Answer { return c.Refund(key, q, 500) },
			func(c harness.Client) harness.Answer {
				return c.Post(harness.AuthorizationPath(key)+"/revoke", harness.Fields{})
			},
		}
		answers := make([]harness.Answer, 8)
		together(len(answers), func(j int) { answers[j] = acts[j%len(acts)](tenant.At(j / len(acts))) })
		for j, a := range answers {
			said[a.Says()]++
			if !slices.Contains(lostRace[j%len(acts)], a.Says()) {
				t.Errorf("round %d, act %d: %d %s", i, j%len(acts), a.Status, a.Body)
			}
		}
		if n := tenant.Movements(key); n > 1 || tenant.Moved(q) != 0 {
			t.Errorf("%s moved money %d times", key, n)
		}
	}
	for _, end := range []string{"processed", "already_processed", "operation_id_conflict", "200",
		"authorization_revoked", "already_executed"} {
		if said[end] == 0 {
			t.Errorf("nobody was told %s: it was no race: %v", end, said)
		}
	}
}

// lostRace is what each act of the race above may say, whoever came first.
var lostRace = [][]string{
	{"processed", "already_processed", "authorization_revoked"},
	{"authorization_mismatch", "operation_id_conflict", "authorization_revoked"},
	{"authorization_mismatch", "operation_id_conflict", "authorization_revoked"},
	{"200", "already_executed"},
}

// A foreign session holds the key's row uncommitted while requests for it arrive; then it commits, or gives up.
func TestA40_KeyClaimedByAnUncommittedTransaction_WaitsForItsEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end        string
		same, diff string
	}{
		{"COMMIT", "already_processed", "operation_id_conflict"},
		{"ROLLBACK", "", ""},
	} {
		t.Run(c.end, func(t *testing.T) {
			t.Parallel()
			tenant := harness.Shared(t).OpenTenant(t)
			tenant.Load([]string{"P"}, 10000)
			conn, err := tenant.Service.DB.Owner.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			for _, sql := range append([]string{"BEGIN"}, loadedRefunds(tenant, "K", "P", 1, 500)...) {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			var answers [6]harness.Answer
			together(len(answers)+1, func(j int) {
				if j < len(answers) {
					answers[j] = tenant.At(j/2).Refund("K1", "P", 500+int64(j%2))
					return
				}
				time.Sleep(500 * time.Millisecond)
				if _, err := conn.Exec(t.Context(), c.end); err != nil {
					t.Error(err)
				}
			})
			if n := tenant.Movements("K1"); n != 1 {
				t.Errorf("moved money %d times", n)
			}
			for j, a := range answers {
				switch {
				case c.same != "":
					want(t, a, [2]string{c.same, c.diff}[j%2])
				case !slices.Contains([]string{"processed", "already_processed", "operation_id_conflict"}, a.Says()):
					t.Errorf("request %d: %d %s", j, a.Status, a.Body)
				}
			}
		})
	}
}

// loadedRefunds is the SQL of n ledger-only refunds that were executed, with keys prefix1 to prefixn.
func loadedRefunds(tenant *harness.Tenant, prefix, order string, n, cents int64) []string {
	args := strings.NewReplacer("$tenant", tenant.ID, "$prefix", prefix, "$order", order, "$cents", fmt.Sprint(cents),
		"$n", fmt.Sprint(n))
	return []string{
		args.Replace(`UPDATE orders SET refunded_cents = refunded_cents + $n * $cents WHERE tenant_id = '$tenant'
			AND order_id = '$order'`),
		args.Replace(`INSERT INTO refund_operations (tenant_id, operation_id, fingerprint, refund_id, order_id,
			amount_cents, currency, state, settled_at)
			SELECT '$tenant', '$prefix' || i, encode(sha256('{"amount_cents": $cents, "order_id": "$order"}'), 'hex'),
				gen_random_uuid(),
			'$order', $cents, 'EUR', 'succeeded', now() FROM generate_series(1, $n) AS i`),
		args.Replace(`INSERT INTO ledger_transfers (tenant_id, operation_id, seq, kind, debit_account, credit_account,
			amount_cents, currency)
			SELECT '$tenant', '$prefix' || i, 1, 'refund', 'merchant', 'customer', $cents, 'EUR'
				FROM generate_series(1, $n) AS i`),
	}
}

func TestA42_ManyRefundsOfOneOrder_EndExactlyAndStarveNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		captured int64
		executed int
	}{
		{"all fit", 500 * 20, 500},
		{"three hundred fit", 300*20 + 19, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tenant := harness.Shared(t).OpenTenant(t)
			tenant.Load([]string{"P"}, c.captured)
			tenant.Load(names("Q", 20), 100)
			answers := make([]harness.Answer, 500)
			var others []harness.Answer
			slowest := time.Duration(0)
			together(501, func(i int) {
				if i < 500 {
					answers[i] = tenant.At(i).Refund(fmt.Sprint("K", i), "P", 20)
					return
				}
				for j := range 20 {
					began := time.Now()
					others = append(others, tenant.At(j).Refund(fmt.Sprint("L", j), fmt.Sprint("Q", j), 100))
					slowest = max(slowest, time.Since(began))
				}
			})
			if slowest > 10*time.Second {
				t.Errorf("another order waited %v", slowest)
			}
			if diff := cmp.Diff(map[string]int{"processed": 20}, tally(others)); diff != "" {
				t.Errorf("other orders: %s", diff)
			}
			wanted := map[string]int{"processed": c.executed}
			if c.executed < 500 {
				wanted["amount_exceeds_refundable"] = 500 - c.executed
			}
			if diff := cmp.Diff(wanted, tally(answers)); diff != "" {
				t.Error(diff)
			}
			wantMoved(t, tenant, "P", int64(c.executed)*20)
		})
	}
}
