package simulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/internal/clocks"
	"refundd/operations"
)

// answeringLong is a server whose answers begin and end with these words, with filler between them up to size bytes.
func answeringLong(t *testing.T, status int, begin, filler, end string, size int) (url string) {
	t.Helper()
	block := strings.Repeat(filler, 1+32<<10/len(filler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, err := io.WriteString(w, begin)
		for n := len(begin); n < size && err == nil; n += len(block) {
			_, err = io.WriteString(w, block)
		}
		_, _ = io.WriteString(w, end)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const theirs = `{"refund_id":"re_2","idempotency_key":"acme:op-2","payment_ref":"pay-1","amount_cents":4999,"currency":"EUR",` +
	`"metadata":{"tenant_id":"acme","operation_id":"op-2"},"status":"succeeded","failure_code":null,"created_at":"2026-01-02T03:04:05Z"}`

// Sixty megabytes, 24 at a time, cost kilobytes each. What is too long to be read is unknown: it never lacks a refund.
func TestA66_LongAnswers_AreUnknownAndCostLittleMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	const size = 60 << 20
	ours := strings.ReplaceAll(theirs, "op-2", "op-1")
	for name, c := range map[string]struct {
		url   string
		calls int
	}{
		"a listing of others": {answeringLong(t, 200, `{"refunds":[`+theirs, ","+theirs, `]}`, size), 24},
		"ours, then others":   {answeringLong(t, 200, `{"refunds":[`+ours, ","+theirs, `]}`, size), 2},
		"all of them ours":    {answeringLong(t, 200, `{"refunds":[`+ours, ","+ours, `]}`, size), 2},
		"white space":         {answeringLong(t, 200, `{"refunds":[`, " ", `]}`, size), 2},
		"one endless name":    {answeringLong(t, 200, `{"refunds":[{"refund_id":"`, "x", `"}]}`, size), 24},
		"metadata":            {answeringLong(t, 200, `{"refunds":[{"metadata":{"a":"b"`, `,"c":"d"`, `}}]}`, size), 2},
		"another member":      {answeringLong(t, 200, `{"refunds":[],"more":[0`, `,0`, `]}`, size), 24},
		"deep nesting":        {answeringLong(t, 200, `{"refunds":[],"more":`, `[`, `]}`, size), 2},
		"an error":            {answeringLong(t, 503, `{"code":"`, "x", `"}`, size), 24},
		"a refusal":           {answeringLong(t, 429, `{"code":"`, "x", `"}`, size), 2},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		client := newClient(t, c.url)
		grown := heapGrowth(func() {
			var calls sync.WaitGroup
			for range c.calls / 2 {
				calls.Go(func() {
					_, err := client.Lookup(ctx, refundOf4999)
					kind(t, operations.ErrorUnknown, err)
				})
				calls.Go(func() {
					_, err := client.Refund(ctx, refundOf4999)
					kind(t, operations.ErrorUnknown, err)
				})
			}
			calls.Wait()
		})
		cancel()
		if allowed := uint64(8<<20 + c.calls<<19); grown > allowed { // one megabyte of JSON leaves garbage behind
			t.Errorf("%s: %d answers at a time cost %d kB", name, c.calls, grown>>10)
		}
	}
}

// heapGrowth is by how much the heap grew at the most while work ran.
func heapGrowth(work func()) uint64 {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	go func() { defer close(done); work() }()
	peak := before.HeapAlloc
	for {
		select {
		case <-done:
			return peak - before.HeapAlloc
		case <-time.After(5 * time.Millisecond):
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
	}
}

func TestClient_Lookup_ReadsAListingOfThousands(t *testing.T) {
	t.Parallel()
	ours := strings.ReplaceAll(theirs, "op-2", "op-1")
	const size = 900 << 10
	got, err := newClient(t, answeringLong(t, 200, `{"refunds":[`+theirs, ","+theirs,
		","+ours+`]}`, size)).Lookup(t.Context(), refundOf4999)
	if err != nil || got.Outcome != operations.OutcomeSucceeded {
		t.Errorf("the last one of it: %+v, %v", got, err)
	}
	_, err = newClient(t, answeringLong(t, 200, `{"refunds":[`+theirs, ","+theirs, `]}`, size)).Lookup(t.Context(),
		refundOf4999)
	kind(t, operations.ErrorNotFound, err)
	for _, after := range []string{"{}", `{"refunds":[]}`, "x", "]"} {
		_, err = newClient(t, answering(t, 200, `{"refunds":[]}`+after)).Lookup(t.Context(), refundOf4999)
		kind(t, operations.ErrorUnknown, err)
	}
}

// What tells a request that never left us from one that the provider refused to look at: the first alone leaves its key
// unknown.
func TestA65_OnlyWhatWasNotWritten_SaysSo(t *testing.T) {
	t.Parallel()
	_, err := newClient(t, answering(t, http.StatusTooManyRequests, "{}")).Refund(t.Context(), refundOf4999)
	if failure := kind(t, operations.ErrorNotSent, err); failure.Unwritten {
		t.Error("a request that was answered 429 counts as not written")
	}
	late := refundOf4999
	late.NotAfter = clocks.Now()
	_, err = newClient(t, answering(t, http.StatusCreated, "{}")).Refund(t.Context(), late)
	if failure := kind(t, operations.ErrorNotSent, err); !failure.Unwritten {
		t.Error("a request whose moment had passed counts as written")
	}
	_, err = newClient(t, "http://127.0.0.1:1").Refund(t.Context(), refundOf4999)
	if failure := kind(t, operations.ErrorNotSent, err); !failure.Unwritten {
		t.Error("a request without a connection counts as written")
	}
}

func TestA66_RetryAfter_ComesWithTheError(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503, 500, 403, 402} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", fmt.Sprint(status))
			w.WriteHeader(status)
		}))
		c := newClient(t, server.URL)
		_, lookup := c.Lookup(t.Context(), refundOf4999)
		_, refund := c.Refund(t.Context(), refundOf4999)
		for _, err := range []error{lookup, refund} {
			failure, ok := errors.AsType[*operations.ProviderError](err)
			if !ok || failure.RetryAfter != time.Duration(status)*time.Second {
				t.Errorf("%d with a Retry-After of as many seconds: %+v", status, err)
			}
		}
		server.Close()
	}
}
