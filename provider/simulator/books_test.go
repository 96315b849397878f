package simulator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/provider/simulator"
)

func TestBooks_SurviveAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir)
	first := p.refund(t, "k1").want(t, http.StatusCreated)
	p.fault(t, `{"mode":"decline","count":1,"code":"charge_disputed"}`)
	declined := p.refund(t, "k2").want(t, http.StatusPaymentRequired)
	p.refund(t, "k3").want(t, http.StatusCreated)
	p.send(t.Context(), "POST", "/_keys/expire", "", `{"idempotency_key":"k3"}`).want(t, http.StatusOK)
	p.fault(t, `{"mode":"error_before","count":2}`)
	p.refund(t, "k1").want(t, http.StatusInternalServerError)
	before := p.ledger(t)
	p.kill()

	p = startProcess(t, dir)
	if d := cmp.Diff(before, p.ledger(t)); d != "" {
		t.Errorf("the ledger changed: %s", d)
	}
	if got := p.send(t.Context(), "GET", "/_faults", "", "").body; got != `{"faults":[]}` {
		t.Errorf("faults end with their process, got %s", got)
	}
	if again := p.refund(t, "k1").want(t, http.StatusCreated); again.body != first.body {
		t.Errorf("got %s, want %s", again.body, first.body)
	}
	if again := p.refund(t, "k2").want(t, http.StatusPaymentRequired); again.body != declined.body {
		t.Errorf("got %s, want %s", again.body, declined.body)
	}
	p.refund(t, "k3").want(t, http.StatusCreated)
	p.executions(t, 3)
	p.stop(t)
}

func TestBooks_WhatWasScheduledHappensAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir)
	p.fault(t, `{"mode":"pending","count":1,"delay_ms":3600000}`)
	p.refund(t, "an hour").want(t, http.StatusCreated)
	p.fault(t, `{"mode":"pending","count":1,"delay_ms":1}`)
	p.refund(t, "while it is down").want(t, http.StatusCreated)
	p.fault(t, `{"mode":"fail_later","count":1,"delay_ms":2500}`)
	p.refund(t, "after").want(t, http.StatusCreated)
	p.kill()

	p = startProcess(t, dir)
	statuses := func() []string {
		var all []string
		for _, r := range p.ledger(t) {
			all = append(all, r.Status)
		}
		return all
	}
	if d := cmp.Diff([]string{"pending", "succeeded", "succeeded"}, statuses()); d != "" {
		t.Error(d)
	}
	eventually(t, "the late failure",
		func() bool { return cmp.Equal([]string{"pending", "succeeded", "failed"}, statuses()) })
}

func TestBooks_KilledInAHang_ExecutedNothingAndCountedTheRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir)
	p.fault(t, `{"mode":"hang","count":1,"delay_ms":600000}`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	p.send(ctx, "POST", "/refunds", "k", body("pay-1")).dropped(t)
	p.kill()

	p = startProcess(t, dir)
	p.executions(t, 0)
	p.refund(t, "k").want(t, http.StatusCreated)
	if l := p.ledger(t); len(l) != 1 || l[0].Requests != 2 {
		t.Errorf("got %+v", l)
	}
}

func TestServe_StopsWhileRequestsHang(t *testing.T) {
	t.Parallel()
	p := startProcess(t, t.TempDir())
	p.fault(t, `{"mode":"hang","count":1,"delay_ms":600000}`)
	hanging := make(chan answer)
	go func() { hanging <- p.send(context.Background(), "POST", "/refunds", "k", body("pay-1")) }()
	eventually(t, "it hangs",
		func() bool { return len(p.send(t.Context(), "GET", "/_keys", "", "").body) > len(`{"keys":[]}`) })
	began := time.Now()
	p.stop(t)
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("it took %v", d)
	}
	(<-hanging).dropped(t)
}

