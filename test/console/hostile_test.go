package console_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
)

// hostile is what a text must not be able to do anything with; each marks the window if it runs.
var hostile = []string{
	`<img src=x onerror=hacked=1>`, `<script>hacked=1</script>`, `"><svg onload=hacked=1>`, `' onfocus='hacked=1' autofocus='`,
	`javascript:hacked=1`, `${hacked=1}`, `</textarea><iframe srcdoc="<script>parent.hacked=1</script>">`, `&lt;b&gt;`,
}

func TestTextsAndIds_AreShownAndNeverRun(t *testing.T) {
	b := open(t, w.APIKey, "")
	for i, text := range hostile {
		operation := fmt.Sprintf("hostile-%d", i)
		orderID := fmt.Sprintf(`o%d<img/src=x/onerror="hacked=1">'&#/..?`, i)
		caseID := "case " + text
		order(t, orderID, "USD", 10000,
			object{"customer": object{"id": text, "email": fmt.Sprint(i, text, "@x"), "name": text}})
		approve(t, operation, caseID, orderID, 7500,
			object{"reason": text, "approved_by": text, "metadata": object{text: text}})
		faulty(t, func() {
			do(t, "POST", w.URL+"/v1/refunds", w.APIKey,
				marshal(t, object{"operation_id": operation, "order_id": orderID, "amount_cents": 7500,
					"reason": text, "metadata": object{text: text}}), 202)
			sql(t, `UPDATE refund_operations SET provider_key_expires_at = now() - interval '1 hour',
				last_send_ended = now() - interval '1 hour',
				lease_until = '-infinity' WHERE operation_id = $1`, operation)
			do(t, "POST", w.URL+"/v1/refunds/"+operation+"/reconcile", w.APIKey, "", 200)
		}, `{"mode":"drop_before","count":1}`)
		do(t, "POST", w.URL+"/v1/escalations", w.APIKey,
			marshal(t, object{"case_id": caseID, "trigger": "other", "summary": text, "order_id": orderID}), 201)
		b.goTo("#/operation/" + operation)
		b.says("Decide", text)
		b.write("#name", text)
		b.write("#claim", text)
		b.decide("failed", text)
		b.says("Decided: not paid", text)
		for _, at := range []string{"#/order/" + url.PathEscape(orderID), "#/authorizations/" + url.PathEscape(caseID),
			"#/search/" + url.PathEscape(text)} {
			b.goTo(at)
			b.says(text)
			b.holds(`document.querySelectorAll('.busy').length === 0`)
		}
	}
	for _, at := range []string{"#/", "#/escalations", "#/operation/%3Cimg%20src=x%20onerror=hacked=1%3E", "#/%",
		"#/constructor", "#/order/%00", "#/search/%E0%A4%A"} {
		b.goTo(at)
		b.holds(`document.querySelector('h1') !== null && document.querySelectorAll('.busy').length === 0`)
		var wrong string
		b.do("look for what ran",
			chromedp.Evaluate(`String(window.hacked ?? '') + [...document.querySelectorAll('img, iframe, script:not([src]), [onerror], [onload], [onfocus], a[href^="javascript:"]')].map((e) => e.outerHTML).join(' ')`, &wrong))
		if wrong != "" {
			t.Errorf("%s: %s", at, wrong)
		}
	}
}
