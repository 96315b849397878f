package blackbox_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"refundd/test/harness"
)

// hostile drives a terminal in every way there is, as JSON escapes: CSI, OSC, C1, delete, bidirectional override and
// isolate, zero width, separators, byte order mark, a tag beyond 16 bits.
const hostile = `\u001b[2J\u001b]0;owned\u0007\r\u009b31m\u0085\u007f\u202e\u2066\u200b\u2028\u2029\ufeff\udb40\udc41`

// drives finds what a terminal would act upon.
func drives(text string) string {
	for _, r := range text {
		if !unicode.IsGraphic(r) && r != '\n' && r != '\t' {
			return fmt.Sprintf("%U in %q", r, text)
		}
	}
	return ""
}

func TestA75_WhatACallerWrites_DrivesNoTerminalAndBreaksNoLogLine(t *testing.T) {
	t.Parallel()
	service := harness.New(t)
	tenant := service.Tenant(t)
	c := tenant.Client()
	var bodies []string
	call := func(status int, method, path, body string) {
		a := c.Do(harness.Request{Method: method, Path: path, Body: []byte(body)})
		if a.Status != status {
			t.Errorf("%s %s answers %d %s", method, path, a.Status, a.Body)
		}
		bodies = append(bodies, string(a.Body))
	}
	call(201, "PUT", "/v1/orders/A-1",
		`{"currency":"EUR","captured_cents":5000,"customer":{"id":"`+hostile+`","name":"`+hostile+`"}}`)
	call(201, "PUT", "/v1/authorizations/op-1",
		`{"case_id":"`+hostile+`","order_id":"A-1","amount_cents":5,"approved_by":"`+hostile+
			`","reason":"`+hostile+`","metadata":{"`+hostile+`":"`+hostile+`"}}`)
	call(201, "PUT", "/v1/authorizations/op-2", `{"case_id":"c","order_id":"A-1","amount_cents":5,"approved_by":"ann"}`)
	call(201, "POST", "/v1/refunds",
		`{"operation_id":"op-1","order_id":"A-1","amount_cents":5,"reason":"`+hostile+`","metadata":{"`+hostile+`":"`+hostile+`"}}`)
	call(200, "POST", "/v1/authorizations/op-2/revoke", `{"reason":"`+hostile+`","revoked_by":"`+hostile+`"}`)
	for _, path := range []string{"/v1/refunds/op-1", "/v1/refunds/op-1/events", "/v1/authorizations/op-1",
		"/v1/authorizations/op-2", "/v1/orders/A-1"} {
		call(200, "GET", path, "")
	}
	call(422, "POST", "/v1/refunds", `{"operation_id":"op-`+hostile+`","order_id":"A-`+hostile+`","amount_cents":5}`)
	call(400, "POST", "/v1/refunds", `{"`+hostile+`":1}`)
	for _, body := range bodies {
		if found := drives(body); found != "" {
			t.Errorf("an answer holds %s", found)
		}
	}
	raw := "\x1b[2J\u009b31m\u202e\ufeff\r"
	for _, args := range [][]string{
		{"show", "op-1"}, {"show", "op-1", "--json"}, {"show", "op-2"}, {"show", raw}, {raw}, {"serve", "--" + raw},
		{"bench", "--mix", raw}, {"dev", "--data", "/dev/null/" + raw},
	} {
		r := harness.Command(t, service.DB.URL, args...)
		if found := drives(r.Stdout + r.Stderr); found != "" {
			t.Errorf("%q prints %s", args, found)
		}
		if args[0] == "show" && args[1] == "op-1" && !strings.Contains(r.Stdout, `\u202e`) {
			t.Errorf("%q hides what was written: %s", args, r.Stdout)
		}
	}
	for line := range strings.Lines(service.Servers[0].Logs.Text()) {
		if found := drives(line); found != "" || !strings.HasPrefix(line, "{") || len(line) > 4<<10 {
			t.Errorf("a log line: %s %.200q", found, line)
		}
	}
}