func TestBooks_TornLastLine_IsRemoved(t *testing.T) {
	t.Parallel()
	for name, torn := range map[string]string{
		"half a line":         `{"event":"refund","idempotency_key":"k2","refu`,
		"a line without end":  `{"event":"request","idempotency_key":"k2"}`,
		"a block of zeroes":   "\x00\x00\x00\x00\x00",
		"a line of half JSON": `{"event":"request","idempotency_key":` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "k1")
			whole, err := os.ReadFile(dir + "/simulator.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			appendTo(t, dir, []byte(torn))
			write(t, dir, "k3")
			all, err := os.ReadFile(dir + "/simulator.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(whole), string(all[:len(whole)])); d != "" {
				t.Errorf("the lines before changed: %s", d)
			}
			p := start(t, simulator.Options{Dir: dir})
			if l := p.ledger(t); len(l) != 2 || l[0].Key != "k1" || l[1].Key != "k3" {
				t.Errorf("got %+v", l)
			}
		})
	}
}

// write executes one refund in the books of dir and closes them.
func write(t *testing.T, dir, key string) {
	t.Helper()
	t.Run(key, func(t *testing.T) {
		start(t, simulator.Options{Dir: dir}).refund(t, key).want(t, http.StatusCreated)
	})
}

func TestBooks_DamagedBeforeTheLastLine_AreNotOpened(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"half a line":         `{"event":"refund","idempotency_key":"k2","refu` + "\n" + `{"event":"expire"}` + "\n",
		"an unknown event":    `{"event":"chargeback","idempotency_key":"k2"}` + "\n",
		"an unknown member":   `{"event":"request","idempotency_key":"k2","by":"me"}` + "\n",
		"a refund of nothing": `{"event":"refund","idempotency_key":"k2"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "k1")
			appendTo(t, dir, []byte(damage))
			if _, err := simulator.New(simulator.Options{Dir: dir}); !errors.Is(err, simulator.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
		})
	}
}

func TestBooks_AreOpenInOnePlaceAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir)
	if _, err := simulator.New(simulator.Options{Dir: dir}); !errors.Is(err, simulator.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	p.kill()
	s, err := simulator.New(simulator.Options{Dir: dir})
	if err != nil {
		t.Fatalf("a killed process leaves no lock: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("close twice: %v", err)
	}
}

func TestBooks_KilledUnderLoad_KeepWhatWasAnswered(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	var told acknowledged
	for round := range 4 {
		p := startProcess(t, dir)
		p.fault(t, `{"mode":"drop_after","count":15}`)
		p.fault(t, `{"mode":"error_after","count":15}`)
		p.fault(t, `{"mode":"pending","count":50,"delay_ms":100}`)
		stop := attack(t, p.provider, &told, round)
		enough := told.count.Load() + 20 + random.Int64N(100)
		eventually(t, "enough answers", func() bool { return told.count.Load() >= enough })
		p.kill()
		stop()
	}
	compare(t, start(t, simulator.Options{Dir: dir}), &told)
}

// acknowledged are the answers that clients were given: key → body.
type acknowledged struct {
	bodies sync.Map
	count  atomic.Int64
}

// attack sends refunds under keys that several clients share, some of them again from earlier rounds, until the
// returned function is called.
func attack(t *testing.T, p provider, told *acknowledged, round int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	var n atomic.Int64
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				i := n.Add(1) / 3
				key := fmt.Sprintf("round-%d-%d", round-int(i%4)/3, i)
				a := p.send(ctx, "POST", "/refunds", key, body("pay-"+key))
				if a.err != nil || a.status != http.StatusCreated {
					continue
				}
				if before, again := told.bodies.LoadOrStore(key, a.body); again && before != a.body {
					t.Errorf("%s was answered %s, and then %s", key, before, a.body)
				}
				told.count.Add(1)
			}
		})
	}
	return func() { cancel(); clients.Wait() }
}

// compare holds the answers that were given against the books.
func compare(t *testing.T, p provider, told *acknowledged) {
	t.Helper()
	books := map[string]entry{}
	for _, r := range p.ledger(t) {
		if _, twice := books[r.Key]; twice {
			t.Errorf("%s executed twice", r.Key)
		}
		books[r.Key] = r
	}
	for key, text := range told.bodies.Range {
		if a, b := decode[entry](t, text.(string)), books[key.(string)]; a.RefundID != b.RefundID {
			t.Errorf("%s was answered %s, the books have %q", key, a.RefundID, b.RefundID)
		}
	}
	if told.count.Load() == 0 || len(books) == 0 {
		t.Errorf("%d answers, %d refunds: nothing was compared", told.count.Load(), len(books))
	}
}
