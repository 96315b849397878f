package webhooks

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Whatever a message says, the library of Standard Webhooks verifies it with each secret that signed, and no other
// message by its signature.
func FuzzSignatures(f *testing.F) {
	f.Add("evt_1", []byte(`{"type":"refund.succeeded"}`))
	f.Add("a.b", []byte{0xff, 0})
	newer, older := newSecret(), newSecret()
	at := time.Now()
	f.Fuzz(func(t *testing.T, id string, body []byte) {
		if strings.ContainsAny(id, ".\r\n\x00") || id == "" {
			return // ids of events have none
		}
		signed, err := signatures([][]byte{newer.key, older.key}, id, at, body)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		header.Set("webhook-id", id)
		header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
		header.Set("webhook-signature", signed)
		for _, secret := range []Secret{newer, older} {
			hook, err := standardwebhooks.NewWebhook(secret.Text())
			if err != nil {
				t.Fatal(err)
			}
			if err := hook.VerifyIgnoringTimestamp(body, header); err != nil {
				t.Errorf("%q %q: %v", id, body, err)
			}
			if hook.VerifyIgnoringTimestamp(append(body, ' '), header) == nil {
				t.Errorf("%q: another body is verified", id)
			}
		}
	})
}
