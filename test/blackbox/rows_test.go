package blackbox

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"refundd/test/harness"
)

// oddOrders and oddApprovals are what an owner may try to load: SQL expressions by column, over a row that is right.
var (
	oddOrders = map[string][]string{
		"order_id":             {`'#"\<&>~!%2F?'`, `repeat('x', 255)`, `'a b'`, `'é'`, `''`, `E'a\n'`, `'.'`, `'..'`},
		"currency":             {`'eur'`, `'XXQ'`, `'ZZZ'`, `'€€€'`, `'EURO'`, `''`},
		"captured_cents":       {`0`, `-1`, `9007199254740991`, `9007199254740992`, `9223372036854775807`},
		"provider":             {`'adyen'`, `'ledger'`, `''`, `'Stripe'`, `'simulator'`},
		"provider_payment_ref": {`''`, `repeat('r', 1000000)`, `E'\u0085\u202e"&?='`},
		"customer_id": {`''`, `E'\x01\x1b[2J'`, `repeat('c', 1000000)`, `repeat(md5(random()::text), 2000)`,
			`E'\u2028😀'`},
		"customer_email": {`''`, `'no address'`, `repeat('İı', 300)`, `E'\x01@\x7f'`, `repeat('e', 1000000)`},
		"customer_name":  {`''`, `repeat('n', 1000000)`, `E'a\nb\tc\u0000'`, `E'<script>\u202e'`},
		"created_at": {`'infinity'`, `'-infinity'`, `'0044-03-15 BC'`, `'20000-01-01'`, `'0001-01-01Z'`,
			`'9999-12-31T23:59:59.999999Z'`, `'1950-01-01Z'`},
	}
	oddApprovals = map[string][]string{
		"operation_id": {`'.'`, `'a/b'`, `'é'`, `repeat('x', 256)`, `'...'`},
		"case_id":      {`''`, `repeat('c', 1000000)`, `E'\x01'`, `'é 😀'`},
		"amount_cents": {`0`, `-1`, `9007199254740992`, `9007199254740991`},
		"currency":     {`'eur'`, `'XXQ'`, `''`},
		"reason":       {`''`, `repeat('r', 1000000)`, `E'\x1b]0;x\x07'`},
		"metadata": {`'{"score": 5}'`, `'{"a": {"b": "c"}}'`, `'{"a": ["b"]}'`, `'{"a": null}'`, `'[]'`,
			`'[{"a": "b"}]'`, `'null'`, `'5'`, `'"x"'`,
			`'{"": ""}'`, `'{"a": "\u0001\u202e"}'`, `(SELECT jsonb_object_agg(g::text, 'x') FROM generate_series(1, 500) g)`,
			`jsonb_build_object('a', repeat('v', 1000000))`},
		"approved_by": {`''`, `E'\x01'`, `repeat('a', 1000000)`},
		"expires_at": {`'infinity'`, `'-infinity'`, `'0044-03-15 BC'`, `'20000-01-01'`,
			`'9999-12-31T23:59:59.999999Z'`, `'0001-01-01Z'`},
		"created_at": {`'infinity'`, `'-infinity'`, `'0044-03-15 BC'`, `'20000-01-01'`, `'1950-01-01Z'`},
	}
)

