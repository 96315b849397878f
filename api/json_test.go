package api

import (
	stdjson "encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode_TakesExactlyWhatWasMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		want       error
	}{
		{"a refund", `{"operation_id":"k","order_id":"o","amount_cents":1}`, nil},
		{"white space around", " \n\t{}\r\n", nil},
		{"null is absent", `{"order_id":null,"amount_cents":null,"metadata":null}`, nil},
		{"an escaped backslash before u0000", `{"reason":"\\u0000"}`, nil},
		{"a surrogate pair", `{"reason":"\ud83d\ude00"}`, nil},
		{"nothing", ``, errNotJSON},
		{"white space", ` `, errNotJSON},
		{"null", `null`, errNotObject},
		{"an array", `[]`, errNotObject},
		{"a string", `"x"`, errNotObject},
		{"a byte order mark", "\ufeff{}", errNotJSON},
		{"trailing data", `{} {}`, errNotJSON},
		{"a trailing comma", `{"order_id":"o",}`, errNotJSON},
		{"an unknown member", `{"amount":1}`, errUnknownName},
		{"another case", `{"Amount_cents":1}`, errUnknownName},
		{"a duplicate", `{"amount_cents":1,"amount_cents":2}`, errDuplicateName},
		{"a duplicate, escaped", `{"amount_cents":1,"amount\u005fcents":2}`, errDuplicateName},
		{"a duplicate in metadata", `{"metadata":{"a":"1","a":"1"}}`, errDuplicateName},
		{"a fraction", `{"amount_cents":10.5}`, errNotInteger},
		{"a fraction of nothing", `{"amount_cents":1.0}`, errNotInteger},
		{"an exponent", `{"amount_cents":1e2}`, errNotInteger},
		{"an exponent, upper case", `{"amount_cents":1E2}`, errNotInteger},
		{"a string for a number", `{"amount_cents":"4999"}`, errNotInteger},
		{"a number for a string", `{"order_id":1001}`, errNotText},
		{"true", `{"amount_cents":true}`, errNotInteger},
		{"an object for a number", `{"amount_cents":{}}`, errNotInteger},
		{"metadata that is no object", `{"metadata":"x"}`, errNotMembers},
		{"metadata that nests", `{"metadata":{"a":{"b":"c"}}}`, errNotText},
		{"a leading zero", `{"amount_cents":01}`, errNotJSON},
		{"a plus", `{"amount_cents":+1}`, errNotJSON},
		{"hexadecimal", `{"amount_cents":0x10}`, errNotJSON},
		{"NaN", `{"amount_cents":NaN}`, errNotJSON},
		{"NUL", `{"reason":"a\u0000b"}`, errNUL},
		{"NUL in a name", `{"metadata":{"\u0000":"b"}}`, errNUL},
		{"NUL after a backslash", `{"reason":"\\\u0000"}`, errNUL},
		{"a raw NUL", "{\"reason\":\"\x00\"}", errNotJSON},
		{"invalid UTF-8", "{\"reason\":\"\xff\"}", errNotJSON},
		{"a lone surrogate", `{"reason":"\ud800"}`, errNotJSON},
		{"a lone low surrogate", `{"reason":"\udc00x"}`, errNotJSON},
		{"depth", `{"metadata":` + strings.Repeat(`{"a":`, 12000) + `1` + strings.Repeat(`}`, 12001), errNotJSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := decode[refundBody]([]byte(c.body)); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("decode: %v, want %v", err, c.want)
			}
		})
	}
}

func TestDecode_IntegersAreExactOrOutOfRange(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]integer{
		"1":                       {1, true},
		"9007199254740991":        {9007199254740991, true},
		"0":                       {},
		"-0":                      {},
		"-1":                      {value: -1},
		"9007199254740992":        {value: 9007199254740992},
		"9007199254740993":        {value: 9007199254740993},
		"9223372036854775807":     {value: 9223372036854775807},
		"9223372036854775808":     {},
		"18446744073709551617":    {},
		"-9223372036854775809":    {},
		strings.Repeat("9", 1000): {},
	} {
		got, err := decode[refundBody]([]byte(`{"amount_cents":` + literal + `}`))
		if err != nil {
			t.Errorf("%s: %v", literal, err)
			continue
		}
		if got.AmountCents.inRange != want.inRange || want.value != 0 && got.AmountCents.value != want.value {
			t.Errorf("%s: %+v, want %+v", literal, *got.AmountCents, want)
		}
	}
}

// FuzzDecodeRefund holds what the decoder accepts against encoding/json and big.Int, and against itself.
func FuzzDecodeRefund(f *testing.F) {
	for _, seed := range []string{
		`{"operation_id":"k","order_id":"o","amount_cents":4999,"currency":"EUR","reason":"r","metadata":{"a":"b"}}`,
		`{"amount_cents":9007199254740993}`, `{"amount_cents":-0}`, `{"amount_cents":1e2}`, `{"amount_cents":"1"}`,
		`{"reason":"\ud83d\ude00\\u0000"}`, `{"metadata":{"a":null}}`, `null`, `{"amount_cents":1,"amount_cents":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode[refundBody](data)
		if err != nil {
			return
		}
		agree(t, data, got)
		again, err := encode(sent(got))
		if err != nil {
			t.Fatalf("re-encode: %v", err)
		}
		twice, err := decode[refundBody](again)
		if err != nil {
			t.Fatalf("decode %s again: %v", again, err)
		}
		if d := cmp.Diff(got, twice, cmp.AllowUnexported(integer{})); d != "" {
			t.Errorf("%s decodes to another refund:\n%s", again, d)
		}
	})
}

// agree asks encoding/json, which is laxer but reads the same values.
func agree(t *testing.T, data []byte, got refundBody) {
	t.Helper()
	var oracle map[string]any
	d := stdjson.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&oracle); err != nil {
		t.Fatalf("accepted %q, encoding/json says %v", data, err)
	}
	for name, member := range map[string]*string{
		"operation_id": got.OperationID, "order_id": got.OrderID, "currency": got.Currency, "reason": got.Reason,
	} {
		if text, given := oracle[name].(string); given != (member != nil) || given && text != *member {
			t.Errorf("%s is %v, encoding/json says %v", name, member, oracle[name])
		}
	}
	number, given := oracle["amount_cents"].(stdjson.Number)
	if given != (got.AmountCents != nil) {
		t.Fatalf("amount is %v, encoding/json says %v", got.AmountCents, oracle["amount_cents"])
	}
	if !given {
		return
	}
	exact, isInteger := new(big.Int).SetString(number.String(), 10)
	if !isInteger {
		t.Fatalf("accepted the amount %s", number)
	}
	within := exact.Sign() > 0 && exact.Cmp(big.NewInt(maxInteger)) <= 0
	if within != got.AmountCents.inRange || within && exact.Int64() != got.AmountCents.value {
		t.Errorf("amount is %+v, want %s", *got.AmountCents, exact)
	}
}

// sent is a body as its caller would write it again.
func sent(b refundBody) map[string]any {
	m := map[string]any{
		"operation_id": b.OperationID, "order_id": b.OrderID, "currency": b.Currency, "reason": b.Reason,
	}
	if b.Metadata != nil {
		m["metadata"] = b.Metadata
	}
	if b.AmountCents != nil {
		m["amount_cents"] = b.AmountCents.value
	}
	return m
}
