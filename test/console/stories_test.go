package console_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func TestALostAnswer_AppearsWithinASecond_IsLookedUp_AndSettles(t *testing.T) {
	b := open(t, w.APIKey, "")
	b.says("Outcome unknown")
	var best time.Duration
	for i := range 3 { // a busy machine may be slow, the page may not
		id := fmt.Sprintf("lost-%d", i)
		paid(t, id, 7500)
		var lost time.Time
		faulty(t, func() {
			refund(t, id, 7500, 202)
			lost = time.Now()
		}, `{"mode":"drop_after","count":1}`)
		b.holds(`document.querySelector('[aria-labelledby=reserved] a[href="#/operation/` + id + `"]') !== null`)
		if took := time.Since(lost); best == 0 || took < best {
			best = took
		}
	}
	t.Logf("a lost answer is shown after %s", best.Round(time.Millisecond))
	if best > time.Second {
		t.Errorf("a lost answer appears after %s", best)
	}
	b.click(`[aria-labelledby=reserved] a[href="#/operation/lost-0"]`)
	b.says("USD 75.00 of order lost-0 are held; whether the provider paid them is not known yet.",
		"Asked to pay by a caller: no answer: it may have happened.")
	b.lacks("#decide-now")
	b.click("#look")
	b.says("USD 75.00 of order lost-0 went back to the customer.", "Looked up by a look that was asked for: paid.",
		"Settled: USD 75.00 from the hold to the customer.")
	if s := stateOf(t, "lost-0"); s != "succeeded" {
		t.Errorf("it is %s", s)
	}
	b.goTo("#/")
	b.says("Outcome unknown")
	b.holds(`document.querySelector('a[href="#/operation/lost-0"]') === null`)
}

// decide fills the form in and sends it.
func (b *tab) decide(outcome, evidence string) {
	b.t.Helper()
	b.click("#choose-" + outcome)
	b.write("#evidence", evidence)
	b.click("#decide-now")
}

func TestFailed_IsRefusedWhileTheProviderShowsSuccess(t *testing.T) {
	waits(t, "disagrees", 7500, true)
	b := open(t, w.APIKey, "#/operation/disagrees")
	b.says("The hold ends and USD 75.00 can be refunded again", "The books say that USD 75.00 went to the customer")
	b.decide("failed", "The dashboard shows nothing.")
	b.says("The provider’s books say otherwise.", "Nothing was changed.", "422 provider_disagrees")
	b.lacks("#override")
	if v := b.value("#evidence"); v != "The dashboard shows nothing." {
		t.Errorf("the evidence is gone: %q", v)
	}
	if s := stateOf(t, "disagrees"); s != "needs_attention" {
		t.Errorf("it is %s", s)
	}
	b.says("Looked up by a person (key_", "): paid.")
	b.write("#name", "Bo")
	b.decide("succeeded", "The provider shows it.")
	b.says("USD 75.00 of order disagrees went back to the customer.", "Decided: paid by Bo", "The provider shows it.")
	b.lacks("#decide-now")
}

func TestAnOverride_IsOfferedOnlyWhereTheBooksCannotBeRead(t *testing.T) {
	waits(t, "unreadable", 7500, false)
	b := open(t, w.APIKey, "#/operation/unreadable")
	b.says("Decide")
	b.lacks("#override")
	faulty(t, func() {
		b.decide("failed", "Their support confirms T-77: nothing was paid.")
		b.says("The provider cannot be asked.", "Override: decide although")
		b.click("#override")
		b.click("#decide-now")
		b.says("did not go to the customer.", "overriding", "The look before it: no answer")
	}, `{"mode":"lookup_down"}`)
}