// A68: whatever an owner may load is refused when it is loaded, or shown for ever: by no route is it an internal error
// (the client fails the test of each), and a revocation works whatever the row holds.
func TestA68_WhatIsLoadedBySQL_IsRefusedThenOrShownForEver(t *testing.T) {
	t.Parallel()
	tenant := harness.New(t).OpenTenant(t)
	loaded, refused := 0, 0
	load := func(table string, row map[string]string) bool {
		var columns, values []string
		for c, v := range row {
			columns, values = append(columns, c), append(values, v)
		}
		_, err := tenant.Service.DB.Owner.Exec(t.Context(),
			fmt.Sprintf(`INSERT INTO %s (tenant_id, %s) SELECT '%s', %s`,
				table, strings.Join(columns, ", "), tenant.ID, strings.Join(values, ", ")))
		if err != nil {
			refused++
			return false
		}
		loaded++
		return true
	}
	n := 0
	order := func(over map[string]string) (id string, ok bool) {
		n++
		row := map[string]string{"order_id": fmt.Sprintf("'P-%d'", n), "currency": "'EUR'", "captured_cents": "1000"}
		for c, v := range over {
			row[c] = v
			if strings.HasPrefix(c, "provider") && row["provider"] != "'ledger'" {
				for _, both := range [][2]string{{"provider", "'stripe'"},
					{"provider_payment_ref", fmt.Sprintf("'%s-%d'", tenant.ID, n)}} {
					if row[both[0]] == "" {
						row[both[0]] = both[1]
					}
				}
			}
		}
		if !load("orders", row) {
			return "", false
		}
		if err := tenant.Service.DB.Owner.QueryRow(t.Context(), `SELECT order_id FROM orders WHERE tenant_id = $1
			ORDER BY ctid DESC LIMIT 1`, tenant.ID).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id, true
	}
	for column, values := range oddOrders {
		for _, v := range values {
			id, ok := order(map[string]string{column: v})
			if !ok {
				continue
			}
			n++
			if load("refund_authorizations",
				map[string]string{"operation_id": fmt.Sprintf("'K-%d'", n), "case_id": "'c'", "order_id": "$q$" +
					id + "$q$",
					"amount_cents": "1", "currency": "'EUR'", "approved_by": "'ada'"}) {
				showOrder(t, tenant, id)
				showOperation(t, tenant, fmt.Sprintf("K-%d", n), id)
			}
		}
	}
	id, _ := order(nil)
	for column, values := range oddApprovals {
		for _, v := range values {
			n++
			operation := fmt.Sprintf("K-%d", n)
			row := map[string]string{"operation_id": "'" + operation + "'", "case_id": "'c'", "order_id": "'" + id +
				"'", "amount_cents": "1",
				"currency": "'EUR'", "approved_by": "'ada'"}
			row[column] = v
			if load("refund_authorizations", row) {
				if column == "operation_id" {
					operation = strings.Trim(v, "'")
				}
				showOperation(t, tenant, operation, id)
			}
		}
	}
	if loaded < 50 || refused < 40 {
		t.Errorf("%d rows were loaded and %d refused: the test asks too little", loaded, refused)
	}
	tenant.Service.Audit(t)
}

// showOrder asks each route for an order that was loaded.
func showOrder(t *testing.T, tenant *harness.Tenant, id string) {
	t.Helper()
	c := tenant.Client()
	if id == "." || id == ".." {
		return // no URL has it
	}
	got := c.Get(harness.OrderPath(id))
	if got.Status != http.StatusOK {
		t.Errorf("GET order %q: %d %.300s", id, got.Status, got.Body)
		return
	}
	again := c.Put(harness.OrderPath(id), harness.Fields{})
	if again.Status != http.StatusOK {
		t.Errorf("PUT order %q again: %d %.300s", id, again.Status, again.Body)
	}
	if diff := cmp.Diff(string(got.Body), string(again.Body)); diff != "" {
		t.Errorf("PUT of order %q shows another one (-GET +PUT):\n%.500s", id, diff)
	}
	var order struct {
		Customer map[string]string `json:"customer"`
	}
	_ = json.Unmarshal(got.Body, &order, json.RejectUnknownMembers(false)) // what is null stays empty
	for member, value := range order.Customer {
		if value != "" && len(value) <= 255 {
			found := c.Do(harness.Request{Method: http.MethodGet, Path: "/v1/orders?customer_" + member + "=" +
				url.QueryEscape(value)})
			if member != "name" && found.Status != http.StatusOK {
				t.Errorf("search by %s %q: %d %.300s", member, value, found.Status, found.Body)
			}
		}
	}
}

