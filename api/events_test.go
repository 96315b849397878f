package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"refundd/operations"
)

// TestProviderEvents is what is answered to a provider, whatever its reader makes of a body; what readers themselves
// promise is in their rooms.
func TestProviderEvents_AreAnsweredByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	var came int
	reader := func(body []byte, h http.Header, _ time.Time) (operations.Hint, error) {
		came = len(body)
		switch h.Get("Stripe-Signature") {
		case "none":
			return operations.Hint{}, operations.ErrEventUnsigned
		case "odd":
			return operations.Hint{}, operations.ErrEventMalformed
		case "ours": // of a provider that this engine does not have
			return operations.Hint{PaymentRefs: []string{"pi_1"}}, nil
		}
		return operations.Hint{}, nil
	}
	s := start(t, func(c *Config) { c.Events = map[string]EventReader{"stripe": reader} })
	bare := start(t)
	post := func(s *service, signature, contentType, body string) answered {
		t.Helper()
		return s.do(t, "POST", "/v1/webhooks/stripe", body, func(r *http.Request) {
			r.Header.Del("Authorization")
			r.Header.Set("Stripe-Signature", signature)
			r.Header.Set("Content-Type", contentType)
		})
	}
	const json = "application/json; charset=utf-8"
	large := `{"pad":"` + strings.Repeat("x", 256<<10-10) + `"}`
	for _, c := range []struct {
		name              string
		s                 *service
		signature, as, in string
		status            int
		code              string
	}{
		{"unsigned", s, "none", json, "{}", 400, "webhook_signature_invalid"},
		{"malformed", s, "odd", json, "{}", 400, "malformed_request"},
		{"of another type", s, "", "text/plain", "{}", 415, "unsupported_media_type"},
		{"too large", s, "", json, large + " ", 413, "request_too_large"},
		{"no provider to ask", s, "ours", json, "{}", 503, "provider_unavailable"},
		{"nobody reads them", bare, "", json, "{}", 503, "provider_unavailable"},
	} {
		if a := post(c.s, c.signature, c.as, c.in); a.status != c.status || a.text("code") != c.code ||
			a.text("money_moved") != "no" {
			t.Errorf("%s: %d %s", c.name, a.status, a.raw)
		}
	}
	if a := post(s, "none", json, large); a.status != http.StatusBadRequest || came != len(large) {
		t.Errorf("the largest: %d %s, of which %d bytes are read", a.status, a.raw, came)
	}
	for result, want := range map[string]float64{"refused": 5, "failed": 1, "applied": 0} {
		if got := testutil.ToFloat64(s.handler.metrics.events.WithLabelValues("stripe", result)); got != want {
			t.Errorf("%v events are counted as %s, want %v", got, result, want)
		}
	}
}