func TestTwoPeopleAtOnce_OneDecides_TheOtherIsTold(t *testing.T) {
	waits(t, "contested", 7500, false)
	tabs := []*tab{open(t, w.APIKey, "#/operation/contested"), open(t, w.APIKey, "#/operation/contested")}
	for i, outcome := range []string{"succeeded", "failed"} {
		tabs[i].click("#choose-" + outcome)
		tabs[i].write("#evidence", "by "+outcome)
	}
	var both sync.WaitGroup
	for _, b := range tabs {
		both.Go(func() {
			_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.querySelector('#decide-now').click()`, nil))
		})
	}
	both.Wait()
	told, decided := 0, 0
	for _, b := range tabs {
		b.holds(`document.querySelector('.sentence').dataset.state !== 'needs_attention'`)
		b.holds(`document.querySelector('.told') !== null || document.querySelector('#decide-now') === null`)
		text := b.text()
		switch {
		case strings.Contains(text, "It was decided already"), strings.Contains(text, "Somebody works on it right now"):
			told++
		default:
			decided++
		}
	}
	if told != 1 || decided != 1 {
		t.Errorf("%d were told, %d decided:\n%s\n%s", told, decided, tabs[0].text(), tabs[1].text())
	}
	if s := stateOf(t, "contested"); s != "succeeded" && s != "failed" {
		t.Errorf("it is %s", s)
	}
}

func TestADoubleClick_DecidesOnce(t *testing.T) {
	waits(t, "twice", 7500, false)
	b := open(t, w.APIKey, "#/operation/twice")
	b.click("#choose-failed")
	b.write("#evidence", "seen twice")
	b.do("click twice", chromedp.WaitEnabled("#decide-now"), chromedp.DoubleClick("#decide-now"))
	b.says("did not go to the customer.", "Decided: not paid")
	var decisions int
	b.do("count", chromedp.Evaluate(`document.querySelectorAll('.track .person blockquote').length`, &decisions))
	b.lacks(".told")
	if decisions != 1 {
		t.Errorf("%d decisions", decisions)
	}
}

func TestAReadOnlyKey_IsOfferedNothingItMayNotDo(t *testing.T) {
	waits(t, "readonly", 7500, false)
	approve(t, "readonly-open", "case-readonly", "readonly", 100, nil)
	b := open(t, key(t, "read"), "#/operation/readonly")
	b.says("read only", "Your key may read this and not decide it")
	b.lacks("#look, #decide-now, #evidence")
	b.goTo("#/authorizations/case-readonly")
	b.says("Approved in case case-readonly", "Your key may not approve")
	b.lacks("main form:not(.search), main button:not(.main)")
	b.goTo("#/escalations")
	b.says("A refund waits for a decision")
	b.lacks("main form, main button:not(.pager button)")
	resolver := open(t, key(t, "read,refunds:resolve"), "#/operation/readonly")
	resolver.says("Decide")
	resolver.lacks("#look")
	stranger := open(t, "", "")
	stranger.do("try a key without read", chromedp.SendKeys(`input[name=key]`, key(t, "refunds:write")+"\r"))
	stranger.says("This key may not do that", "The console needs a key with the scope read.")
}

func TestAnExpiredKey_CostsNothingThatWasWritten(t *testing.T) {
	waits(t, "expires", 7500, false)
	first, second := key(t, "read,refunds:resolve"), key(t, "read,refunds:resolve")
	b := open(t, first, "#/operation/expires")
	b.click("#choose-failed")
	b.write("#evidence", "half an hour of work")
	sql(t, `UPDATE api_keys SET revoked_at = now() WHERE secret_hash = sha256($1::bytea)`, []byte(first))
	b.says("The key is not valid any more")
	b.do("a wrong key", chromedp.SendKeys(`dialog input[name=key]`, "rfd_wrong\r"))
	b.says("refundd does not know this key.")
	b.write(`dialog input[name=key]`, second)
	b.do("go on", chromedp.SendKeys(`dialog input[name=key]`, "\r"), chromedp.WaitNotPresent(`dialog`))
	if v := b.value("#evidence"); v != "half an hour of work" {
		t.Errorf("the evidence is gone: %q", v)
	}
	b.click("#decide-now")
	b.says("did not go to the customer.", "half an hour of work")
}

func TestKeyboardAlone_Decides(t *testing.T) {
	waits(t, "keyboard", 7500, false)
	b := open(t, w.APIKey, "#/operation/keyboard")
	b.says("Decide")
	reach := func(id string) {
		t.Helper()
		for range 60 {
			var at string
			b.do("tab", chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`document.activeElement.id`, &at))
			if at == id {
				return
			}
		}
		t.Fatalf("the Tab key does not reach %s", id)
	}
	reach("choose-succeeded")
	b.do("choose", chromedp.KeyEvent(" "), chromedp.KeyEvent(kb.ArrowRight))
	var chosen string
	b.do("read", chromedp.Evaluate(`document.querySelector('input[name=outcome]:checked').value`, &chosen))
	if chosen != "failed" {
		t.Errorf("the arrow chose %s", chosen)
	}
	reach("evidence")
	b.do("write", chromedp.KeyEvent("without a mouse"))
	reach("decide-now")
	b.do("decide", chromedp.KeyEvent(kb.Enter))
	b.says("did not go to the customer.", "without a mouse")
	b.holds(`document.querySelector('[aria-live]').textContent.includes('The refund is now: Not paid')`)
}

func TestApprovingAndWithdrawing(t *testing.T) {
	order(t, "kwd", "KWD", 10000, nil)
	order(t, "jpy", "JPY", 5800, nil)
	b := open(t, w.APIKey, "#/authorizations/case-kwd")
	b.says("Nothing was approved in this case.")
	b.write("#order", "kwd")
	b.write("#amount", "1.2345")
	b.says("The order can still give back KWD 10.000.", "Not an amount of KWD")
	b.write("#amount", "1.234")
	b.write("#approved-by", "Cleo")
	b.says("Approve KWD 1.234")
	b.click("form button.main:not(.search button)")
	b.says("Approved: KWD 1.234", "Approved by Cleo")
	b.do("withdraw", chromedp.Click(`.card button`), chromedp.Click(`.card button.danger`))
	b.says("revoked")
	b.goTo("#/order/jpy")
	b.says("Captured JPY 5,800")
	b.goTo("#/search/case-kwd")
	b.says("1 match for case-kwd", "Approvals of the case")
}

func TestEscalations_AreTakenAndDecided(t *testing.T) {
	order(t, "wish", "USD", 10000, nil)
	for _, c := range []string{"yes", "no"} {
		do(t, "POST", w.URL+"/v1/refund-requests", key(t, "refunds:request"),
			`{"case_id":"case-`+c+`","order_id":"wish","amount_cents":6000,"reason_code":"damaged"}`, 201)
	}
	sql(t, `UPDATE escalations SET due_at = now() - interval '2 hours' WHERE case_id = 'case-yes'`)
	b := open(t, w.APIKey, "#/")
	b.says("overdue by 2 h")
	b.goTo("#/escalations")
	b.says("case case-yes", "More than the rule may approve", "overdue by 2 h")
	card := func(c string) string { return fmt.Sprintf(`.card:has(a[href="#/authorizations/case-%s"])`, c) }
	b.write(card("yes")+` input`, "Dee")
	b.click(card("yes") + ` .acts button`)
	b.says("Dee looks at it.")
	b.click(card("yes") + ` button[aria-expanded]`)
	b.click(card("yes") + ` button.main`)
	b.holds(fmt.Sprintf(`document.querySelector(%s) === null`, quote(card("yes"))))
	b.click(card("no") + ` button[aria-expanded]:last-of-type`)
	b.click(card("no") + ` button.danger`)
	b.holds(fmt.Sprintf(`document.querySelector(%s) === null`, quote(card("no"))))
	b.do("show what was approved", chromedp.SetValue("#state", "approved"),
		chromedp.Evaluate(`document.querySelector('#state').dispatchEvent(new Event('change', {bubbles: true}))`, nil))
	b.says("approved by Dee")
}

func TestSearch_ShowsAllMatches_AndNeverPicksOne(t *testing.T) {
	for _, id := range []string{"many-1", "many-2", "many-3"} {
		order(t, id, "USD", 10000, object{"customer": object{"email": "Many@Example.com"}})
		approve(t, id, "case-many", id, 100, nil)
	}
	b := open(t, w.APIKey, "#/search/many@example.com")
	b.says("3 matches for many@example.com, all of them shown.", "many-1", "many-2", "many-3")
	b.write("#q", "case-many")
	b.do("search", chromedp.KeyEvent(kb.Enter))
	b.says("3 matches for case-many, all of them shown.", "Approvals of the case (3)")
	b.goTo("#/search/nobody")
	b.says("Nothing matches nobody.")
}
