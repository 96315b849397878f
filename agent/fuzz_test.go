package agent

import (
	"encoding/json"
	"math/big"
	"testing"
)

// What a tool takes for its arguments is what stands in them: an amount is the very number, and positive.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		`{"case_id":"C-1","order_id":"A-1","amount_cents":4999,"reason_code":"damaged","categories":["fraud_allegation"]}`,
		`{"case_id":"C-1","amount_cents":4999.0}`, `{"case_id":"C-1","case_id":"C-2"}`, `{"Case_ID":"C-1"}`, `{"case_ids":["C-1",""]}`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		wish, refused := arguments[wishArgs](raw)
		if refused == nil {
			var asked struct {
				Amount json.Number `json:"amount_cents"`
				Case   string      `json:"case_id"`
			}
			if err := json.Unmarshal(raw, &asked); err != nil {
				t.Fatalf("%q is taken, and encoding/json says %v", raw, err)
			}
			n, ok := new(big.Int).SetString(asked.Amount.String(), 10)
			if !ok || !n.IsInt64() || n.Int64() != wish.AmountCents || wish.AmountCents < 1 ||
				wish.CaseID != asked.Case || wish.CaseID == "" {
				t.Errorf("%q is taken as %+v", raw, wish)
			}
		}
		if cases, refused := arguments[casesArgs](raw); refused == nil &&
			(len(cases.CaseIDs) == 0 || len(cases.CaseIDs) > maxCases) {
			t.Errorf("%q is taken as %d cases", raw, len(cases.CaseIDs))
		}
		if one, refused := arguments[caseArgs](raw); refused == nil && one.CaseID == "" {
			t.Errorf("%q is taken as %+v", raw, one)
		}
	})
}
