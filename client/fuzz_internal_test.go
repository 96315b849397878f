package client

import (
	"net/http"
	"testing"
)

// Whatever an answer says, no wait is negative, money_moved is one of the three words, and a refusal that moved money
// for sure, or did not, is the service's own.
func FuzzRefused(f *testing.F) {
	const problem = "application/problem+json"
	f.Add(429, problem, "7", "",
		`{"code":"rate_limited","isRetryable":true,"money_moved":"unknown","retry_after_seconds":7}`)
	f.Add(422, problem+"; charset=utf-8", "", "true",
		`{"code":"refund_declined","isRetryable":false,"money_moved":"no","retry_after_seconds":-1}`)
	f.Add(503, "text/html", "Fri, 31 Dec 9999 23:59:59 GMT", "false", `<html>`)
	f.Add(500, problem, "1e3", "",
		`{"code":"internal","money_moved":"perhaps","retry_after_seconds":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, status int, media, retry, should, body string) {
		answer := &http.Response{StatusCode: status, Header: http.Header{
			"Content-Type": {media}, "Retry-After": {retry}, "X-Should-Retry": {should}}}
		got := refused(&call{method: http.MethodPost}, answer, []byte(body))
		if got.RetryAfter < 0 || !got.MoneyMoved.known() || got.Code == "" {
			t.Errorf("%+v", got.Error)
		}
		if got.MoneyMoved == MoneyMovedYes && readProblem(answer, []byte(body)) == nil {
			t.Errorf("an answer that is not the service's own moved money: %+v", got.Error)
		}
		if should == "false" && got.again {
			t.Error("it is asked again, against the service's own word")
		}
	})
}