// showOperation asks each route for an approval that was loaded, withdraws it, or refunds it, and asks again.
func showOperation(t *testing.T, tenant *harness.Tenant, operation, order string) {
	t.Helper()
	c := tenant.Client()
	ask := func(method, path string, body any, statuses ...int) {
		r := harness.Request{Method: method, Path: path}
		if body != nil {
			r.Body = harness.JSON(body)
		}
		if a := c.Do(r); a.Status >= 500 && a.Says() != "provider_unavailable" || len(statuses) > 0 &&
			a.Status != statuses[0] {
			t.Errorf("%s %s: %d %.300s", method, path, a.Status, a.Body)
		}
	}
	command := func(args ...string) {
		if r := harness.Command(t, tenant.Service.DB.ServiceURL, args...); r.ExitCode != 0 {
			t.Errorf("refundd %v exits %d: %.300s", args, r.ExitCode, r.Stderr)
		}
	}
	show := func() {
		ask(http.MethodGet, harness.AuthorizationPath(operation), nil, http.StatusOK)
		ask(http.MethodGet, "/v1/authorizations?case_id=c", nil)
		ask(http.MethodGet, harness.RefundPath(operation), nil)
		ask(http.MethodGet, harness.RefundPath(operation)+"/events", nil)
		ask(http.MethodGet, "/v1/refunds?limit=1", nil, http.StatusOK)
		ask(http.MethodPost, harness.RefundPath(operation)+"/reconcile", nil)
	}
	show()
	body := harness.Fields{"operation_id": operation, "order_id": order, "amount_cents": 1}
	if len(operation)%2 == 0 {
		ask(http.MethodPost, "/v1/refunds", body)
		ask(http.MethodPost, harness.AuthorizationPath(operation)+"/revoke", nil)
	} else {
		ask(http.MethodPost, harness.AuthorizationPath(operation)+"/revoke", nil, http.StatusOK)
		ask(http.MethodPost, "/v1/refunds", body)
	}
	show()
	ask(http.MethodPut, harness.AuthorizationPath(operation),
		harness.Fields{"case_id": "c", "order_id": order, "amount_cents": 1, "approved_by": "ada"})
	if strings.HasSuffix(operation, "0") { // a process each
		command("show", operation, "--tenant", tenant.ID)
		command("show", operation, "--tenant", tenant.ID, "--json")
	}
}

// A88: a cursor that was handed out is taken, whatever times the owner gave the rows; each row that was there from the
// beginning is listed once, also while others come.
func TestA88_CursorsAreTaken_WhateverTimesTheRowsHave(t *testing.T) {
	t.Parallel()
	tenant := harness.New(t).OpenTenant(t)
	tenant.Load([]string{"P"}, 100000)
	c := tenant.Client()
	var want []string
	for i, at := range []string{"infinity", "infinity", "9999-12-31T23:59:59.999999Z", "2026-01-01Z", "2026-01-01Z",
		"2026-01-01Z",
		"1969-12-31T23:59:59.5Z", "1900-01-01Z", "0001-01-01Z", "-infinity", "-infinity"} {
		operation := fmt.Sprintf("%c.:_-%d", 'z'-i, i)
		if a := c.Refund(operation, "P", 1); a.Status != http.StatusCreated {
			t.Fatalf("refund %s: %d %s", operation, a.Status, a.Body)
		}
		tenant.Exec(`UPDATE refund_operations SET created_at = $2 WHERE operation_id = $1`, operation, at)
		want = append(want, operation)
	}
	for _, limit := range []int{1, 2, 3, 10} {
		var got []string
		for cursor := ""; ; {
			a := c.Get(fmt.Sprintf("/v1/refunds?order_id=P&limit=%d%s", limit, cursor))
			var page struct {
				Data []struct {
					OperationID string `json:"operation_id"`
				} `json:"data"`
				NextCursor *string `json:"next_cursor"`
			}
			if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
				t.Fatalf("page %q: %d %.300s", cursor, a.Status, a.Body)
			}
			for _, r := range page.Data {
				if !strings.HasPrefix(r.OperationID, "late") {
					got = append(got, r.OperationID)
				}
			}
			c.Refund(fmt.Sprintf("late-%d-%d", limit, len(got)), "P", 1)
			if page.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
}
