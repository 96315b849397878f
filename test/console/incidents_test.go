package console_test

import (
	"fmt"
	"testing"
)

// The incidents are walked through as somebody does who was paged and has never seen refundd: from the first page, by
// what it says, to the end.

func TestIncident_TheProvidersAnswerWasLost(t *testing.T) {
	paid(t, "incident-lost", 4200)
	faulty(t, func() { refund(t, "incident-lost", 4200, 202) }, `{"mode":"drop_after","count":1}`)
	b := open(t, w.APIKey, "")
	b.says("Outcome unknown", "incident-lost")
	b.shoot("incident-lost-1")
	b.click(`[aria-labelledby=reserved] a[href="#/operation/incident-lost"]`)
	b.says("Nothing has to be decided.", "it is never paid twice.")
	b.shoot("incident-lost-2")
	b.click("#look")
	b.says("went back to the customer.")
	b.shoot("incident-lost-3")
	b.click(`.sentence a`)
	b.says("Given back USD 42.00", "Refundable USD 58.00")
}

func TestIncident_MoreWasPaidThanCaptured(t *testing.T) {
	over(t, "incident-over")
	b := open(t, w.APIKey, "")
	b.says("The provider paid it although it goes beyond what the order captured.")
	b.click(`[aria-labelledby=needs_attention] a[href="#/operation/incident-over"]`)
	b.says("The provider paid USD 75.00 of order incident-over beyond what was captured",
		"The money is gone: decide “Paid”", "The provider showed it as paid: refused unless",
		"beyond what was captured. Nothing is sent.")
	b.shoot("incident-over-1")
	b.decide("failed", "It should not have been paid.")
	b.says("The provider’s books say otherwise.")
	b.shoot("incident-over-2")
	b.decide("succeeded", "Dashboard: two refunds of 75.00, T-78.")
	b.says("went back to the customer.")
	b.click(`.sentence a`)
	b.says("Over-refunded USD 50.00", "The provider paid USD 50.00 more than was captured.")
	b.shoot("incident-over-3")
}

func TestIncident_ACaseIsOverdue(t *testing.T) {
	order(t, "incident-sla", "EUR", 10000, nil)
	requester := key(t, "refunds:request,read,authorizations:write")
	for i := range 3 {
		do(t, "POST", w.URL+"/v1/refund-requests", requester,
			fmt.Sprintf(`{"case_id":"incident-sla-%d","order_id":"incident-sla","amount_cents":6000,"reason_code":"damaged"}`, i), 201)
	}
	sql(t, `UPDATE escalations SET due_at = now() - interval '26 hours' WHERE case_id = 'incident-sla-0'`)
	b := open(t, w.APIKey, "")
	b.says("overdue by 1 d 2 h")
	b.shoot("incident-sla-1")
	b.click(`[aria-labelledby=queues] a[href="#/escalations/refunds"]`)
	b.says("overdue by 1 d 2 h", "Needed to take it")
	b.holds(`document.querySelector('.card').innerText.includes('incident-sla-0')`)
	b.shoot("incident-sla-2")
	b.write(`.card input`, "Eve")
	b.click(`.card button[aria-expanded]`)
	b.says("The order can still give back EUR 100.00 of EUR 100.00.", "This moves no money yet")
	b.shoot("incident-sla-4")
	b.click(`.card button.main`)
	b.holds(`![...document.querySelectorAll('.card')].some((c) => c.innerText.includes('incident-sla-0'))`)
	b.goTo("#/authorizations/incident-sla-0")
	b.says("EUR 60.00 of order incident-sla", "open", "Approved by Eve")
	own := open(t, requester, "#/escalations/refunds")
	own.says("Your own key asked for this: somebody else’s approves it.")
	own.shoot("incident-sla-3")
}
