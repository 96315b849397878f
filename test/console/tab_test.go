package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a tab with a key of its own: sessionStorage is a tab's.
type tab struct {
	t   *testing.T
	ctx context.Context
	mu  sync.Mutex
	bad []string // what a page threw
}

// watch notes what the page's policy refused.
const watch = `window.violations = [];
addEventListener('securitypolicyviolation', (e) => violations.push(e.effectiveDirective + ' ' + e.blockedURI + ' ' + e.sample));`

// open opens a tab at a page of the console, signed in with key. At the end nothing was thrown and no policy violated.
func open(t *testing.T, key, at string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(w.browser)
	if err := chromedp.Run(ctx); err != nil { // the tab lives as long as the context of this first call
		t.Fatal(err)
	}
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		if thrown, ok := event.(*runtime.EventExceptionThrown); ok {
			b.mu.Lock()
			b.bad = append(b.bad, thrown.ExceptionDetails.Error())
			b.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			b.shoot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		b.checkClean()
		cancel()
	})
	// Several tabs are in front of several people: none of them counts as hidden.
	b.do("open a tab", runtime.Enable(), page.BringToFront(), emulation.SetFocusEmulationEnabled(true),
		chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(watch).Do(ctx)
			return err
		}), size(1280, 900), chromedp.Navigate(w.URL+"/console/"+at))
	if key != "" {
		b.signIn(key)
	}
	return b
}

func (b *tab) checkClean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.bad) > 0 {
		b.t.Errorf("the page threw %q", b.bad)
	}
	var violations []string
	if err := chromedp.Run(b.ctx, chromedp.Evaluate(`window.violations`, &violations)); err != nil ||
		len(violations) > 0 {
		b.t.Errorf("the policy was violated: %q (%v)", violations, err)
	}
}

func size(width, height int64) chromedp.Action {
	return emulation.SetDeviceMetricsOverride(width, height, 1, width < 500)
}

// do runs actions, each of which has to come to an end soon.
func (b *tab) do(what string, actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v; the page says:\n%s", what, err, b.text())
	}
}

func (b *tab) signIn(key string) {
	b.t.Helper()
	b.do("sign in", chromedp.WaitVisible(`input[name=key]`), chromedp.SendKeys(`input[name=key]`, key+"\r"),
		chromedp.WaitNotPresent(`input[name=key]`))
}

// text is what the page says.
func (b *tab) text() string {
	var text string
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &text))
	return text
}

// holds waits until an expression is true.
func (b *tab) holds(expression string) {
	b.t.Helper()
	b.do("wait for "+expression, chromedp.Poll(expression, nil, chromedp.WithPollingInterval(30*time.Millisecond),
		chromedp.WithPollingTimeout(25*time.Second)))
}

// says waits until the page says all of it.
func (b *tab) says(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.holds(fmt.Sprintf(`document.body.innerText.replace(/\s+/g, ' ').includes(%s)`, quote(text)))
	}
}

func quote(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func (b *tab) lacks(selector string) {
	b.t.Helper()
	var n int
	b.do("count "+selector, chromedp.Evaluate(`document.querySelectorAll(`+quote(selector)+`).length`, &n))
	if n != 0 {
		b.t.Errorf("%s is there", selector)
	}
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do("click "+selector, chromedp.WaitEnabled(selector), chromedp.Click(selector))
}

// write replaces what a field has.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.do("write into "+selector, chromedp.WaitVisible(selector), chromedp.Focus(selector),
		chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%s).select()`, quote(selector)), nil),
		chromedp.KeyEvent("\b"), chromedp.SendKeys(selector, text))
}

func (b *tab) value(selector string) (v string) {
	b.t.Helper()
	b.do("read "+selector, chromedp.Value(selector, &v))
	return v
}

// goTo moves to another page of the console.
func (b *tab) goTo(hash string) {
	b.t.Helper()
	b.do("go to "+hash, chromedp.Evaluate(`location.hash = `+quote(hash), nil))
}
