package dev

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// step is one command of the tour. It works whenever it is pasted, also a second time, and leaves nothing armed.
type step struct {
	says         string // what it shows
	first, again int    // the HTTP status at the first time, and at later ones
	call         string // of curl; URLs, names and key are filled in
	lost         bool   // the provider hangs up instead of answering, if it is asked
}

// tourOf is the tour through what r tells of: the calls that every integrator needs, then what refundd is for.
func tourOf(r Record) []step {
	if r.SimulatorURL == nil {
		return tourSteps()
	}
	return append(tourSteps(), simulatorSteps()...)
}

const refundOnce = `-X POST {url}/v1/refunds -d '{"operation_id":"{name}-1","order_id":"{name}","amount_cents":6000}'`

func tourSteps() []step {
	return []step{
		{says: "Register an order: a captured payment of 100.00 dollars", first: 201, again: 200,
			call: `-X PUT {url}/v1/orders/{name} -d '{"currency":"USD","captured_cents":10000}'`},
		{says: "Approve a refund; the approval's id is the operation id", first: 201, again: 200,
			call: `-X PUT {url}/v1/authorizations/{name}-1 ` +
				`-d '{"case_id":"case-1","order_id":"{name}","amount_cents":6000,"approved_by":"you"}'`},
		{says: "Refund it: status processed", first: 201, again: 200, call: refundOnce},
		{says: "The same again, as a client does whose answer was lost: already_processed, no money moves",
			first: 200, again: 200, call: refundOnce},
		{says: "The same operation for another amount: operation_id_conflict, refused for good", first: 422, again: 422,
			call: `-X POST {url}/v1/refunds -d '{"operation_id":"{name}-1","order_id":"{name}","amount_cents":5000}'`},
		{says: "What nobody approved: authorization_not_found", first: 404, again: 404,
			call: `-X POST {url}/v1/refunds -d '{"operation_id":"{name}-2","order_id":"{name}","amount_cents":100}'`},
		{says: "The order: refundable_cents is 4000", first: 200, again: 200, call: `{url}/v1/orders/{name}`},
		{says: "Ask as an agent does: the policy approves, or puts the case in front of a person", first: 201,
			again: 200,
			call: `-X POST {url}/v1/refund-requests ` +
				`-d '{"case_id":"{name}","order_id":"{name}","amount_cents":1000,"reason_code":"damaged"}'`},
	}
}

const refundAtProvider = `-X POST {url}/v1/refunds ` +
	`-d '{"operation_id":"{name}-s-1","order_id":"{name}-s","amount_cents":7500}'`

// simulatorSteps need a simulator.
func simulatorSteps() []step {
	return []step{
		{says: "An order whose money a payment provider moves, here the simulated one", first: 201, again: 200,
			call: `-X PUT {url}/v1/orders/{name}-s ` +
				`-d '{"currency":"USD","captured_cents":7500,"provider":"simulator","provider_payment_ref":"{name}"}'`},
		{says: "Approve its refund", first: 201, again: 200,
			call: `-X PUT {url}/v1/authorizations/{name}-s-1 ` +
				`-d '{"case_id":"case-2","order_id":"{name}-s","amount_cents":7500,"approved_by":"you"}'`},
		{says: "Refund it while the provider pays but hangs up: pending, money_moved unknown; nothing is guessed",
			first: 202, again: 200, call: refundAtProvider, lost: true},
		{says: "Find out now, as refundd reconcile does from cron: succeeded, by what the provider's books show",
			first: 200, again: 200, call: `-X POST {url}/v1/refunds/{name}-s-1/reconcile`},
		{says: "The same refund again: already_processed. It was paid once",
			first: 200, again: 200, call: refundAtProvider},
		{says: "The provider's own books: each refund once", first: 200, again: 200, call: `{simulator}/_ledger`},
	}
}

// Tour returns what dev prints once it serves: commands to copy and paste, key and address included, on names that no
// earlier start used.
func Tour(r Record) string {
	name := "tour-" + uuid.NewString()[:8]
	var b strings.Builder
	fmt.Fprintf(&b, "refundd serves on %s (contract: %s/openapi.yaml, metrics: %s/metrics)\n", r.URL, r.URL, r.AdminURL)
	b.WriteString("Try it from another terminal, as often as you like; Ctrl-C here stops everything.\n")
	for i, s := range tourOf(r) {
		status := fmt.Sprint(s.first)
		if s.again != s.first {
			status += fmt.Sprintf(" (again: %d)", s.again)
		}
		fmt.Fprintf(&b, "\n# %d. %s: %s.\n%s\n", i+1, s.says, status, s.command(r, name))
	}
	b.WriteString(agentConfig(r))
	return b.String()
}

// agentConfig tells how a client of the Model Context Protocol gets the tools.
func agentConfig(r Record) string {
	config := `{"mcpServers":{"refundd":{"command":"refundd","args":["mcp"],` +
		`"env":{"REFUNDD_SERVER_URL":"{url}","REFUNDD_API_KEY":"{key}"}}}}`
	return "\n# For an agent: go install ./cmd/refundd, and give its MCP client this server (docs/agents.md).\n" +
		strings.NewReplacer("{url}", r.URL, "{key}", r.APIKey).Replace(config) + "\n\n"
}

// command is one line for a shell; it prints the status line, the headers and the body.
func (s step) command(r Record, name string) string {
	line := "curl -sS -i" + s.options() + " " + s.call + "; echo"
	if s.lost {
		line = `curl -sS -o /dev/null {simulator}/_faults -H 'Content-Type: application/json' ` +
			`-d '{"mode":"drop_after","count":1}'; ` + line + `; curl -sS -o /dev/null -X DELETE {simulator}/_faults`
	}
	simulator := ""
	if r.SimulatorURL != nil {
		simulator = *r.SimulatorURL
	}
	names := strings.NewReplacer("{url}", r.URL, "{key}", r.APIKey, "{name}", name, "{simulator}", simulator)
	return names.Replace(line)
}

func (s step) options() string {
	var options string
	if strings.Contains(s.call, "{url}") {
		options += " -H 'Authorization: Bearer {key}'"
	}
	if strings.Contains(s.call, " -d ") {
		options += " -H 'Content-Type: application/json'"
	}
	return options
}
