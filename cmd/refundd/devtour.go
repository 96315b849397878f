package main

import (
	"fmt"
	"strings"
)

// step is one command of the tour.
type step struct {
	says string // what it shows and answers
	curl string // everything after curl's standing options; URLs and key are filled in
}

// tourOf is the tour through what r tells of.
func tourOf(r devRecord) []step {
	if r.SimulatorURL == nil {
		return tourSteps()
	}
	return append(tourSteps(), simulatorSteps()...)
}

func tourSteps() []step {
	return []step{
		{"Refund an approved operation: 201, status processed. (After a restart it was done before: 200.)",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-1001-a","order_id":"A-1001","amount_cents":6000}'`},
		{"The same again, as a client does whose answer was lost: 200, already_processed, the first receipt; no money moves.",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-1001-a","order_id":"A-1001","amount_cents":6000}'`},
		{"The same operation for another amount: 422 operation_id_conflict, refused for good.",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-1001-a","order_id":"A-1001","amount_cents":5000}'`},
		{"Another approved 6000 of the same order, which has 4000 left: 422 amount_exceeds_refundable.",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-1001-b","order_id":"A-1001","amount_cents":6000}'`},
		{"What nobody approved: 404 authorization_not_found.",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-nobody","order_id":"A-1003","amount_cents":100}'`},
		{"Withdraw an approval: 200. Run it and the next one at the same time: exactly one of the two wins.",
			`-X POST {url}/v1/authorizations/op-1003-a/revoke -d '{"revoked_by":"you"}'`},
		{"Execute what was withdrawn: 422 authorization_revoked.",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-1003-a","order_id":"A-1003","amount_cents":2500}'`},
		{"The order's refunds: 200, one of 6000.",
			`'{url}/v1/refunds?order_id=A-1001'`},
		{"The order: 200, refundable_cents 4000.",
			`{url}/v1/orders/A-1001`},
	}
}

// simulatorSteps need a simulator.
func simulatorSteps() []step {
	return []step{
		{"A refund through a payment provider, here the simulated one: 201, with its provider_refund_id. (After a restart: 200.)",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-3001-a","order_id":"S-3001","amount_cents":7500}'`},
		{"Tell the provider to refund but to hang up instead of answering, once: 200.",
			`-X POST {simulator}/_faults -d '{"mode":"drop_after","count":1}'`},
		{"Refund through it: 202, pending, money_moved unknown. Nobody knows, so that nothing is believed. (After a restart: 200.)",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-3002-a","order_id":"S-3002","amount_cents":4000}'`},
		{"Find out now, as refundd reconcile would from cron: 200, succeeded, by what the provider's books show.",
			`-X POST {url}/v1/refunds/op-3002-a/reconcile`},
		{"The same refund again: 200, already_processed. It was paid once.",
			`-X POST {url}/v1/refunds -d '{"operation_id":"op-3002-a","order_id":"S-3002","amount_cents":4000}'`},
		{"The provider's own books: 200, each refund once.",
			`{simulator}/_ledger`},
	}
}

// tour is what dev prints once it serves: commands to copy and paste, key and address included.
func tour(r devRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "refundd serves on %s (contract: %s/openapi.yaml, metrics: %s/metrics)\n", r.URL, r.URL, r.AdminURL)
	b.WriteString("Try it from another terminal; Ctrl-C here stops everything.\n")
	for i, s := range tourOf(r) {
		fmt.Fprintf(&b, "\n# %d. %s\n%s\n", i+1, s.says, s.command(r))
	}
	b.WriteString("\n")
	return b.String()
}

// command is one line for a shell; it prints the status line, the headers and the body.
func (s step) command(r devRecord) string {
	options := "curl -sS -i"
	if strings.Contains(s.curl, "{url}") {
		options += fmt.Sprintf(" -H 'Authorization: Bearer %s'", r.APIKey)
	}
	if strings.Contains(s.curl, " -d ") {
		options += " -H 'Content-Type: application/json'"
	}
	call := strings.ReplaceAll(s.curl, "{url}", r.URL)
	if r.SimulatorURL != nil {
		call = strings.ReplaceAll(call, "{simulator}", *r.SimulatorURL)
	}
	return options + " " + call + "; echo"
}
